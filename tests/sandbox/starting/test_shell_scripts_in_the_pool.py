"""A shell script does, prints and sees in a warm sandbox what it would in one made for it (ADR 0010)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path, PurePosixPath

import pytest

from adk_skills_agent.sandbox.contract import ExecutionRequest, ExecutionResult, ReadOnlyMount, SandboxPolicy
from adk_skills_agent.sandbox.local import local_sandbox
from adk_skills_agent.sandbox.local.warm_pool import warm_pool
from adk_skills_agent.sandbox.secrets import Secret

pytestmark = [pytest.mark.warm_pool, pytest.mark.usefixtures("needs_namespaces")]

_DIFFERENT = "BASHPID|EPOCH|RANDOM|SRANDOM|PPID|ADK_SKILLS_RUN_ID|SECONDS|BASH_ARG|PIPESTATUS"
_ALL = f"declare -p | grep -vE '^declare [^ ]+ ({_DIFFERENT})'"
SCRIPTS = {
    "its own name": 'echo "$0 ${BASH_SOURCE[0]} ${#BASH_SOURCE[@]} $BASH_ARGV0 $LINENO"',
    "its arguments": 'echo $#; printf "<%s>\\n" "$@"; shift; echo "$*"',
    "the last word": 'echo "$_"; : a; echo "$_"',
    "the states of nothing": 'echo "$?" "[$!]" "[$-]" "$SECONDS" "${FUNCNAME[*]}"',
    "every variable": _ALL,
    "its environment": "env | grep -v RUN_ID | sort; env | grep -c RUN_ID",
    "its options": "set -o; shopt; umask; trap -p; alias; hash; ulimit -a | grep -v locked",
    "its functions and jobs": "declare -F; jobs; dirs; history; type -a ls; echo $SHLVL $PPID",
    "its descriptors": "ls /dev/fd | head -4; readlink /dev/fd/0; ls /dev/fd/ | grep -v 255; ls -A /tmp",
    "standard input": "read -r line; echo $? [$line]; cat; test -t 0; echo $?",
    "an exit": "exit 7",
    "an exit beyond": "exit 300",
    "an exit in a function": 'f() { exit 3; }; f; echo "not here"',
    "an error": "no_such_command; echo $?",
    "an error of syntax": "echo before\nif then\n",
    "an open quote": 'echo before\necho "',
    "an error that ends it": "set -e\necho a\nfalse\necho b",
    "an unset variable": "set -u\necho a\necho $nothing\necho b",
    "a trap": "trap 'echo bye $? $LINENO' EXIT\nfalse",
    "a trap for errors": "trap 'echo err $LINENO $BASH_COMMAND' ERR\nfalse\ntrue",
    "a return": "echo a; return 4; echo b",
    "a caller": 'f() { caller; caller 0; echo "${FUNCNAME[@]} ${BASH_LINENO[@]}"; }\n\nf',
    "a signal": "kill -9 $$",
    "a signal it handles": "trap 'echo got' TERM; kill $$; echo after",
    "a broken pipe": "set -o pipefail; yes | head -1; echo $?",
    "a child": "bash -c 'echo $0 $1 $SHLVL $BASH_ENV' name x; (echo $BASH_SUBSHELL); echo $(echo $LINENO)",
    "a background job": "sleep 0.05 && echo late & echo early; wait; echo $?",
    "getopts": 'while getopts "a:b" o; do echo "$o $OPTARG $OPTIND"; done',
    "another program": 'exec env printf "%s\\n" "$1"',
    "its folder": "pwd; cd /tmp; pwd; echo $OLDPWD; cd -; ls -A /work",
    "a file": "echo data > made.txt; mkdir d; echo x > d/y",
    "a removed link": "rm -f /work/a.sh; echo $?",
    "a source": "echo 'echo $0 ${BASH_SOURCE[@]} $1' > s.sh; . ./s.sh; . ./s.sh own",
    "commands from itself": "set -x\necho a\nset +x",
    "time": "TIMEFORMAT=%0lR; time :; sleep 1.1; test $SECONDS -ge 1 -a $SECONDS -lt 5 && echo right",
    "a tail that is no text": "echo x\nexit 0\n\x00\x01\x7f",
    "a long one": "echo start\n" + ": 0123456789\n" * 8000 + 'echo "end $LINENO"',
    "no last line end": "echo x",
    "nothing": "",
    "a locale": "echo ${#1}; LC_ALL=C; echo ${#1}; [[ ä < z ]]; echo $?",
    "a readonly": "readonly x=1; x=2; echo after",
}
_QUICK = {"its own name", "its arguments", "every variable", "its environment", "standard input", "an exit", "a file"}
_EACH = [pytest.param(name, id=name, marks=() if name in _QUICK else pytest.mark.slow) for name in SCRIPTS]
ARGUMENTS = ("-a", 'it\'s "a" $HOME `x` \\ ä€ *', "", "-b", "two\nlines", "--", "x")


async def run(folder: Path, arguments: tuple[str, ...] = ARGUMENTS, **more: object) -> ExecutionResult:
    settings = {"isolation": "namespaces", "min_isolation": "process", "wall_seconds": 20.0}
    policy = SandboxPolicy(**(settings | more.pop("policy", {})))  # type: ignore[arg-type,operator]
    argv = ("bash", "--noprofile", "--norc", "/skill/a.sh", *arguments)
    mounts = (ReadOnlyMount(folder, linked=bool(more.pop("linked", False))),)
    return await local_sandbox().run(ExecutionRequest(argv, policy, mounts=mounts, **more))  # type: ignore[arg-type]


async def warm_run(folder: Path, *, idle_seconds: float = 0.0, **more: object) -> ExecutionResult:
    """The result of a run that found a sandbox that waited, at least so long."""
    for _ in range(5):
        await run(folder, **more)
        await run(folder, **more)
        deadline = time.monotonic() + 30
        while not warm_pool().idle() and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        await asyncio.sleep(idle_seconds)
        result = await run(folder, **more)
        if result.warm:
            return result
    raise AssertionError("no run was warm")


def skill(folder: Path, script: str) -> Path:
    folder.mkdir()
    (folder / "a.sh").write_text(script, "utf-8")
    return folder


def facts(result: ExecutionResult) -> tuple[object, ...]:
    files = [(file.path, file.content) for file in result.files]
    return result.status, result.exit_code, result.signal, result.stdout, result.stderr, files


@pytest.mark.parametrize("name", _EACH)
async def test_a_script_finds_what_it_finds_in_a_sandbox_made_for_it(name: str, tmp_path: Path) -> None:
    folder = skill(tmp_path / "skill", SCRIPTS[name])
    more: dict[str, object] = {"env": {"GRANTED": "it's ours", "TOKEN": Secret("s3cr3t-value-of-ours")}}
    cold = await run(folder, policy={"warm_slots": 0}, **more)
    assert not cold.warm
    assert facts(await warm_run(folder, **more)) == facts(cold)


@pytest.mark.parametrize(
    "more",
    [
        {"stdin": b"text"},
        pytest.param({"env": {"LC_ALL": "C"}}, marks=pytest.mark.slow),
        pytest.param({"arguments": ("a\x7fb",)}, marks=pytest.mark.slow),
        {"arguments": ("",) * 5_000},
        pytest.param({"env": {"TZ": "UTC"}}, marks=pytest.mark.slow),
        pytest.param({"env": {"HOME": "/tmp"}}, marks=pytest.mark.slow),
        pytest.param({"env": {"TEXT": "a\x01b"}}, marks=pytest.mark.slow),
        pytest.param({"cwd": PurePosixPath("/skill")}, marks=pytest.mark.slow),
        pytest.param({"policy": {"tmp_bytes": 4096}}, marks=pytest.mark.slow),
    ],
)
async def test_it_is_given_the_same(more: dict[str, object], tmp_path: Path) -> None:
    folder = skill(tmp_path / "skill", 'cat; echo "$TZ $LC_ALL $HOME $TEXT"; pwd; printf %s "$1" | od -c | tail -3')
    cold = await run(folder, **(more | {"policy": {"warm_slots": 0, **more.get("policy", {})}}))  # type: ignore[dict-item]
    assert facts(await warm_run(folder, **more)) == facts(cold)


@pytest.mark.parametrize(
    "script",
    [
        "tr '\\0' ' ' < /proc/$$/cmdline",
        "shopt -s extdebug; echo ${#BASH_ARGV[@]} ${#BASH_ARGC[@]}; f() { echo ${BASH_ARGV[@]}; }; f 1",
        'echo "${PIPESTATUS[@]}"',
    ],
)
async def test_it_sees_of_itself_the_same(script: str, tmp_path: Path) -> None:
    folder = skill(tmp_path / "skill", script)
    cold = await run(folder, policy={"warm_slots": 0})
    assert facts(await warm_run(folder)) == facts(cold)


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ("echo a > f; touch -d @1000000000 f .", {"f": b"a\n"}),
        ("mkdir -p d/e; echo a > d/e/f; touch -d @1000000000 d/e d .", {"d/e/f": b"a\n"}),
        ("cp /bin/true /tmp/x; mv /tmp/x f; : > f; touch -r / .", {"f": b""}),
        pytest.param(
            "python3 -c 'import os; os.open(\".\", os.O_TMPFILE | os.O_RDWR)'; echo a > f",
            {"f": b"a\n"},
            marks=pytest.mark.slow,
        ),
        pytest.param("echo a > f; ln f g; rm f; chmod 000 .", {"g": b"a\n"}, marks=pytest.mark.slow),
        pytest.param("rm -f l.txt; echo own > l.txt", {"l.txt": b"own\n"}, marks=pytest.mark.slow),
        pytest.param("touch -d @1000000000 .; chmod 700 .; : > f; rm f", {}, marks=pytest.mark.slow),
        pytest.param("sleep 0.2 && echo a > f &", {"f": b"a\n"}, marks=pytest.mark.slow),
        ("true", {}),
    ],
)
async def test_whatever_a_script_changes_in_a_workspace_that_waited_is_found(
    change: str, left: dict[str, bytes], tmp_path: Path
) -> None:
    folder = skill(tmp_path / "skill", change)
    (folder / "l.txt").write_text("the skill's")
    result = await warm_run(folder, idle_seconds=0.1, linked=True)
    assert {file.path: file.content for file in result.files} == left
