"""Which command lines run without asking, and what an answer for the others covers."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from acp_agent.safety.access import Allow, Ask
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.lines.examine import examine, judge
from acp_agent.safety.lines.git_folder import names_programs
from acp_agent.safety.lines.line import BACKGROUND, HIDDEN, TOO_LONG
from acp_agent.safety.lines.looks import HOSTILE_GIT
from acp_agent.safety.lines.quoting import without_quoted_text
from acp_agent.safety.lines.reach import CHANGES, EXPANDS, NOT_UNDERSTOOD, OUTSIDE, WRITES
from tests.files import put, puts
from tests.nightly import examples
from tests.repositories import git
from tests.tables import packed, table

EXACT = "this exact command in this project"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a link that leads out of it and files that look like options."""
    base = tmp_path_factory.mktemp("shell")
    put(base / "outside" / "secret.txt", "secret")
    root = base / "project"
    (root / "src" / "deep").mkdir(parents=True)
    for name in ("README.md", "a.txt", "b.txt", "src/app.py", "src/deep/x.py"):
        (root / name).write_text("text\n")
    (root / "out").symlink_to(base / "outside")
    (root / "secret-link").symlink_to(base / "outside" / "secret.txt")
    (root / "inner-link").symlink_to(root / "src")
    puts(root, {"trap/-delete": "", "trap/plain": ""})
    return root


LOOKS = packed("""
ls ¦ ls -la ¦ ls -lah src ¦ ls src/*.py ¦ ls src/[ad]* ¦ cat README.md ¦ cat "README.md" 'a.txt'
cat ./src/app.py src/deep/../app.py ¦ cat README.md | head -n 5 ¦ head -5 README.md ¦ tail -n 20 README.md
tail -n +2 README.md ¦ wc -l README.md a.txt ¦ pwd ¦ echo hello world ¦ echo 'it costs $5' ¦ echo "a;b && c | d > e"
printf '%s\\n' a b ¦ true && false || true ¦ cd src && ls ¦ cd src && cat ../README.md ¦ (cd src && ls); cat README.md
cd src; ls ¦ which python3 ¦ type ls ¦ command -v git ¦ file README.md ¦ stat README.md ¦ du -sh .
du -sh src | sort -h ¦ df -h ¦ uname -a ¦ whoami ¦ id ¦ date ¦ date +%Y-%m-%d ¦ date -u -Iseconds
date -d yesterday +%s ¦ date -ud yesterday ¦ date --date=yesterday +%F ¦ date -r README.md
basename /usr/lib/x.so .so ¦ dirname /usr/lib/x.so ¦ realpath README.md ¦ readlink -f README.md ¦ diff a.txt b.txt
diff -u a.txt b.txt ¦ diff -r --no-dereference src src ¦ cmp a.txt b.txt ¦ comm a.txt b.txt ¦ sort -u a.txt
sort -k2,2n -t, a.txt ¦ uniq -c a.txt ¦ uniq - ¦ sort a.txt | uniq -c | sort -rn | head ¦ cut -d: -f1 a.txt
cut -d/ -f2 a.txt ¦ cut -d ',' -f 1 a.txt ¦ tr a-z A-Z < a.txt ¦ tr / _ ¦ nl a.txt ¦ tac a.txt ¦ rev a.txt
column -t a.txt ¦ seq 1 10 ¦ expr 1 + 2 ¦ test -f README.md ¦ test -f README.md && echo yes
[ -f README.md ] && echo yes ¦ [ ! -d nowhere ] || echo yes ¦ [[ -f README.md ]] && echo yes ¦ [ 3 -gt 2 ]
[[ abc == abc ]] ¦ grep -rn "def main" src ¦ grep -rn '/api/users' src ¦ grep -E "foo|bar$" README.md
grep "a\\.b" README.md ¦ grep -A 3 -B2 text README.md ¦ grep -rn --include='*.py' text . ¦ grep -v ^# README.md
grep -rn x . ¦ grep -e x a.txt ¦ grep -n x a.txt -i ¦ grep -- -x a.txt ¦ rg -n foo src ¦ rg /api src -n
egrep 'a|b' a.txt ¦ fgrep a.b a.txt ¦ rg text ¦ rg -n "foo$" src ¦ rg -g '*.py' '/api' src ¦ rg --files
rg --pretty text ¦ find . ¦ find . -name '*.py' -not -path './node_modules/*' ¦ find src -type f -mtime -1 -print
find . -maxdepth 2 -size +1k ¦ fd py src ¦ tree -L 2 ¦ jq . a.txt ¦ jq -r '.name' a.txt ¦ sed -n '1,20p' README.md
sed -n 5p README.md ¦ sed -n '10,$p' README.md ¦ git status ¦ git status --short ¦ git --no-pager log --oneline -5
git log --format='%h %s' main..HEAD ¦ git log --oneline HEAD~3 ¦ git diff HEAD~1 -- a.txt
git branch --list --format='%(refname)' ¦ git diff ¦ git diff --stat HEAD~1 -- src ¦ git diff main...feature/x
git show HEAD:README.md ¦ git show HEAD@{1} ¦ git blame -L 1,5 README.md ¦ git branch ¦ git branch -a ¦ git branch -vv
git branch --show-current ¦ git branch --contains HEAD ¦ git branch --list 'feature/*' ¦ git tag ¦ git tag -l 'v*'
git remote -v ¦ git rev-parse HEAD ¦ git rev-parse --show-toplevel ¦ git ls-files src ¦ git ls-tree HEAD
git cat-file -p HEAD ¦ git describe --tags ¦ git shortlog -sn ¦ git stash list ¦ git stash show ¦ git reflog
git grep -n text ¦ git merge-base main HEAD ¦ git for-each-ref ¦ git count-objects -v ¦ python --version
python3 --version ¦ node --version ¦ gcc --version ¦ ps aux ¦ ps -ef ¦ uptime ¦ nproc ¦ free -h ¦ hostname
ls 2>/dev/null ¦ ls >/dev/null 2>&1 ¦ ls &>/dev/null ¦ ls 2>&1 | head ¦ cat < a.txt ¦ cat </dev/null
! grep -q x a.txt ¦ ls # a comment ¦ # only a remark before⏎ls ¦ { ls; pwd; } ¦ ls |& head ¦ ls; ¦ ls⏎pwd⏎
'ls' a.txt ¦ l's' a.txt ¦ cat inner-link/app.py ¦ echo a=b --flag=value ¦ echo '$(ls)' '`ls`' '${x}' '<(x)'
grep -n 'a=$(x)' README.md ¦ echo "it's" '$(ls)' ¦ echo "costs \\$5" ¦ ls My\\ Folder ¦ ls My\\ Folder/*
find . \\( -name a -o -name \\*.py \\) ¦ find . \\! -name a ¦ grep -rn foo\\.bar .
grep "a\\"b" a.txt ¦ echo "x\\\\y" 5\\>3
""")


