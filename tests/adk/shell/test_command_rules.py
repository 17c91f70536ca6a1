"""Rules for commands: each simple command of a line counts, however it is written; what cannot be known is asked."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import preloaded
from adk_skills_agent import Permissions, SkillToolset
from adk_skills_agent.adk.shell import command_rules
from adk_skills_agent.adk.shell.command_approval import _asked_for
from adk_skills_agent.adk.shell.command_line import read_line
from adk_skills_agent.adk.shell.command_rules import decide_command
from adk_skills_agent.errors import ConfigError
from own_process import unhindered

RULES = {"git push *": "ask", "rm -rf *": "deny", "ls*": "allow", "curl *": "ask", "git *": "allow", "shutdown": "deny"}
RULES["kubectl delete *"] = "ask"

ALLOWED = r"""
ls
ls -la | grep x
git status && git log --oneline
git pull; git commit -m 'git push later'
echo "git push"
echo git push # git push
python3 scripts/x.py a.csv | jq .total
cat a.txt > b.txt 2>&1
for f in a b; do cat "$f"; done
if test -f x; then cat x; else touch x; fi
X=1 Y=2 python3 x.py
(cd sub && ls -l)
mkdir -p a/b && cp x a/b/
rm file.txt
rm -r folder
wc -l < data.csv
cat <<'EOF'⏎$(git push)⏎EOF
cat <<EOF⏎hello⏎EOF
cat <<EOF⏎a \$(git push) \`x\`⏎EOF
cat <<'EOF'⏎a `git push`⏎EOF
cat <<\EOF⏎	$(git push)⏎EOF
timeout 5 python3 x.py
env -i A=1 python3 x.py
bash -c 'ls⏎git status'
bash -c 'echo $(ls); [[ $n -gt 3 ]]'
bash ../scripts/build.sh
source venv/bin/activate
. ./env.sh
uv run pytest -q
uv run -m pytest
uv sync
git --no-pager log push
git --weird status
git -p stash push
git switch -c feature/x
git -c color.ui=never -c user.name='A B' log -x
git rebase main && git bisect start
git grep -n -e '--x' src
git commit -m 'Use `x`'; echo $((1 + 2))
cat <<EOF⏎$(ls)⏎EOF⏎(( n + 1 ))
printf '%s `x`\n' a
[ -f x ] && echo 'Use `x`'
while read -r line; do echo 'a `b`'; done
mapfile -t lines < x
history
echo x | parallel wc -l {}
xargs -I{} cp {} x
timeout 5 ls -l
echo 'a⏎git push'
xargs -n 1 wc -l
find . -name '*.py'
command -v git
bash scripts/build.sh
bash -c 'ls -l'
git \⏎  status
trap - EXIT
[ -f x ] && [[ -n "$X" ]]
echo $((1 + 2))
sort a.txt | uniq -c | sort -rn | head -5
i=0; while [ "$i" -lt 3 ]; do echo "$i"; i=$((i + 1)); done
for i in {1..10}; do echo $((i * 2)); done
for f in *.csv; do n=$((n + 1)); echo "$f"; done
n=$(wc -l < data.csv); echo $((n * 2))
n=$(ls | wc -l); [[ $n -gt 3 ]] && echo many
n=$(cat data.csv); [ "$n" = x ] && echo yes
x=$(date); [ -z "$x" ] || echo "$x"
f() { echo "$1"; }; f a; echo $((1 + 2))
awk '{print $1}' a.csv; i=1; echo $((i + 1))
echo {1..3} ${x:-'a b'} `ls -l`
sort -k2 a | split -l 5
jobs -l
ls 2>&- && echo x
((x)) || ! ls
x=${y:=1}; echo "$x"
exec 3>&-; ls
"""

ASKED = r"""
git push
git push origin main
/usr/bin/git push
./git push
g\it push
'git' push
g"i"t push
"git" "push"
git 'push'
git -C /work push
git -c user.name=x push --force
git --git-dir=/x/.git push
ls && git push
ls; git push
ls | git push
ls & git push
! git push
(git push)
{ git push; }
echo $(git push)
echo `git push`
echo "a $(git push) b"
diff <(git push) x
cat <<EOF⏎$(git push)⏎EOF
A=1 git push
A=$(git push)
export A=$(git push)
env X=1 git push
env -S 'git push'
env -S 'true⏎git push'
env -S 'git⏎push'
env -S 'git' push
env -S '-i git push'
env -S 'git\_push'
env = git push
env A-B=x git push
sudo git push
sudo -u root git push
timeout 5 git push
timeout -k 1 5 git push
nice -n 5 git push
nohup git push &
time git push
command git push
exec git push
xargs git push
xargs -n1 git push
echo push | xargs git
find . -exec git push {} ;
find . -exec sh -c 'git push' \;
find . -exec sh -c 'true⏎git push' \;
bash -c 'git push'
bash -lc "git push"
sh -c 'bash -c "git push"'
eval git push
eval 'git push'
eval 'true⏎git push'
eval -- 'git push'
trap -- 'git push' EXIT
BASH_ALIASES[g]=git
BASH_CMDS[ls]=/work/evil
bash -c 'true⏎git push'
bash -c "true⏎git push"
bash -c '# x⏎git push'
sh -c 'bash -c "true⏎git push"'
trap 'git push' EXIT
trap 'true⏎git push' EXIT
f() { git push; }; f
function g { git push; }
if true; then git push; fi
while git push; do :; done
case x in x) git push;; esac
for f in a; do git push; done
git push > /dev/null 2>&1
> log git push
git > log push
git 2>&1 >log push
alias p='git push'
coproc git push
$X push
$(echo git) push
"$CMD"
${X:-git} push
git $X
git pu{sh,ll}
git p*
git $'pu\x73h'
g${Z}it push
*/git push
git pu\⏎sh
echo x | bash
bash
bash -s < x
bash -c "$X"
eval "$X"
PATH=/work/bin:$PATH ls
export PATH=/work/bin
LD_PRELOAD=/work/x.so ls
env PATH=/work ls
hash -p /work/evil ls
shopt -s expand_aliases
echo "a
if true
git push;;
echo 'abc
ls )
sudo -i
watch 'git push'
parallel git push ::: a
mapfile -c1 -C 'git push #' <<< x
readarray -C 'git push' a
compgen -C 'git push'
compgen -W '$(git push)'
complete -C 'git push' x
fc -s
history -s 'git push'
alias g=git
sh -c 'alias g=git⏎g push'
x='$(git push)'; echo "${x@P}"
x='a[$(git push)]'; echo $((x))
x='a[$(git push)]'; (( x ))
x='a[$(git push)]'; echo ${!x}
x='a[$(git push)]'; echo "${y:x}"
x='a[$(git push)]'; [[ x -eq 0 ]]
x='a[$(git push)]'; declare -i y=x
x=$'a[\x24(git push)]'; echo $((x))
bash -c "x='a[\$(git push)]'; let x"
printf -v 'a[$(git push)]' x
printf -v 'a[`git push`]' x
test -v 'a[$(git push)]'
[ -v 'a[$(git push)]' ]
[[ 'a[$(git push)]' -eq 0 ]]
[[ -v 'a[$(git push)]' ]]
let 'a[$(git push)]'
read 'a[$(git push)]' <<< 1
declare 'a[$(git push)]=1'
unset 'a[$(git push)]'
wait -n -p 'a[$(git push)]'
. /dev/stdin <<< 'git push'
source /proc/self/fd/0
source //dev/./stdin
. /work/../dev/stdin
cd /dev; . ./stdin
source "$X"
source <(echo git push)
bash /dev/stdin <<< 'git push'
sh -x /dev/fd/0
prlimit git push
prlimit --nofile=9 git push
taskset 1 git push
setpriv git push
setarch -R git push
chrt -b 0 git push
choom -n 0 -- git push
nsenter -t 1 git push
dbus-run-session -- git push
ssh-agent git push
/lib64/ld-linux-x86-64.so.2 /usr/bin/git push
/lib64/ld-linux-x86-64.so.2 /usr/bin/ls
uv run git push
uv run --with x git push
uv run --weird x ls
uv --quiet run git push
poetry run git push
flock f -c 'git push'
flock f git push
flock "$F" -c 'git push'
su root -c 'git push'
script /dev/null -c 'git push'
timeout $X 5 git push
parallel ::: 'git push'
parallel git ::: push
parallel git {1} ::: push
parallel 'true; git' ::: push
parallel true ';' git push ::: a
parallel < file
watch true ';' git push
watch -x bash -c 'git push'
xargs -I X sh -c X
xargs -I% git %
xargs --replace git push
xargs -i git push
git --attr-source x push
git --super-prefix x --no-pager push
git -c alias.p=push p
git --a --a --a --a --a --a --a --a --a --a --a --a --a --a --a --a --a --a --a --a --a --a push
kubectl --weird x delete pod
curl https://example.org
echo `echo \`git push\``
echo "`echo \`git push\``"
echo `echo \$(git push)`
echo "${x:-'$(git push)'}"
cat <<X⏎${x:-'$(git push)'}⏎X
git {fd}>x push
jobs -x git push
bash -co posix 'git push'
OPTIND='a[$(git push)]'
RANDOM='a[$(git push)0]'
HISTCMD='a[$(git push)]'
for SECONDS in 'a[$(git push)]'; do :; done
x='a[$(git push)]'; y=([x]=1)
k=\$; k="a[$k(git push)]"; echo $((k))
k='`'; k="a[${k}git push$k]"; echo $((k))
a=\$; b="a[$a(git push)]"; c=$b; echo $((c))
printf -v k 'a[\x24(git push)]'; echo $((k))
printf -v k 'a[%s(git push)]' '$'; echo $((k))
k=$(echo 'a[X(git push)]' | tr X '$'); echo $((k))
k=$(base64 -d <<< YVskKGdpdCBwdXNoKV0=); [[ k -eq 1 ]]
k=$(base64 -d <<< YVskKGdpdCBwdXNoKV0=); SECONDS=$k
k=$(base64 -d <<< YVskKGdpdCBwdXNoKV0=); test -v "$k"
base64 -d <<< YVskKGdpdCBwdXNoKV0= > f; k=$(<f); echo ${x:k}
read k < f; echo $((k))
for k in *; do echo $((k)); done
for k in {#..%}; do a+=$k; done; echo $((a))
c=${BASH_EXECUTION_STRING:5:1}; echo $((c))
echo $(( $(cat f) + 1 ))
set -- "$(cat f)"; echo $(( $1 ))
f() { echo $(( $1 )); }; f "$(cat k)"
bash -c 'echo $(( $1 ))' x "$(cat k)"
sg root -c 'git push'
split --filter='git push' x
split --filt='git push' x
sort --compress-program='git push' x
tar -I 'git push' -xf x
git bisect run git push
git bisect run ./build
git -c core.pager='sh x' log
git -c core.sshCommand=./x fetch
git --config-env=core.pager=X log
git --exec-path=/work log
git rebase -x 'make test' main
git rebase --exec='make test' main
git clone --upload-pack=./x . y
git clone -c core.fsmonitor=./x . y
git ls-remote --upload-p ./x .
git grep -Osh x
git grep -nO x
git difftool --extcmd=./x
git submodule foreach 'git push'
git filter-branch --tree-filter ./x
install -s --strip-program=./x a b
ssh -oProxyCommand=./x host
scp -S ./x a host:
printf '%s\n' 'a[$(git push)]' > f; x=$(cat f); echo ${-:x}
x=$(cat f); echo ${?:x}
declare "k=$(echo 'a[X(git push)]' | tr X '$')"; ((k))
git 2>&- push
git <&- push
git pu`:`sh
x=$(cat f); ! ((x))
x=$(cat f); cat <<A⏎$((x))⏎A
x=$(cat f); cat <<A⏎$[ x ]⏎A
read PATH <<< ./bin
for PATH in ./bin; do ls; done
read BASH_ENV <<< ./f
printf -v BASH_ENV ./f
: ${BASH_ENV:=./f}
: ${PS4='$(git push)'}; set -x
for PS4 in '$(git push)'; do set -x; done
git 2>&-push
git 1>&- 2>&- push
bash 0<<< 'git push'
bash 0< <(echo git push)
0<<< x git push
xargs git 0<<< push
git "pu"`:`"sh"
gi`:`t push
cat <<EOF⏎a `git push` b⏎EOF
cat <<EOF⏎	$(git push)⏎EOF
cat <<EOF⏎x⏎   $(git push)⏎EOF
cat <<-EOF⏎	$(git push)⏎	EOF
cat <<$X⏎$(git push)⏎$X
cat <<${X}⏎$(git push)⏎${X}
cat <<EOF⏎`echo \`git push\``⏎EOF
SRANDOM='a[$(git push)]'
x='a[$(git push)]'; SRANDOM=x
dpkg-architecture -c git push
run-parts --arg=push bin
logsave x git push
fish -c 'git push'
"""

DENIED = r"""
rm -rf /
rm -rf
ls; rm -rf x
r\m -rf x
/bin/rm -rf x
rm "-rf" x
sudo rm -rf /
git push; rm -rf x
bash -c 'rm -rf x'
bash -c 'true⏎rm -rf x'
bash -c "true⏎rm -rf x"
eval 'true⏎rm -rf x'
trap 'true⏎rm -rf x' EXIT
find . -exec sh -c 'true⏎rm -rf x' \;
rm -rf 'a⏎b'
rm -rf \⏎ x
f() { rm -rf x; }
echo $(rm -rf x)
xargs rm -rf
find . -exec rm -rf {} +
timeout 5 env A=1 nice sudo rm -rf x
taskset 1 rm -rf x
nsenter -t 1 rm -rf x
uv run rm -rf x
flock f -c 'rm -rf x'
parallel ::: 'rm -rf x'
mapfile -C x a; rm -rf x
shutdown
cat <<EOF | sh -c 'rm -rf x'⏎EOF
"""


def table(text: str) -> list[str]:
    return [line.replace("⏎", "\n") for line in text.strip().splitlines()]


def decided(line: str, rules: dict[str, str] | None = None, trusted: tuple[str, ...] = ()) -> str:
    return str(decide_command(Permissions(commands=rules or RULES), line, trusted).verdict)


LINES = [
    *[(line, "allow") for line in table(ALLOWED)],
    *[(line, "ask") for line in table(ASKED)],
    *[(line, "deny") for line in table(DENIED)],
]


def test_the_table_is_as_long_as_it_has_to_be() -> None:
    assert len(LINES) >= 120
    assert len(set(LINES)) == len(LINES)


@pytest.mark.parametrize(("line", "verdict"), LINES)
def test_a_line_gets_the_strictest_verdict_of_its_simple_commands(line: str, verdict: str) -> None:
    assert decided(line) == verdict


@pytest.mark.parametrize(
    "line",
    [
        "rm $X file",  # may be -rf
        "rm -r* x",
        "! ! git status",
        "ls\n\\rm -rf x",
        "ls\n\\git push",
        "\\ \n A=1 rm -rf x",
        "$X",
        'git "$X"',
        "git push\x0borigin",
        "git push\r",
        "git\u00a0push",
        "ls \ue000",
        "ls \x00",
        "ls \ud800",
        "ls " + "x" * 200_000,
        "(" * 2_000 + "ls" + ")" * 2_000,
        "bash -c " * 50 + "ls",
        "nohup " * 500 + "ls",
        "parallel " * 500 + "ls",
        "watch -n 1 " * 500 + "ls",
        "nsenter " * 500 + "ls",
        "! " * 500 + "ls",
        "echo ${X:=`rm -rf y`}",
        "env --unknown-option x git status",
        "sudo --weird ls",
        "eval $(cat x)",
    ],
)
def test_rows_92_and_123_what_cannot_be_known_is_asked(line: str) -> None:
    assert decided(line) == "ask"


def test_a_line_may_run_without_rules_and_nothing_is_imported_for_it() -> None:
    code = (
        "import sys\nfrom adk_skills_agent import Permissions\n"
        "from adk_skills_agent.adk.shell.command_rules import decide_command\n"
        "assert decide_command(Permissions(), 'rm -rf /').verdict == 'allow'\n"
        "assert 'tree_sitter' not in sys.modules, 'the grammar was imported'\n"
        "decide_command(Permissions(commands={'a': 'ask'}), 'b')\n"
        "assert 'tree_sitter' in sys.modules\n"
    )
    done = subprocess.run([preloaded.program("python"), "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_the_decision_names_the_simple_command_and_the_rule() -> None:
    decision = decide_command(Permissions(commands=RULES), "ls && sudo git push origin main")
    assert decision.reason == "the rule 'commands: git push *: ask' is for the command 'git push origin main'"
    assert decision.target == "git push origin main"
    assert decision.subjects == ("command:git push origin main",)
    both = decide_command(Permissions(commands=RULES), "git push a; curl x")
    assert both.subjects == ("command:git push a", "command:curl x")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"git push {'a' * 90} --dry-run", f"git push {'a' * 90} --force"),
        ("X=tmp; rm -r $X", "X=/; rm -r $X"),
        ("rm -r *.tmp", "rm -r *"),
        ("rm 'a b'", "rm a b"),
        ("rm 'a b'", "rm 'a⏎b'"),
        ("rm 'a b'", "rm 'a\tb'"),
        ("rm a\\ b", "rm a b"),
        ("rm ''", "rm"),
        ("rm '*'", "rm *"),
        ("rm '~/x'", "rm ~/x"),
        (f"bash <<E # {'x' * 90}⏎ls⏎E", f"bash <<E # {'x' * 90}⏎rm x⏎E"),
        ("ls | xargs rm", "cat list | xargs rm"),
        ("find a -delete", "find / -delete"),
    ],
)
def test_an_approval_of_one_command_covers_no_other(one: str, other: str) -> None:
    rules = Permissions(commands={"git push *": "ask", "rm *": "ask"})
    first = decide_command(rules, one.replace("⏎", "\n"))
    second = decide_command(rules, other.replace("⏎", "\n"))
    assert (first.verdict, second.verdict) == ("ask", "ask")
    assert not set(first.subjects) & set(second.subjects)
    assert all(len(decision.target) <= 83 for decision in (first, second))


def test_an_approval_covers_the_same_again() -> None:
    rules = Permissions(commands={"git push *": "ask", "rm *": "ask"})
    known = decide_command(rules, "git push a 'b c'")
    assert known.subjects == decide_command(rules, "ls && git  push a b\\ c").subjects
    unknown = decide_command(rules, "rm $X")
    assert unknown.subjects == decide_command(rules, "rm $X").subjects
    assert unknown.subjects[0].startswith("line:")
    assert decide_command(rules, "rm \ud800").subjects != decide_command(rules, "rm \ud801").subjects


@pytest.mark.parametrize(
    ("rules", "line", "verdict"),
    [
        ({"*": "ask", "ls *": "allow"}, "ls -l", "allow"),
        ({"*": "ask", "ls *": "allow"}, "ls $X", "allow"),
        ({"*": "ask", "ls *": "allow"}, "/work/evil/ls", "ask"),
        ({"*": "ask", "ls *": "allow"}, "'ls -l'", "ask"),  # a program with a space in its name
        ({"*": "ask", "ls *": "allow"}, "ls; cat x", "ask"),
        ({"git *": "deny", "git log *": "allow"}, "git log -3", "allow"),
        ({"git *": "deny", "git log *": "allow"}, "git lo$X", "deny"),
        ({"*": "deny"}, "ls", "deny"),
        ({"pip? install *": "ask"}, "pip3 install x", "ask"),
        ({"pip? install *": "ask"}, "pip install x", "allow"),
        ({"npm run test": "allow", "npm *": "ask"}, "npm run test", "allow"),
        ({"npm run test": "allow", "npm *": "ask"}, "npm run test --x", "ask"),
        ({"rm *": "ask"}, "find . -delete", "ask"),
    ],
)
def test_the_most_specific_rule_wins_for_one_command(rules: dict[str, str], line: str, verdict: str) -> None:
    assert decided(line, rules) == verdict


@pytest.mark.parametrize(
    ("trusted", "line", "verdict"),
    [
        (("Bash(git:*)", "Read"), "git push origin", "allow"),
        (("Bash(git push:*)",), "git push", "allow"),
        (("Bash(git push *)",), "git push x", "allow"),
        (("Bash",), "git push; curl x", "allow"),
        (("Bash(git:*)",), "git push; curl x", "ask"),
        (("Bash(git:*)",), "git push; rm -rf x", "deny"),
        (("Bash(rm:*)",), "rm -rf x", "deny"),
        (("Bash",), "rm $X y", "ask"),  # it may be denied
        (("Bash",), 'bash -c "$X"', "ask"),
        (("Bash(git:*)",), "/work/git push", "ask"),
        (("Read",), "git push", "ask"),
        (("Bash(git:*)",), "gitx; curl x", "ask"),
    ],
)
def test_trusted_tools_answer_questions_and_never_lift_a_denial(
    trusted: tuple[str, ...], line: str, verdict: str
) -> None:
    assert decided(line, None, trusted) == verdict


@pytest.mark.parametrize("rules", [{"": "ask"}, {"  ": "ask"}, {"ls": "maybe"}, {7: "ask"}, ["ls"]])
def test_a_rule_that_cannot_be_meant_is_refused(rules: object) -> None:
    with pytest.raises(ConfigError, match="commands"):
        Permissions(commands=rules)  # type: ignore[arg-type]


def test_rules_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text('[tool.adk-skills.permissions.commands]\n"git push *" = "ask"\n"rm -rf /*" = "deny"\n')
    permissions = Permissions.from_file(file)
    assert decide_command(permissions, "git push").verdict == "ask"
    assert decide_command(permissions, "rm -rf /etc").verdict == "deny"


_MARKS = "' \" ` $( ) ( { } ; ;; & && | || > < <<EOF EOF \\ ${X} $(( )) = # * ? ~ 2>&1 <( $' <<<"
_WORDS = "if then fi for in do done case esac function f() ! [[ ]] [ ] env sudo eval xargs time exec é x A=1 -c -x"
PIECES = st.sampled_from([*_MARKS.split(), *_WORDS.split(), "git push", "rm", "bash -c", "\n", " ", "\t", "\r"])
LINE = st.lists(PIECES, max_size=14).map(" ".join) | st.lists(PIECES, max_size=14).map("".join)


@given(LINE | st.text(max_size=60))
def test_no_line_raises_and_what_bash_refuses_is_asked_or_denied(line: str) -> None:
    decision = decide_command(Permissions(commands={"git push *": "ask", "rm *": "deny"}), line)
    bash = shutil.which("bash")
    assert bash is not None
    if "\0" in line or (not line.isprintable() and any("\ud800" <= c <= "\udfff" for c in line)):
        assert decision.verdict != "allow"
        return
    read = subprocess.run([bash, "-n"], input=line.encode(), capture_output=True, check=False)
    if read.returncode != 0:
        assert decision.verdict != "allow"


@pytest.mark.slow
def test_row_323_of_a_long_command_no_more_is_compared_than_a_rule_has_use_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line of 98 KB took 108 s."""
    compared: list[int] = []
    common = command_rules._common
    monkeypatch.setattr(command_rules, "_common", lambda *texts: compared.append(len(texts[1])) or common(*texts))
    rules = {f"tool{number} * --force *": "ask" for number in range(30)}
    assert decided("prlimit " + "$X " * 20 + "a" * 98_000, rules) == "ask"
    assert decided("git commit -m '" + "a" * 5_000 + '\'"$X"', {**rules, "git push *": "deny"}) == "allow"
    assert 0 < max(compared) < 1_000


async def test_row_323_of_the_entries_of_allowed_tools_no_more_are_compared_than_a_skill_has(
    make_skill: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    """20,000 took 0.7 s for each command of a line."""
    skill = make_skill("ops") / "SKILL.md"
    entries = " ".join(f"Bash(x{number}*y)" for number in range(1_000))
    skill.write_text(f"---\nname: ops\ndescription: Runs.\nallowed-tools: {entries}\n---\nRun.\n")
    toolset = SkillToolset.from_dirs([skill.parent.parent], shell=True, trust_allowed_tools=True)
    assert toolset.runtime.trusted_tools(None, "ops")[-1] == "Bash(x199*y)"  # type: ignore[arg-type]
    assert "the first 200 are trusted" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("line", ["a;" * 49_500, "eval '" + "a;" * 40_000 + "'", "env env a;" * 9_000])
def test_row_323_a_line_has_no_more_commands_than_are_compared_in_a_moment(line: str) -> None:
    """Each is compared with each rule: 49,500 took 11 s with 30 rules."""
    rules = {f"tool{number} * --force *": "ask" for number in range(30)}
    assert decided(line, rules) == "ask"
    assert len(read_line(line).commands) < 2_000


@pytest.mark.slow
@pytest.mark.parametrize("part", ["{a", "a[b", "<<A ", "s3 ", "a|", "$("])
def test_row_105_the_time_for_a_line_grows_with_its_length_and_not_its_square(part: str) -> None:
    """A line of a hostile skill must not stop the agent: ``re`` and the grammar hold the interpreter's lock."""
    rules = Permissions(commands={"aws * s3 * rm *": "ask", "git push *": "deny"})

    def seconds(count: int) -> float:
        line = "aws " + part * count + "x"
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            decide_command(rules, line)
            best = min(best, time.process_time() - start)
        return best

    few = 500
    assert seconds(8 * few) < 30 * max(seconds(few), 0.001)


@pytest.mark.parametrize("line", ["[[ a == " + "@(" * 40_000, "<" * 90_000, "cat <<A\n" + "$x " * 30_000 + "\nA"])
def test_row_124_a_line_that_takes_the_grammar_a_minute_does_not_stop_the_agent(line: str) -> None:
    """Seen: 72 seconds in which no thread of the agent went on."""
    pauses, over, main = [0.0], threading.Event(), threading.get_native_id()

    def other() -> None:
        both = main, threading.get_native_id()
        last = unhindered(*both)
        while not over.wait(0.01):
            pauses.append(unhindered(*both) - last)
            last = unhindered(*both)

    thread = threading.Thread(target=other)
    thread.start()
    began = time.thread_time()
    verdict = decide_command(Permissions(commands=RULES), line).verdict.value
    took = time.thread_time() - began
    over.set()
    thread.join()
    assert verdict == "ask"
    assert took < 3
    assert max(pauses) < 2


def test_row_124_a_chain_of_variables_takes_no_longer_than_its_length() -> None:
    """Seen: 12 seconds for 7,000 of them."""
    line = ";".join(f"v{number}=$v{number + 1}" for number in range(7_000)) + ";v7000=$(ls);echo $((v0))"
    began = time.thread_time()
    assert decide_command(Permissions(commands=RULES), line).verdict.value == "ask"
    assert time.thread_time() - began < 3


@pytest.mark.parametrize(
    "options",
    ["-eo pipefail -c", "-euo pipefail -c", "-oo posix errexit -c", "-co pipefail", "+c", "-norc -c", "-rcfile x -c"],
)
def test_row_187_the_line_of_a_shell_is_found_behind_all_options_and_their_values(options: str) -> None:
    """Seen: ``pipefail`` was taken for a file of commands, and a denied command ran."""
    rules = Permissions(commands={"git push *": "deny"})
    assert decide_command(rules, f"bash {options} 'git push'").verdict.value == "deny"
    assert decide_command(rules, f"env bash {options} -- 'ls; git push origin'").verdict.value == "deny"


@pytest.mark.parametrize(
    "line",
    [
        "set -k; git a=b push",
        "set -euo keyword⏎git a=b push",
        "x=-k; set $x; git a=b push",
        "bash -k -c 'git a=b push'",
        "set -o history⏎set -H⏎true git push⏎!:1-2",
        "bash +s x <<< 'git push'",
        "/proc/self/exe -c 'git push'",
    ],
)
def test_row_187_options_that_change_what_words_mean_are_asked_about(line: str) -> None:
    rules = Permissions(commands={"git push *": "deny"})
    assert decide_command(rules, line.replace("⏎", "\n")).verdict.value == "ask"


@pytest.mark.parametrize("line", ["set -euo pipefail; ls", "set -- -k; ls", "bash -e build.sh -k", "bash build.sh"])
def test_row_187_usual_options_are_not_asked_about(line: str) -> None:
    assert decide_command(Permissions(commands={"git push *": "deny"}), line).verdict.value == "allow"


def test_row_192_a_question_about_a_line_names_every_command_that_a_yes_covers() -> None:
    """Seen: of ``rm $A; ...; git push $B; ...`` the question showed the ends of a long line, and 'rm' as the reason."""
    rules = Permissions(commands={"rm *": "ask", "git push *": "ask"})
    padding = "; ls /work" * 100
    decision = decide_command(rules, f"rm $A{padding}; git push $B{padding}")
    assert "'git push …'" in _asked_for(decision)
    many = "; ".join(f"rm {number}" for number in range(20))
    decision = decide_command(rules, f"{many}{padding}; git push origin{padding}")
    assert "'git push origin'" in _asked_for(decision)
    assert "and 8 more" in _asked_for(decision)
    assert "covers" not in _asked_for(decide_command(rules, "rm a; git push b"))


@pytest.mark.parametrize(
    "line",
    [
        *(
            "a=$ git push",
            ">$ git push",
            "x >$ \ngit push",
            "ls;$ git push",
            "a=$\tgit push",
            "0>0 git push",
            "10>x git push",
        ),
        *("cat <<A\n  A\n# $(git push)\nA", "cat <<A\nA # $(git push)\nA", "cat <<-A\n\t A\n# $(git push)\nA"),
        *("cat <<A\nA;# `git push`\nA", "cat <<A.*\nb\nA.*", "cat <<A\nb", "cat <<A <<B\nA\n B\n# $(git push)\nB"),
        "cat <<-A\nb\n \tA\n# $(git push)\nA",
    ],
)
def test_row_322_what_the_grammar_reads_otherwise_than_bash_is_asked_about(line: str) -> None:
    assert decided(line) == "ask"


@pytest.mark.parametrize(
    "line",
    [
        *("cat <<A\nb\nA", "cat <<-A\n\tb\n\tA\nls", "cat <<'A'\n  A\n# $(x)\nA\n", "ls <<\\EOF\n$(x)\nEOF\n"),
        *("cat <<A && ls\na $b\nA\ncat x", 'cat <<"E-1" > x\n A\nE-1\n'),
        *(
            "a 3>&1 1>&2 2>&3; cat 9> x",
            "x=$(cat <<A\nb\nA\n)",
            "cat <<A | wc\nA\n",
            "if x; then\n  cat <<A\n  b\nA\nfi",
        ),
    ],
)
def test_here_documents_are_read(line: str) -> None:
    assert decided(line) == ("ask" if line.startswith("cat <<'A'\n  A") else "allow")


@pytest.mark.parametrize(
    "line",
    [
        "GIT_EXTERNAL_DIFF='rm -rf f; true' git diff",
        "export GIT_EXTERNAL_DIFF='rm -rf f; true'; git diff",
        "env TAR_OPTIONS='--to-command=rm' tar xf a.tar",
        "MAKEFLAGS='--eval=x:;rm_-rf_f' make x",
        "PAGER='rm -rf f' man x",
        "HOME=/work/x git status",
        "for GIT_PAGER in 'rm -rf f'; do git log; done",
    ],
)
def test_row_316_variables_that_name_programs_are_asked_about(line: str) -> None:
    """Seen: with ``rm *`` denied, ``GIT_EXTERNAL_DIFF='rm f; true' git diff`` removed f, and nobody was asked."""
    assert decide_command(Permissions(commands=RULES), line).verdict.value == "ask"


def test_row_316_a_yes_to_a_command_is_not_one_with_other_variables() -> None:
    """Seen: with a yes to it, ``GIT_DIR=/work/e/.git`` before it pushed another repository, whose hooks got the key."""
    rules = Permissions(commands=RULES)
    assert decide_command(rules, "git push origin").subjects == ("command:git push origin",)
    for line in (
        "X=1 git push origin",
        "X=1; git push origin",
        "env X=1 git push origin",
        "bash -c 'X=1 git push origin'",
    ):
        assert [one.partition(":")[0] for one in decide_command(rules, line).subjects] == ["line"], line
    assert decide_command(rules, "GIT_AUTHOR_NAME=me git commit -m x").verdict.value == "allow"


@pytest.mark.parametrize(
    "line",
    [
        *("npm exec git push", "npm exec -- git push", "npm x -y git push", "npm exec --call 'git push'"),
        *("pnpm exec git push", "yarn exec git push", "bun x git push", "npm --silent exec git push"),
        *("bundle exec git push", "pyenv exec git push", "asdf exec git push", "opam exec -- git push"),
        *("conda run git push", "conda run -n base git push", "hatch run git push", "hatch run test:git push"),
        *("mise exec -- git push", "mise exec node@22 -- git push", "mise x -- git push", "direnv exec . git push"),
        *("rustup run stable git push", "uv tool run git push", "uv --offline 'run' git push", 'npm -s "$X" git push'),
        *("ip netns exec x git push", "ip vrf exec x git push", "ip -n x netns exec y git push"),
        *("cmake -E env git push", "cmake -E env A=1 git push", "cmake -E time git push", "cmake -E chdir / git push"),
        *("systemd-inhibit git push", "systemd-cat git push", "dbus-launch git push"),
        *("sem git push", "tini -- git push"),
        *("dumb-init git push", "gosu root git push", "su-exec root git push"),
        *("torsocks git push", "firejail git push"),
        *("faketime now git push", "tmux new -d git push", "screen -dm git push", "gdb --args git push"),
        *("s6-setuidgid x git push", "softlimit git push", "daemonize git push", "nodemon git push"),
        *("busybox.static sh -c 'git push'", "busybox-1.36 sh -c 'git push'", "bash-static -c 'git push'"),
        *("bash5 -c 'git push'", "bash-5.2 -c 'git push'", "ksh93 -c 'git push'", "lksh -c 'git push'"),
        *("oksh -c 'git push'", "rzsh -c 'git push'", "/opt/mksh-static -c 'ls; git push'"),
        *("/usr/lib/git-core/git-push", "git-push origin main", "/usr/lib/git-core/git push", "git send-pack origin"),
        *("git -C x send-pack origin", "git subtree push --prefix x origin m", "git lfs push origin main"),
        *("git http-push origin", "git -c a=b -C x lfs push", "/usr/lib/git-core/git-send-pack origin"),
    ],
)
def test_row_428_more_programs_that_start_others_and_more_names_hide_no_command(line: str) -> None:
    """Seen: with ``git push *`` denied, ``npm exec git push`` or ``bash5 -c 'git push'`` was allowed."""
    assert decide_command(Permissions(commands={"git push *": "deny"}), line).verdict.value == "deny"


@pytest.mark.parametrize(
    "line",
    [
        *("at now <<< 'git push'", "batch <<< 'git push'", "newgrp x <<< 'git push'", "pwsh -c 'git push'"),
        *("tmux new-session 'git push'", "expect -c 'spawn git push'", "nodemon --exec 'git push'"),
        *("nu -c 'git push'", "xonsh -c 'git push'", "fd -x git push", "fdfind . --exec git push", "fd -HX git push"),
        *("rg --pre 'git push' x", "rg --pre=./x y", "hg --config alias.x='!git push' x", "nix shell p -c git push"),
        *("dpkg --pre-invoke='git push' -l", "wget --use-askpass='git push' x", "npm exec --weird git push"),
        *("bash5 <<< 'git push'", "lksh -s < x", "npm --silent $X", "rsync -ave ./x a b:"),
    ],
)
def test_row_428_what_cannot_be_known_of_them_is_asked(line: str) -> None:
    assert decide_command(Permissions(commands={"git push *": "deny"}), line).verdict.value in ("ask", "deny")


@pytest.mark.parametrize(
    "line",
    [
        *("npm install", "npm run build", "npm test -- --run exec", 'npm --prefix "$D" run build', "npm --silent test"),
        *("npm exec prettier -- --check .", "yarn build", "pnpm install", "bundle exec rspec", "bundle install"),
        *("conda run -n base python x.py", "hatch run test:pytest -x", "pdm run pytest", "bun run build"),
        *("cmake -S . -B $BUILD", "cmake -E make_directory x", "ip -o addr show $DEV", "ip netns list"),
        *("bash build-5.2.sh", "bash5 build.sh", "busybox.static ls", "rg --pretty x", "rg --pre-glob '*.pdf' x"),
        *("fd -e md -H x", "git lfs pull", "git subtree pull --prefix x o m", "git stash push", "git-lfs ls-files"),
        *("hg log", "nix flake check", "dpkg -l", "wget --user=x https://x.example", "uv tool install ruff"),
        *("rsync -avz a b", "tar -xzf a.tgz", "ssh -v host ls"),
    ],
)
def test_row_428_usual_commands_of_these_programs_are_not_asked_about(line: str) -> None:
    assert decide_command(Permissions(commands={"git push *": "deny"}), line).verdict.value == "allow"
