"""Which command lines need a user at a terminal, and which only look like it."""

from pathlib import Path

import anyio
import pytest

from acp_agent.executors.base import Command
from acp_agent.executors.local import LocalCommands
from acp_agent.safety.lines.interactive import wants_terminal
from tests.tables import table

REFUSED = [
    "vim", "vim a.txt", "vi +10 a.txt", "nvim a.txt", "/usr/bin/nano a.txt", "'vim' a.txt", "emacs a.txt",
    "emacs -nw a.txt", "ed a.txt", "less a.txt", "more a.txt", "git log | less", "top", "htop", "watch ls",
    "watch -n 1 ls", "python", "python3", "python -i", "python -q", "ipython", "node", "irb", "ghci", "bash", "sh",
    "zsh -l", "bash -i", "psql", "psql -h localhost shop", "mysql shop", "mysql -u root -p shop -e 'select 1'",
    "sqlite3 a.db", "redis-cli", "redis-cli -h localhost", "ssh host", "ssh -p 22 user@host", "sftp host",
    "telnet host 80", "ftp host", "git rebase -i HEAD~3", "git rebase --interactive main", "git add -p", "git add -i",
    "git add -e", "git -C sub add --patch", "git commit", "git commit -a", "git commit -v", "git commit -t template",
    "git checkout -p", "npm init", "yarn init", "docker run -it ubuntu", "docker run --rm -it ubuntu bash",
    "docker run --name x -it ubuntu bash", "docker exec -it box bash", "docker exec -ti box bash", "docker attach box",
    "kubectl exec -it pod -- bash", "kubectl -n prod exec -it pod -- sh", "kubectl edit deployment x",
    "sudo apt install x", "sudo vim x", "sudo -n vim x", "sudo -u postgres psql", "passwd", "su", "su - postgres",
    "read x", "read -p 'Go on? ' x && rm y", "tmux", "tmux attach", "tmux new -s x", "screen", "screen -r x",
    "tail -f log", "tail -n 5 -f log", "tail -F log", "tail --follow=name log", "journalctl -f", "journalctl -fu ssh",
    "gh auth login", "gdb ./a.out", "lldb ./a.out", "cd sub && vim a.txt", "ls; top", "if python; then ls; fi",
    "(cd sub; python)", "for f in *; do vim $f; done", "FOO=1 python", "env FOO=1 python", "time vim", "nohup vim",
    "timeout 5 vim a", "timeout -s KILL 5 top", "exec vim", "command vim a", "bash -c 'vim a.txt'",
    "bash -o pipefail -c 'vim a.txt'", "bash -lc 'cd x && python'", "x=$(vim a)", "python > out.txt", "python 2>&1",
    "crontab -e", "crontab -u x -e", "visudo", "visudo -f x", "sudo -n visudo", "systemctl edit nginx",
    "systemctl --user edit --full nginx", "python -i x.py", "python -qi x.py", "python -i -c 'x = 1'",
    "python -m pdb x.py", "python3 -u -m pdb -m pytest", "ssh-keygen", "ssh-keygen -t ed25519 -C 'me@here'",
    "ssh-keygen -t ed25519 -f key", "ssh-keygen -N ''", "docker login", "docker login -u me registry.example.com",
    "podman login quay.io", "npm login", "npm --registry https://example.com adduser", "npm adduser --scope=@me",
    "gpg --gen-key", "gpg --full-generate-key", "poetry run python", "poetry -C sub run ipython", "uv run python",
    "uv run --with rich -p 3.12 python -q", "uv --directory sub run ipython", "find . | xargs vim",
    "ls | xargs -n 1 -I{} nano {}", "ls | xargs -0 git add -p", "ls *.log | xargs tail -f", "nohup python &",
    "nice -n 10 htop", "nice -5 vim a", "stdbuf -oL -e L python",
]  # fmt: skip