@table("line", LOOKS)
def test_looking_runs_without_asking(line: str, project: Path) -> None:
    assert isinstance(judge(line.replace("⏎", "\n"), Roots(project), project), Allow)


SCOPED = [
    ("cargo test", ["cargo test"]), ("cargo test --workspace -p core 2>&1 | tail -20", ["cargo test"]),
    ("cd src && cargo build --release", ["cargo build"]),
    ("cargo test && git push origin main", ["cargo test", "git push"]), ("cargo test; cargo test", ["cargo test"]),
    ("npm install", ["npm install"]), ("npm run build", ["npm run build"]),
    ("npm run build && npm test", ["npm run build", "npm test"]), ("pnpm run lint", ["pnpm run lint"]),
    ("yarn build", ["yarn build"]), ("yarn run build", ["yarn run build"]),
    ("uv run pytest -x tests", ["uv run pytest"]), ("uv run python -m pytest -q", ["uv run python -m pytest"]),
    ("uv sync", ["uv sync"]), ("uv pip list", ["uv pip list"]), ("uv pip install -e .", ["uv pip install"]),
    ("python -m build --wheel", ["python -m build"]), ("python -m pylint -j 4 src", ["python -m pylint"]),
    ("uv run git push", ["uv run git push"]), ("poetry run mypy", ["poetry run mypy"]),
    ("poetry install", ["poetry install"]), ("go test ./...", ["go test"]),
    ("go build -o bin/app ./cmd/app", ["go build"]), ("make", ["make"]), ("make test", ["make test"]),
    ("make -j4 test lint", ["make test", "make lint"]), ("make -j 4 test", ["make test"]),
    ("just build", ["just build"]), ("pytest", ["pytest"]), ("pytest -x -q tests/test_a.py::test_b", ["pytest"]),
    ("pytest -k 'a and not b' --tb=short", ["pytest"]), ("python -m pytest -x", ["python -m pytest"]),
    ("python3 -m mypy src", ["python3 -m mypy"]), ("python -m unittest discover", ["python -m unittest"]),
    ("python -m mypy --strict src", ["python -m mypy"]), ("python -m pip install -e .", ["python -m pip install"]),
    ("ruff check --fix .", ["ruff"]), ("mypy --strict src", ["mypy"]), ("tsc --noEmit", ["tsc"]),
    ("eslint --fix src", ["eslint"]), ("prettier --check .", ["prettier"]), ("git add -A", ["git add"]),
    ("git commit -m 'a message; with $5'", ["git commit"]), ("git push -u origin feature/x", ["git push"]),
    ("git stash", ["git stash"]), ("git checkout -b new", ["git checkout"]), ("git branch new-branch", ["git branch"]),
    ("git branch --format --list new", ["git branch"]), ("git branch --sort --list new", ["git branch"]),
    ("git tag v1", ["git tag"]), ("pip install requests", ["pip install"]), ("docker build -t x .", ["docker build"]),
    ("kubectl get pods -n prod", ["kubectl get"]), ("gh pr list", ["gh pr list"]),
    ("mvn clean install", ["mvn clean", "mvn install"]), ("gradle test", ["gradle test"]),
    ("dotnet test", ["dotnet test"]), ("terraform plan", ["terraform plan"]), ("mkdir -p src/new", ["mkdir"]),
    ("touch src/new.py", ["touch"]), ("ls && make test > /dev/null", ["make test"]),
]  # fmt: skip


