"""What is hidden from commands stays hidden, also where a folder is flooded with files."""

from tests.agent.kit import bash, results, rig, rounds


async def test_what_is_hidden_stays_hidden_whatever_is_renamed_or_flooded(tmp_path):
    config = '[tools.files]\ndeny_read = ["config/secrets.yml", "priv/**", "*.pem"]\n'
    script = rounds(
        bash("mv config c2; mv priv p2; true"), bash("cat c2/* p2/* config/* priv/* 2>&1; true"),
        bash("for i in {1..21000}; do echo > x$i; done"), bash("cat *.pem 2>&1; true"), bash("rm -f x*; true"),
    )  # fmt: skip
    files = dict.fromkeys(("config/secrets.yml", "priv/key", "z.pem"), "hidden words\n")
    async with rig(tmp_path, script, mode="auto", sandbox=True, terminal=False, config=config, files=files) as r:
        await r.editor.prompt("go", seconds=240)
        assert not [text for text in results(r, 6) if "hidden words" in text]
        assert (r.project / "config/secrets.yml").exists()