PASSING = [
    "", "   ", "echo vim", "which vim", "type python", "command -v vim", "grep -r 'less' .", "vim --version",
    "vim -es -c '%s/a/b/g' -c wq a.txt", "nvim --headless +qa", "emacs --batch -l x.el", "ed a.txt < script",
    "printf '1d\\nw\\n' | ed a.txt", "less --version", "less a.txt | cat", "git log | cat", "man -k x | cat",
    "man -P cat ls", "man ls | head", "top -b -n 1", "top -bn1 | head", "ps aux", "python -c 'print(1)'",
    "python -c 'import vim; vim.top()'", "python script.py", "python -m pytest", "python3 -V", "python --version",
    "python -u script.py", "python - <<EOF\nprint(1)\nEOF", "python3 <<'EOF'\nvim\ntop\nEOF",
    "cat <<EOF | python\nprint(1)\nEOF", "cat <<EOF > run.sh\nvim\npython\nEOF", "python <<< 'print(1)'",
    "python < script.py", "echo x | python", "echo x | python 2>&1 | tee y", "{ python; } < script.py",
    "(python) < script.py", "node -e '1'", "node script.js", "node -p 1", "irb < x.rb", "bash -c 'ls'",
    "bash script.sh", "bash -n script.sh", "curl -s https://example.com/install.sh | sh",
    "curl -s https://example.com/install.sh | sh -s -- -y", "psql -c 'select 1'", "psql -f x.sql shop",
    "psql -Atc 'select 1' shop", "psql shop < x.sql", "psql -l", "mysql -e 'select 1'",
    "mysql -uroot -psecret -e 'select 1'", "sqlite3 a.db 'select 1'", "sqlite3 a.db .tables", "sqlite3 a.db < x.sql",
    "redis-cli ping", "redis-cli -h localhost get x", "ssh host ls", "ssh -p 22 user@host 'cd x && ls'",
    "ssh -T git@github.com", "ssh -V", "ssh host < script.sh", "sftp -b batch host", "git rebase main",
    "git rebase --continue", "GIT_SEQUENCE_EDITOR='sed -i s/pick/squash/' git rebase -i HEAD~3",
    "export GIT_EDITOR=true; git rebase -i HEAD~3", "git -c sequence.editor=true rebase -i HEAD~3", "git commit -m x",
    "git commit -m 'fix the -p option'", "git commit -m -p", "git commit -am x", "git commit -amfix",
    "git commit --message=x", "git commit -F message", "git commit -C HEAD", "git commit --amend --no-edit",
    "git commit --fixup HEAD", "git -c core.editor=true commit", "GIT_EDITOR=true git commit", "git add -A",
    "git add -- -p", "git add .", "yes | git add -p", "git log -p", "git diff", "npm init -y", "npm install",
    "npm init vite my-app", "docker run ubuntu ls", "docker run --rm ubuntu ls", "docker run -d -it ubuntu",
    "docker exec box ls", "docker exec -i box cat < x", "docker ps", "docker compose up -d", "kubectl get pods",
    "kubectl exec pod -- ls", "kubectl exec pod -- tar -t", "sudo -n apt install x", "echo secret | sudo -S ls",
    "sudo --version", "echo x | read y", "read x < file", "read x <<< value",
    "while read line; do echo $line; done < file", "cat file | while read line; do echo $line; done", "read -t 1 x",
    "tmux ls", "tmux new -d -s x 'make'", "tmux send-keys -t x ls Enter", "screen -ls", "tail -n 5 log", "tail log",
    "tail -f log | head -n 1", "timeout 5 tail -f log", "tail -f log &", "journalctl -n 50", "gh auth status",
    "gh auth login --with-token < token", "gdb -batch -ex bt ./a.out core", "f() { vim; }", "echo 'unclosed",
    "if then fi (", "alias e=vim", "# vim", "ls # vim", "pip install ipython", "cargo watch --version", "man ls",
    "man 5 crontab", "git log", "git commit --amend", "git commit --amend -a", "git commit -c HEAD",
    "git commit --squash HEAD", "git commit --amend -e -m x", "git merge --continue", "git cherry-pick --continue",
    "crontab -l", "crontab file", "EDITOR='sed -i s/a/b/' crontab -e", "visudo -c", "visudo -cf x",
    "systemctl status nginx", "systemctl edit --stdin nginx < x", "python x.py -i", "python -m mod -i",
    "python -c 'x' -i", "python -W ignore x.py", "python -Wignore x.py", "python -Ximporttime x.py",
    "python -cimport\\ x", "python -i x.py < input", "python -m pdb -c continue -c quit x.py",
    "echo c | python -m pdb x.py", "python -m pdbpp_stubs", "ssh-keygen -t ed25519 -N '' -f key -q",
    "ssh-keygen -f key -N ''", "ssh-keygen -lf key.pub", "ssh-keygen -y -f key", "ssh-keygen -R host",
    "ssh-keygen -F host", "yes | ssh-keygen -t rsa", "docker login -u me -p secret",
    "echo secret | docker login -u me --password-stdin", "docker logout", "npm logout", "npm run login", "npm whoami",
    "gpg --batch --gen-key params", "gpg --list-keys", "gpg --quick-gen-key me", "poetry run python x.py",
    "poetry run pytest", "poetry install", "uv run x.py", "uv run -m pytest", "uv run --with ipython python -c 1",
    "uv pip install ipython", "find . | xargs grep x", "ls | xargs python", "ls | xargs -n1 bash",
    "echo host | xargs ssh", "cat names | xargs psql -c", "cat x | xargs", "nohup python x.py &", "nice make",
    "stdbuf -oL python x.py",
]  # fmt: skip


@table("command", REFUSED)
def test_what_wants_a_terminal_is_refused_with_what_to_do(command: str) -> None:
    found = wants_terminal(command)
    assert found is not None and found.why
    assert not found.why.endswith(".") and found.instead.endswith((".", ":"))


@table("command", PASSING)
def test_what_only_looks_so_passes(command: str) -> None:
    assert wants_terminal(command) is None


async def test_git_keeps_the_message_where_it_would_open_an_editor(tmp_path: Path) -> None:
    """Why `git commit --amend` is not refused."""
    made = "git init -q . && git -c user.name=n -c user.email=m commit -q --allow-empty -m kept"
    amended = "git -c user.name=n -c user.email=m commit -q --allow-empty --amend && git log --format=%s"
    assert wants_terminal(amended) is None
    commands = LocalCommands()
    with anyio.fail_after(60):
        process = await commands.run(Command(f"{made} && {amended}", tmp_path))
        try:
            assert ((await process.wait()).exit_code, process.stdout) == (0, "kept\n")
        finally:
            await process.close()
            await commands.close()


@pytest.mark.parametrize("command", ["tail -f log", "journalctl -f", "bash -c 'tail -f log'"])
def test_what_never_ends_may_run_in_the_background(command: str) -> None:
    assert wants_terminal(command) is not None and wants_terminal(command, background=True) is None


@pytest.mark.parametrize("command", ["vim", "python", "ssh host", "top"])
def test_the_background_is_no_terminal(command: str) -> None:
    assert wants_terminal(command, background=True) is not None


@pytest.mark.parametrize("command", [
    "\0", "\ud800", "x" * 100_000, "(" * 3_000, "bash -c " * 500 + "vim", "$(" * 50, "(" * 400 + "vim" + ")" * 400,
    "ls " + "$(echo " * 300 + ")" * 300,
])  # fmt: skip
def test_any_text_is_judged(command: str) -> None:
    wants_terminal(command)