@table(("line", "scopes"), SCOPED)
def test_known_work_asks_with_a_scope(line: str, scopes: list[str], project: Path) -> None:
    verdict = judge(line, Roots(project), project)
    names = " and ".join(f"`{scope}`" for scope in scopes)
    assert replace(verdict, rule="", notes=()) == Ask(
        CHANGES, tuple(f"bash {s}" for s in scopes), f"{names} commands in this project"
    )


EXACTLY = [
    # programs and arguments that can do anything
    *[(line, CHANGES) for line in packed("""
rm -rf build ¦ mv a.txt b.txt ¦ cp a.txt b.txt ¦ dd if=a.txt of=b.txt ¦ chmod +x a.txt ¦ kill 1 ¦ curl example.com
wget example.com ¦ bash -c ls ¦ sh script.sh ¦ bash script.sh ¦ python script.py ¦ python -c 'print(1)' ¦ python3
python -m http.server ¦ python -m timeit x ¦ python -m coverage run x ¦ python -X dev -m pytest ¦ node -e 'x'
perl -e 1 ¦ ruby x.rb ¦ sudo ls ¦ xargs rm ¦ ls | xargs rm ¦ nohup ls ¦ timeout 5 ls ¦ ssh host ls ¦ eval ls ¦ exec ls
source a.txt ¦ . a.txt ¦ env ¦ env ls ¦ printenv ¦ set ¦ time ls ¦ coproc ls ¦ alias ls=rm ¦ trap ls EXIT ¦ tput clear
hostname evil ¦ awk '{print}' a.txt ¦ sed s/a/b/ a.txt ¦ sed -i s/a/b/ a.txt ¦ sed -n '1w x' a.txt
sed -n '1e ls' a.txt ¦ sed -n 1p -i a.txt ¦ tail -f a.txt ¦ tail -F a.txt ¦ tail --follow a.txt ¦ tail --fol a.txt
sort -o a.txt b.txt ¦ sort -uo a.txt b.txt ¦ sort --output=a.txt b.txt ¦ sort --out=a.txt b.txt
sort --compress-program=x a.txt ¦ uniq a.txt b.txt ¦ uniq *.txt ¦ uniq - a.txt ¦ uniq -c - a.txt ¦ uniq a.txt -
date -d -d 01011230 ¦ date -d now -r a.txt 01011230 ¦ date -u -- 01011230 ¦ date --date -u 01011230 x ¦ date -ds -s x
date -us x ¦ sort --random-source -- -o a.txt b.txt ¦ diff -r -x --no-dereference src src
diff -r src src -- --no-dereference ¦ rg -e -- --pre cat x ¦ rg -g -- -z x ¦ fd -E -- -x rm ¦ file -Z a.txt
git grep -e -- -Oevil x ¦ git grep -e -- --open-files-in-pager=evil x ¦ git log --alternate-refs
git rev-list --alternate-refs ¦ git diff --submodule=diff ¦ git ls-files --recurse-submodules
git for-each-ref --format='%(signature)' ¦ git push --repo=ext::sh ¦ python -m mypackage.tool --flag
python -m dotenv run -- sh ¦ python -m pylint --init-hook=x src ¦ python -m pip config set x y ¦ uv pip
uv pip install -i x y ¦ uv pip config ¦ date -s tomorrow ¦ date --set=tomorrow ¦ date 010100002030 ¦ tree -o x
echo x | uniq - out.txt ¦ date -r -r 01011230 ¦ git rev-list --alternate ¦ python -m dotenv run -- sh -c x
file -C -m x ¦ find . -delete ¦ find . -exec rm x + ¦ find . -name x -execdir rm x + ¦ find . -fprint x
find . -fprintf x y ¦ find . -fls x ¦ find -L . ¦ fd -x rm ¦ fd --exec rm ¦ fd -H -x rm ¦ rg --pre cat x
rg --pre=cat x ¦ rg --pre-glob x y ¦ rg --hostname-bin x y ¦ rg -z x ¦ rg --search-zip x ¦ rg -L x ¦ rg --follow x
grep -R x . ¦ grep --dereference-recursive x ¦ diff -r src src ¦ ls -L ¦ jq 'env' a.txt ¦ jq '$ENV.PATH' a.txt
jq -f a.txt b.txt ¦ jq 'import "x" as x; .' a.txt ¦ printf -v x y ¦ test -v x ¦ [ -v x ] ¦ [[ x -eq 1 ]] ¦ ps e
ps auxe ¦ ps auxeww ¦ column --help > /dev/null | tee x ¦ git -c core.pager=x log ¦ git -C src log
git --git-dir=x log ¦ git --work-tree=x status ¦ git --exec-path=x status ¦ git -p log ¦ git --config-env=a=b log
git log --output=x ¦ git log --outp=x ¦ git diff --ext-diff ¦ git diff --output x ¦ git show --textconv
git grep -O x ¦ git grep --open-files-in-pager=x y ¦ git log --format=%G? ¦ git config --get user.name
git config core.fsmonitor x ¦ git branch --edit-description > /dev/null | tee x ¦ git submodule foreach ls
git rebase --exec ls main ¦ git rebase -x ls main ¦ git bisect run ls ¦ git difftool -x ls ¦ git filter-branch x
git unknown-alias ¦ git push origin --receive-pack=x ¦ git push --exec=x origin ¦ git fetch ./evil ¦ git push ./a
git fetch ext::sh ¦ git push git@example.com:x main ¦ git clone x y ¦ git switch -c x ¦ git reflog expire --all
git remote show origin ¦ git remote add x y ¦ cargo --config x test ¦ cargo test --config x ¦ cargo +nightly test
cargo run --config=x ¦ cargo clippy -- -Clinker=x ¦ cargo install x ¦ cargo watch -x test ¦ cargo rustc
cargo -C src test ¦ npm --prefix x test ¦ npm test --script-shell=x ¦ npm exec x ¦ npx x ¦ npm init evil ¦ pnpm dlx x
yarn dlx x ¦ yarn node x ¦ go run x.go ¦ go generate ¦ go test -exec x ¦ go build -toolexec x ¦ go -C src build
go tool x ¦ go build -ldflags x ¦ make -f a.txt ¦ make -C src ¦ make SHELL=x test ¦ make --file=a.txt ¦ make --eval=x
make -sf a.txt test ¦ just --shell x build ¦ just x=y build ¦ pytest -p x ¦ pytest -c a.txt ¦ pytest --rootdir=src
pytest -o x=y ¦ pytest --override-ini=x ¦ tox -x x=y ¦ mvn -Dx=y test ¦ gradle -I a.txt test ¦ jest --config x
eslint -c x src ¦ eslint --plugin x src ¦ pip install --index-url=x y ¦ pip install -i x y ¦ pip install -t src x
pip install git+https://example.com/x ¦ docker run x ¦ docker exec x y ¦ docker -H x ps ¦ docker compose up
kubectl exec x ¦ kubectl --kubeconfig x get pods ¦ uv run bash ¦ uv run python script.py ¦ uv run --with x pytest
uv tool run x ¦ uvx x ¦ poetry run ./x ¦ poetry -C src install ¦ gh api x ¦ gh alias set x y ¦ gh pr
terraform -chdir=src plan ¦ dotnet a.dll ¦ systemctl -H x status ¦ mkdir -m 777 x ¦ command ls ¦ command rm
builtin cd ¦ hash ¦ ./script.sh ¦ /bin/ls ¦ src/tool ¦ bin/cargo test ¦ node_modules/.bin/jest ¦ unknown-program
a.txt ¦ ls | tee x ¦ ls && rm x ¦ ls || rm x ¦ ls; rm x ¦ (rm x) ¦ { rm x; } ¦ ! rm x ¦ cargo test; rm -rf x
cargo test && rm -rf x ¦ cargo test | sh ¦ cargo test⏎rm -rf x ¦ ls⏎rm x ¦ [ -f a.txt ] && rm a.txt ¦ done ¦ ]
""")],
    # values known only when it runs
    *[(line, EXPANDS) for line in packed("""
echo $HOME ¦ echo "$HOME" ¦ echo ${HOME} ¦ echo "${HOME}" ¦ echo $(ls) ¦ echo "$(rm x)" ¦ echo `ls` ¦ echo "`rm x`"
cat <(ls) ¦ cat <<<x ¦ cat <<EOF⏎x⏎EOF ¦ echo $((1+1)) ¦ echo $[1+1] ¦ A=1 ¦ A=1 ls ¦ PATH=. ls ¦ LD_PRELOAD=x ls
echo {a,b} ¦ cat {/etc/passwd,x} ¦ cat {a..c}.txt ¦ cargo test $(rm x) ¦ cargo test $X ¦ cargo test `rm x`
""")],
    # outside of the folders
    *[(line, OUTSIDE) for line in packed("""
cat /etc/passwd ¦ cat ../outside/secret.txt ¦ cat src/../../outside/secret.txt ¦ ls .. ¦ ls / ¦ ls ~ ¦ ls ~root
cat ~/.ssh/id_rsa ¦ cat out/secret.txt ¦ cat secret-link ¦ cat *-link ¦ cat out/* ¦ ls -la out ¦ cat < /etc/passwd
cat < secret-link ¦ cd ¦ cd .. ¦ cd / && ls ¦ cd ../outside && cat secret.txt ¦ cd out && cat secret.txt
cd src; cat ../README.md ¦ cd src && cd ../.. && ls ¦ cd src || cat ../README.md ¦ grep -r x /etc
grep x ../outside/secret.txt ¦ grep --file=/etc/passwd x ¦ grep -f/etc/passwd x ¦ grep -e x /etc/passwd
grep /etc/passwd -e root ¦ grep /etc/passwd -ne root ¦ grep -n /etc/passwd --regexp=root ¦ grep /etc/passwd --reg root
grep /etc/passwd --fil a.txt ¦ grep /etc/passwd -fa.txt ¦ grep -A 1 /etc/passwd -e root ¦ grep -fsecret-link .
git grep -nfsecret-link ¦ rg /etc/passwd -e root ¦ rg /etc/passwd --regexp root ¦ rg /etc/passwd -nf a.txt
grep -h /etc/passwd -e '^root' ¦ grep /etc/passwd -f patterns ¦ rg /etc/passwd -A3 -e x
rg /etc --files ¦ rg /etc --type-list ¦ date -r /etc/passwd ¦ date -r/etc/passwd ¦ date --reference=/etc/passwd
rg x /etc ¦ rg -g '*.py' x /etc ¦ rg -gx pattern /etc/passwd ¦ find / -name x ¦ find .. -name x
head -n 1 /etc/passwd ¦ diff a.txt /etc/passwd ¦ sort /etc/passwd ¦ wc -l ../x ¦ sed -n 1p /etc/passwd
jq . /etc/passwd ¦ jq --slurpfile x /etc/passwd . ¦ git diff --no-index a.txt /etc/passwd ¦ git log -- ../outside
test -f /etc/passwd ¦ [ -f /etc/passwd ] ¦ [[ a.txt -nt /etc/passwd ]] ¦ echo /etc/* ¦ echo ../* ¦ ls .* ¦ ls */../..
stat /etc/passwd ¦ realpath .. ¦ tree / ¦ du -sh / ¦ file --x=/etc/passwd ¦ ls --ignore=~/x ¦ echo a=~/x
""")],
    # syntax and characters
    *[(line, NOT_UNDERSTOOD) for line in packed("""
ls 'unclosed ¦ ls "unclosed ¦ ls ( ¦ ls ) ¦ && ls ¦ | ls ¦ ls || ¦ if true; then ls; fi ¦ for x in *; do ls; done
while true; do ls; done ¦ case x in x) ls;; esac ¦ f() { ls; } ¦ function f { ls; } ¦ l\\s ¦ \\ls
ls a\\⏎b ¦ ls \\a ¦ ls src/[\\]a]* ¦ ls \\**
echo $'x' ¦ echo $"x" ¦ cd - ¦ cd src README.md ¦ cd -P src ¦ cd trap && cat * ¦ cd trap && find * ¦ ls */*/*/*
[[ a =~ b ]] ¦ ls <> x ¦ export A ¦ unset A ¦ [[ a < b ]]
[x/run ] ¦ ["./x"/run ] ¦ [a] ¦ ! [x/run ] ¦ [ a] ¦ [-f a.txt] ¦ [[\\>/run ]] ¦ [\\>a] && ls
""")],
    *[(line, WRITES) for line in packed("""
ls > x ¦ ls >> x ¦ ls >| x ¦ ls &> x ¦ ls >& x ¦ ls 2> x ¦ ls 2>x >/dev/null ¦ ls > /etc/passwd
cargo test > /etc/passwd ¦ cargo test >x ¦ echo x >/dev/sda ¦ ls > /dev/null > x ¦ echo x > /dev/nullx
""")],
    *[(line, BACKGROUND) for line in ["ls &", "sleep 100 &", "ls & pwd", "(ls &)", "cargo test & rm x"]],
]  # fmt: skip


@table(("line", "reason"), EXACTLY)
def test_everything_else_asks_for_the_exact_line(line: str, reason: str, project: Path) -> None:
    line = line.replace("⏎", "\n")
    verdict = judge(line, Roots(project), project)
    assert isinstance(verdict, Ask)
    assert (verdict.scopes, verdict.scope_words) == ((f"bash = {line}",), EXACT)
    if reason == NOT_UNDERSTOOD:
        assert verdict.reason in (NOT_UNDERSTOOD, CHANGES, EXPANDS, BACKGROUND)
    elif reason == OUTSIDE:
        assert verdict.reason in (OUTSIDE, CHANGES)
    else:
        assert verdict.reason == reason


@pytest.mark.parametrize("text", [
    "", " ", "\n", "ls\x00", "ls\x1b[2J", "ls\r", "ls\u202e", "ls\u200b x", "ls\xa0-la", "\ud800", "ls \u2028rm",
])  # fmt: skip
def test_characters_nobody_sees_ask(text: str, project: Path) -> None:
    verdict = judge(text, Roots(project), project)
    assert isinstance(verdict, Ask)
    assert verdict.reason in (HIDDEN, NOT_UNDERSTOOD)


def test_a_very_long_line_asks(project: Path) -> None:
    verdict = judge("ls " + "a" * 10_000, Roots(project), project)
    assert isinstance(verdict, Ask)
    assert verdict.reason == TOO_LONG


@pytest.mark.parametrize("text", ["(" * 4000 + "ls" + ")" * 4000, "! " * 4000 + "ls", "ls && " * 1500 + "ls"])
def test_deep_nesting_asks_and_breaks_nothing(text: str, project: Path) -> None:
    assert isinstance(judge(text, Roots(project), project), Ask)


def test_in_a_folder_outside_everything_asks_and_an_exact_answer_belongs_to_its_folder(project: Path) -> None:
    verdict = judge("ls", Roots(project), project.parent)
    assert replace(verdict, rule="", notes=()) == Ask(OUTSIDE, (f"bash = [in {project.parent}] ls",), EXACT)
    verdict = judge("rm -rf build", Roots(project), project / "src")
    assert isinstance(verdict, Ask) and verdict.scopes == (f"bash = [in {project / 'src'}] rm -rf build",)
    gone = project / "gone"
    assert isinstance(judge("ls", Roots(gone), gone), Allow | Ask), "a missing folder breaks nothing"


def test_more_folders_may_be_looked_at(project: Path) -> None:
    outside = project.parent / "outside"
    assert isinstance(judge(f"cat {outside}/secret.txt", Roots(project, [outside]), project), Allow)
    assert isinstance(judge("cat out/secret.txt", Roots(project, [outside]), project), Allow)


# --- git's own configuration -----------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (root := tmp_path / "repo").mkdir()
    git(root, "init", "-q")
    return root


def judged(root: Path, cwd: Path | None = None) -> object:
    verdict = judge("git status", Roots(root), cwd or root)
    return verdict.reason if isinstance(verdict, Ask) else verdict


@pytest.mark.parametrize("text", [
    "[core]\n\tfsmonitor = ./evil.sh\n", "[core] fsmonitor = ./evil.sh\n", "[core]\n\tfsmon\\\nitor = ./evil.sh\n",
    '[diff "x"]\n\ttextconv = ./evil.sh\n', "[diff]\n\texternal = ./evil.sh\n", '[filter "x"]\n\tclean = ./evil.sh\n',
    '[filter "x"]\nPROCESS = ./evil.sh\n', "[include]\n\tpath = ../evil\n",
    '[includeIf "gitdir:/"]\n\tpath = ../evil\n', "[gpg]\n\tprogram = ./evil.sh\n", "[core]\n\tworktree = /\n",
    "[core]\n\thooksPath = evil\n", "[core]\n\tsshCommand = ./evil.sh\n",
    "[core]\n\talternateRefsCommand = ./evil.sh\n", "[a][core] fsmonitor = ./evil.sh\n",
    "[a]b = c ; d\n[core]fsmonitor=./evil.sh", '[a]\n\tb = "x\n[core]\n\tfsmonitor = false"\n',
    "[core]\n\tfsmonitor = ./evil\\\n.sh\n", "[core]\r\n\tfsmonitor = ./evil.sh\r\n",
    '[diff "a]b"]\n\ttextconv = ./evil.sh\n', '[diff "a\\"]b"]\n\ttextconv = ./evil.sh\n',
    "[diff.x]\n\ttextconv = ./evil.sh\n", "[extensions]\n\tpartialClone = x\n", '[remote "x"]\n\tpromisor = true\n',
    '[remote "x"]\n\turl = ext::sh -c evil\n', '[remote "x"]\n\turl = e"xt":\\\n:sh\n',
    '[remote "x"]\n\tuploadpack = ./evil.sh\n', '[protocol "ext"]\n\tallow = always\n',
    '[submodule "x"]\n\tupdate = !./evil.sh\n', "[credential]\n\thelper = ./evil.sh\n",
    "[alias]\n\twhatchanged = !./evil.sh\n", "[unknown]\n\tkey = x\n", "[core\n", "nonsense\n",
    "[user]\n\tname = \x00\n", '[a][core] fsmonitor = "touch x"\n', '[diff "a]b"] textconv = evil\n',
])  # fmt: skip
def test_git_asks_where_the_repository_names_programs(text: str, repository: Path) -> None:
    with (repository / ".git" / "config").open("a") as file:
        file.write(text)
    assert judged(repository) == HOSTILE_GIT


@pytest.mark.parametrize(("worktree", "names"), [
    ("../../../sub", False), ("../../../a/b", False), ("../../../../sub", True), ("../../hooks", True), ("/etc", True),
    ("../../..", True),
])  # fmt: skip
def test_a_submodule_says_where_its_files_are(tmp_path: Path, worktree: str, names: bool) -> None:
    """As `git submodule add` writes it; the folder is that of the submodule's repository."""
    own = tmp_path / ".git/modules/sub"
    for name in ("objects", "refs"):
        (own / name).mkdir(parents=True)
    puts(own, {"HEAD": "ref: refs/heads/main\n", "config": f"[core]\n\tbare = false\n\tworktree = {worktree}\n"})
    assert names_programs(own, ()) is names


@pytest.mark.parametrize("text", [
    "[core]\n\tfsmonitor = false\n",
    '[remote "origin"]\n\turl = git@example.com:a/b.git ; ours\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n',
    '[branch "a/b.c]"]\n\tremote = origin\n\tmerge = refs/heads/a # x\n',
    '[user]\n\tname = "A # \\"B\\""\n\temail = \\\n  x@example.com\n', "[color]\n\tui\n[pull]\r\n\trebase = true\r\n",
    "",
])  # fmt: skip
def test_git_does_not_ask_for_harmless_configuration(text: str, repository: Path) -> None:
    with (repository / ".git" / "config").open("a") as file:
        file.write(text)
    assert isinstance(judged(repository), Allow)


@pytest.mark.parametrize(("plant", "folder"), [
    (lambda root: git(root, "init", "-q", "--bare", "docs/bare"), "docs/bare"),
    (lambda root: put(root / ".git/hooks/post-index-change", "#!/bin/sh\n"), "."),
    (lambda root: (root / "src/.git").mkdir(parents=True), "src"),
    (lambda root: git(root, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub"), "."),
], ids=["a bare one", "a hook that runs on looking", "elsewhere, since here is none", "a submodule"])  # fmt: skip
def test_git_asks_where_it_would_run_what_it_found(plant, folder: str, repository: Path) -> None:
    plant(repository)
    assert judged(repository, repository / folder) == HOSTILE_GIT
    verdict = judge(f"cd {folder} && git status", Roots(repository), repository)
    assert isinstance(verdict, Ask) and verdict.reason == HOSTILE_GIT


def test_git_asks_where_the_folder_shares_another_configuration(repository: Path) -> None:
    evil = repository / "evil"
    (repository / ".git" / "commondir").write_text("../evil\n")
    (evil / "objects").mkdir(parents=True)
    (evil / "refs").mkdir()
    assert isinstance(judged(repository), Allow)
    (evil / "config").write_text("[core]\n\tfsmonitor = ./evil.sh\n")
    assert judged(repository) == HOSTILE_GIT


def test_git_asks_in_a_bare_repository_whose_head_is_a_dangling_link(repository: Path) -> None:
    bare = repository / "bare"
    (bare / "objects").mkdir(parents=True)
    (bare / "refs").mkdir()
    (bare / "HEAD").symlink_to("refs/heads/main")
    assert judged(repository, bare) == HOSTILE_GIT


def test_git_looks_in_a_linked_worktree(repository: Path, tmp_path: Path) -> None:
    git(repository, "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "worktree", "add", "-q", str(linked := tmp_path / "linked"))
    assert isinstance(judged(linked), Allow)
    with (repository / ".git" / "config").open("a") as file:
        file.write("[core]\n\tfsmonitor = ./evil.sh\n")
    assert judged(linked) == HOSTILE_GIT


# --- fuzz --------------------------------------------------------------------------------------------------------

PIECES = st.sampled_from([
    "ls", "cat", "a.txt", "README.md", "rm", "-rf", " ", " ", " ", "\t", "\n", ";", "&&", "||", "|", "&", "(", ")", "{",
    "}", "[", "]", "[[", "]]", "'", '"', "`", "$", "$(", "${", "x", "=", ">", ">>", "<", "<<", "2>&1", ">&2",
    "/dev/null", "/etc/passwd", "..", "~", "*", "?", "\\", "#", "!", "git", "log", "status", "cargo", "test", "find",
    "-exec", "-delete", "echo", "cd", "src", "out", "if", "then", "fi", "for", "in", "do", "done", "time", "\0", "é",
    "--output=x", "-o", "sed", "-n", "1p", "EOF", "<(", ":", ",", "@", "%", "^", "+", "-", "--", "case", "esac",
])  # fmt: skip
LINES = st.lists(PIECES, max_size=14).map("".join)
DANGER = st.sampled_from(
    [" $(rm x)", " `rm x`", " > x", "; rm x", " && rm x", " | sh", "\nrm x", " & rm x", " <(rm x)"]
)
FUZZ = settings(max_examples=examples(240), suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(line=LINES | st.text(max_size=40))
def test_no_text_breaks_the_judgement(line: str, project: Path) -> None:
    verdict = judge(line, Roots(project), project)
    assert isinstance(verdict, Allow | Ask)
    if isinstance(verdict, Ask):
        assert verdict.reason and verdict.scopes
        assert all(scope.startswith("bash ") for scope in verdict.scopes)


@FUZZ
@given(line=LINES)
def test_what_is_allowed_is_valid_bash(line: str, project: Path) -> None:
    if isinstance(judge(line, Roots(project), project), Allow):
        checked = subprocess.run(["bash", "-n", "-c", line], capture_output=True, timeout=30)
        assert checked.returncode == 0, checked.stderr


@FUZZ
@given(before=LINES, danger=DANGER, after=LINES)
def test_danger_after_anything_is_never_allowed_unless_quoted(before: str, danger: str, after: str, project) -> None:
    line = before + danger + after
    if isinstance(judge(line, Roots(project), project), Allow):
        # Quoted it is text, and after a `#` a remark; bash must see it so, too.
        assert "'" in line or '"' in line or "#" in line
        # That bash runs nothing of it, `test_shell_fuzz` tries out.
        assert "'" in line or not ("$(" in line or "`" in line)


@FUZZ
@given(base=st.sampled_from([line for line, _ in SCOPED]), danger=DANGER)
def test_a_remembered_scope_never_covers_more_commands(base: str, danger: str, project: Path) -> None:
    verdict = judge(base + danger, Roots(project), project)
    assert isinstance(verdict, Ask)
    assert verdict.scopes == (f"bash = {base + danger}",)


# --- what bash makes of it ---------------------------------------------------------------------------------------

LOOKERS = "ls cat head tail wc git find grep sed sort uniq cut tr rg jq file stat date id tree diff".split()
TOUCHERS = "rm mv cp sh tee touch cargo make python python3 xargs env sudo x src out outx lsx catx rmx".split()
STUB = """\
#!{bash}
IFS=$'\\037'  # all of it by one write: the programs of a pipe run at once
set -- "${{0##*/}}" "$@"
printf '%s\\037\\036' "$*" >> "{log}"
"""
GLUE = st.sampled_from(
    [" ", ";", "&&", "||", "|", "\n", "'", '"', "(", ")", "{", "}", "#", " #", "&", ">", "<", "!", "\\", "$", "`"]
)
FRAGMENTS = st.sampled_from(
    [
        "ls", "cat a.txt", "rm x", "git log", "find . -delete", "echo 'a", 'echo "a', "a'", 'a"', "cd src", "sort -o x",
        "*",
    ]
    + ["grep 'rm x' a.txt", "head -n 1", "x", "sed -n 1p", "> x", "2>&1", "[ -f a.txt ]", "[[ -f a.txt", "]]", "<a.txt"]
)  # fmt: skip


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder of programs that do nothing but write down how they were called, and where they do."""
    folder = tmp_path_factory.mktemp("stubs")
    log = folder / "log"
    for name in (*LOOKERS, *TOUCHERS):
        (folder / name).write_text(STUB.format(bash=shutil.which("bash"), log=log))
        (folder / name).chmod(0o755)
    return folder, log


@FUZZ
@given(parts=st.lists(st.tuples(FRAGMENTS, GLUE), max_size=6))
def test_what_is_allowed_runs_nothing_but_programs_that_look(parts, project: Path, stubs: tuple[Path, Path]) -> None:
    line = "".join(fragment + glue for fragment, glue in parts)
    if judge(line, Roots(project), project) != Allow():
        return
    folder, log = stubs
    log.write_text("")
    before = sorted(project.rglob("*"))
    subprocess.run(
        [shutil.which("bash") or "bash", "-c", line], cwd=project, env={"PATH": str(folder)}, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=30,
    )  # fmt: skip
    assert sorted(project.rglob("*")) == before
    for call in log.read_text().split("\036")[:-1]:
        program, *arguments = call.split("\037")[:-1]
        assert program in LOOKERS, line
        assert program != "find" or "-delete" not in arguments, line
        assert program != "sort" or "-o" not in arguments, line


def test_a_git_configuration_with_a_byte_order_mark_asks(repository: Path) -> None:
    config = repository / ".git" / "config"
    config.write_bytes(b"\xef\xbb\xbf[core] fsmonitor=evil\n" + config.read_bytes())
    assert judged(repository) == HOSTILE_GIT


# --- quoted here-documents ---------------------------------------------------------------------------------------


BODY = "run $(rm -rf ~) and `sudo id`\n"


def allowed(line: str, folder: Path) -> bool:
    return isinstance(examine(line, Roots(folder, []), folder).verdict, Allow)


@pytest.mark.parametrize("line", ["cat <<'EOF'\n{}EOF", "cat <<'E' | sort -u | head -n 5\n{}E\n", "wc -l <<'E'\nE\n"])
def test_text_that_is_only_read_does_not_ask(tmp_path: Path, line: str) -> None:
    assert allowed(line.format(BODY), tmp_path)
    assert not allowed(line.format(BODY).replace("'", ""), tmp_path) or "{}" not in line, (
        "bash expands what is not quoted"
    )


@pytest.mark.parametrize("line", [
    "bash <<'E'\nls\nE", "cat <<'E' | sh\nls\nE", "xargs cat <<'E'\n/etc/passwd\nE", "cat <<'E'\nx\nE\nrm -rf .",
    "cat <<'E'; rm x\nx\nE", "cat <<'E' > file\nx\nE", "cat /etc/shadow <<'E'\nx\nE", "cat <<'E' <<F\nx\nE\n$(id)\nF",
    "sort --files0-from=- <<'E'\n/etc/passwd\nE", "cat <<'E' &\nx\nE",
])  # fmt: skip
def test_a_line_that_does_more_with_it_asks(tmp_path: Path, line: str) -> None:
    assert not allowed(line, tmp_path)


@settings(max_examples=examples(40))
@given(st.text(st.sampled_from("$()`'\"\\ E\n<#{}~*x;|&"), max_size=60))
def test_what_counts_as_quoted_text_is_taken_as_it_is_by_bash(body: str) -> None:
    line = f"cat <<'E'\n{body}\nE"
    if without_quoted_text(line) is None:
        return
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=10, cwd="/", check=False)
    assert done.stdout == f"{body}\n" and not done.stderr
