"""A script for which a bash was waiting does, prints and sees what it would in a bash of its own (ADR 0010)."""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
from pathlib import Path, PurePosixPath

import pytest

from adk_skills_agent.sandbox.contract import ExecutionRequest, ExecutionResult, ReadOnlyMount, SandboxPolicy
from adk_skills_agent.sandbox.local import bash_ahead, local_sandbox
from adk_skills_agent.sandbox.local.bash_ahead import Bash, Feed
from adk_skills_agent.sandbox.local.namespaces_level import NamespacesLevel
from adk_skills_agent.sandbox.local.newborn import Newborn
from adk_skills_agent.sandbox.local.sandbox_start import is_readable
from adk_skills_agent.sandbox.local.slots import close_slots, slot_pool
from adk_skills_agent.sandbox.secrets import Secret

pytestmark = pytest.mark.skipif(NamespacesLevel().problem() is not None, reason=str(NamespacesLevel().problem()))

_DIFFERENT = "BASHPID|EPOCH|RANDOM|SRANDOM|PPID|ADK_SKILLS_RUN_ID|SECONDS|BASH_AR[G]|PIPE[S]TATUS"
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
    mounts = (ReadOnlyMount(folder),)
    return await local_sandbox().run(ExecutionRequest(argv, policy, mounts=mounts, **more))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def nothing_waits_yet() -> None:
    """What other tests of this process have started ahead is none of these tests'."""
    close_slots()


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Feed]:
    """The waiting ones that were given a run."""
    found: list[Feed] = []
    give = Feed.give

    def remembering(feed: Feed, *what: object) -> None:
        found.append(feed)
        give(feed, *what)  # type: ignore[arg-type]

    monkeypatch.setattr(Feed, "give", remembering)
    return found


def waiting() -> int:
    return sum(len(kind.ready) for key, kind in list(slot_pool()._kinds.items()) if key.bash is not None)


async def let_one_wait(folder: Path, **more: object) -> None:
    for _ in range(3):
        await run(folder, **more)
    deadline = time.monotonic() + 30
    while not waiting() and time.monotonic() < deadline:
        await asyncio.sleep(0.005)


def skill(folder: Path, script: str) -> Path:
    folder.mkdir()
    (folder / "a.sh").write_text(script, "utf-8")
    return folder


def facts(result: ExecutionResult) -> tuple[object, ...]:
    files = [(file.path, file.content) for file in result.files]
    return result.status, result.exit_code, result.signal, result.stdout, result.stderr, files


@pytest.mark.parametrize("name", _EACH)
async def test_a_script_finds_what_it_finds_in_a_bash_of_its_own(name: str, tmp_path: Path, given: list[Feed]) -> None:
    folder = skill(tmp_path / "skill", SCRIPTS[name])
    more: dict[str, object] = {"env": {"GRANTED": "it's ours", "TOKEN": Secret("s3cr3t-value-of-ours")}}
    cold = await run(folder, policy={"warm_slots": 0}, **more)
    await let_one_wait(folder, **more)
    given.clear()
    warm = await run(folder, **more)
    assert warm.warm
    assert len(given) == 1
    assert facts(warm) == facts(cold)


@pytest.mark.parametrize(
    "more",
    [
        {"stdin": b"text"},
        {"env": {"_": "given"}},
        pytest.param({"env": {"LC_ALL": "C"}}, marks=pytest.mark.slow),
        pytest.param({"arguments": ("a\x7fb",)}, marks=pytest.mark.slow),
        {"arguments": ("",) * 5_000},
        pytest.param({"env": {"TZ": "UTC"}}, marks=pytest.mark.slow),
        pytest.param({"env": {"HOME": "/tmp"}}, marks=pytest.mark.slow),
        pytest.param({"env": {"TEXT": "a\x01b"}}, marks=pytest.mark.slow),
        pytest.param({"arguments": ("x" * 5_000,)}, marks=pytest.mark.slow),
        pytest.param({"cwd": PurePosixPath("/skill")}, marks=pytest.mark.slow),
        pytest.param({"policy": {"tmp_bytes": 4096}}, marks=pytest.mark.slow),
    ],
)
async def test_what_a_waiting_bash_might_take_differently_gets_one_of_its_own(
    more: dict[str, object], tmp_path: Path, given: list[Feed]
) -> None:
    folder = skill(
        tmp_path / "skill", 'echo "$_"; cat; echo "$TZ $LC_ALL $HOME $TEXT"; pwd; printf %s "$1" | od -c | tail -3'
    )
    cold = await run(folder, **(more | {"policy": {"warm_slots": 0, **more.get("policy", {})}}))  # type: ignore[dict-item]
    for _ in range(4):
        warm = await run(folder, **more)
        await asyncio.sleep(0.1)
    assert not given
    assert not waiting()
    assert facts(warm) == facts(cold)


@pytest.mark.parametrize(
    "script",
    [
        "tr '\\0' ' ' < /proc/$$/cmdline",
        "shopt -s extdebug; echo ${#BASH_ARGV[@]} ${#BASH_ARGC[@]}; f() { echo ${BASH_ARGV[@]}; }; f 1",
        'echo "${PIPESTATUS[@]}"',
    ],
)
async def test_a_script_that_names_what_differs_gets_a_bash_of_its_own(
    script: str, tmp_path: Path, given: list[Feed]
) -> None:
    folder = skill(tmp_path / "skill", script)
    cold = await run(folder, policy={"warm_slots": 0})
    for _ in range(4):
        warm = await run(folder)
        await asyncio.sleep(0.05)
    assert not given
    assert not waiting()
    assert facts(warm) == facts(cold)


async def test_one_script_s_bash_is_no_other_s(tmp_path: Path, given: list[Feed]) -> None:
    folder = skill(tmp_path / "skill", "echo a")
    other = skill(tmp_path / "other", "echo b")
    await let_one_wait(folder)
    given.clear()
    assert (await run(other)).stdout == b"b\n"
    assert not given
    (folder / "a.sh").write_text("echo changed")
    assert (await run(folder)).stdout == b"changed\n"
    assert not given


async def test_a_bash_that_is_given_nothing_runs_nothing(tmp_path: Path) -> None:
    folder = skill(tmp_path / "skill", "echo ran; sleep 9")
    quick = {"policy": {"wall_seconds": 0.3}}
    await let_one_wait(folder, arguments=(), **quick)
    (slot,) = [kind.ready[0] for key, kind in slot_pool()._kinds.items() if key.bash is not None and kind.ready]
    assert slot.feed is not None
    output = os.dup(slot.started.child.stdout)
    os.set_blocking(output, True)
    slot.feed.close()  # as when the agent is gone
    assert await asyncio.to_thread(os.read, output, 100) == b""  # the end, and nothing before
    os.close(output)


async def test_where_bash_cannot_wait_scripts_run_all_the_same(
    tmp_path: Path, given: list[Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bash_ahead, "_broken", [])
    monkeypatch.setattr(bash_ahead, "_SECONDS", 0.0)
    monkeypatch.setattr(bash_ahead, "_open_files", lambda _pid: [])
    folder = skill(tmp_path / "skill", "echo x")
    for _ in range(6):
        assert (await run(folder)).stdout == b"x\n"
        await asyncio.sleep(0.05)
    assert bash_ahead._broken
    assert not given


async def test_a_forked_child_keeps_no_pipe_open(tmp_path: Path, given: list[Feed]) -> None:
    folder = skill(tmp_path / "skill", "echo x")
    await let_one_wait(folder)
    given.clear()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)  # until the parent is done
        os._exit(0)
    try:
        result = await run(folder)
    finally:
        os.close(write)
        os.close(read)
        os.waitpid(child, 0)
    assert given
    assert (result.stdout, result.timed_out) == (b"x\n", False)


async def test_a_strict_umask_of_the_agent_lets_no_script_run_unasked(tmp_path: Path, given: list[Feed]) -> None:
    folder = skill(tmp_path / "skill", "echo x")
    before = os.umask(0o077)
    try:
        await let_one_wait(folder)
        given.clear()
        assert (await run(folder)).stdout == b"x\n"
    finally:
        os.umask(before)
    assert given
    assert not bash_ahead._broken


async def test_a_bash_that_does_not_wait_is_ended_at_once_and_the_last(
    tmp_path: Path, given: list[Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bash_ahead, "_broken", [])
    monkeypatch.setattr(bash_ahead, "_SECONDS", 60.0)
    monkeypatch.setattr(bash_ahead, "TMP_DIR", PurePosixPath("/nowhere"))  # it finds nothing to read first
    folder = skill(tmp_path / "skill", "sleep 30")
    for _ in range(3):
        await run(folder, policy={"wall_seconds": 0.2})
    deadline = time.monotonic() + 20
    while not bash_ahead._broken and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)  # two are started side by side
    tried = len(bash_ahead._broken)
    assert tried in {1, 2}
    await asyncio.sleep(0.5)  # longer than until the next attempt
    await run(folder, policy={"wall_seconds": 0.2})
    assert len(bash_ahead._broken) == tried
    assert not given


def test_what_a_bash_is_given_arrives_whole_and_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Feed(None)
    reading = os.dup(feed.inside)
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data)[:7]))
    environment = {"PATH": "/bin", "Z": "1", "ADK_SKILLS_RUN_ID": "id", "B": "it's", "A": ""}
    try:
        feed.give(Bash(("bash", "/a.sh"), (("PATH", "/bin"),), ()), ("bash", "/a.sh", "x y", ""), environment)
        text = os.read(reading, 10_000).decode()
    finally:
        monkeypatch.undo()
        os.close(reading)
    assert text.splitlines()[2:] == ["set -- 'x y' ''", "export Z='1' B='it'\\''s' A='' ADK_SKILLS_RUN_ID='id'"]


def test_a_child_forked_while_a_pipe_is_made_keeps_no_end_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    held = os.pipe()
    pipe, children = os.pipe, []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os.close(held[1])
            os.read(held[0], 1)  # until the parent is done
            os._exit(0)
        children.append(child)

    def pipe_and_a_fork() -> tuple[int, int]:
        ends = pipe()
        forking.start()
        forking.join(0.3)
        return ends

    forking = threading.Thread(target=fork)
    monkeypatch.setattr(os, "pipe", pipe_and_a_fork)
    feed = Feed(None)
    monkeypatch.undo()
    forking.join()
    reading = os.dup(feed.inside)
    try:
        feed.close()
        poll = select.poll()
        poll.register(reading, select.POLLIN)
        assert poll.poll(5_000) == [(reading, select.POLLHUP)]  # the end
    finally:
        for descriptor in (reading, *held):
            os.close(descriptor)
        os.waitpid(children[0], 0)


def test_a_pipe_that_cannot_be_handed_over_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(22, "Invalid argument")

    before = set(bash_ahead._feeds)
    monkeypatch.setattr(os, "fchown", refuse)
    with pytest.raises(OSError, match="Invalid argument"):
        Feed(65_534)
    assert bash_ahead._feeds == before


async def test_a_script_s_path_that_leaves_its_folder_gets_a_bash_of_its_own(tmp_path: Path, given: list[Feed]) -> None:
    folder = skill(tmp_path / "skill", "echo x")
    policy = SandboxPolicy(isolation="namespaces", min_isolation="process", wall_seconds=20.0)
    argv = ("bash", "--noprofile", "--norc", "/skill/../skill/a.sh")
    for _ in range(4):
        result = await local_sandbox().run(ExecutionRequest(argv, policy, mounts=(ReadOnlyMount(folder),)))
        assert result.stdout == b"x\n"
        await asyncio.sleep(0.05)
    assert not given
    assert not waiting()


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
async def test_whatever_a_script_changes_in_a_workspace_that_had_settled_is_found(
    change: str, left: dict[str, bytes], tmp_path: Path, given: list[Feed]
) -> None:
    folder = skill(tmp_path / "skill", change)
    (folder / "l.txt").write_text("the skill's")
    policy = SandboxPolicy(isolation="namespaces", min_isolation="process", wall_seconds=20.0, warm_slots=1)
    argv = ("bash", "--noprofile", "--norc", "/skill/a.sh")
    request = ExecutionRequest(argv, policy, mounts=(ReadOnlyMount(folder, linked=True),))
    for _ in range(3):
        await local_sandbox().run(request)
    deadline = time.monotonic() + 30
    while not waiting() and time.monotonic() < deadline:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.1)  # longer than a change of a moment ago could hide a further one
    given.clear()
    result = await local_sandbox().run(request)
    assert given
    assert {file.path: file.content for file in result.files} == left


async def test_a_bash_that_died_between_the_look_and_the_run_is_replaced(
    tmp_path: Path, given: list[Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = skill(tmp_path / "skill", "echo x")
    await let_one_wait(folder)
    give, take = Feed.give, slot_pool().take
    taken: list[Newborn] = []

    def remember(*what: object, **more: object) -> Newborn | None:
        taken.extend([found] if (found := take(*what, **more)) is not None else [])  # type: ignore[arg-type]
        return found

    def give_to_nobody(feed: Feed, *what: object) -> None:
        taken[-1].started.end()
        is_readable(taken[-1].started.outer, 5.0)
        give(feed, *what)  # type: ignore[arg-type]

    monkeypatch.setattr(slot_pool(), "take", remember)
    monkeypatch.setattr(Feed, "give", give_to_nobody)
    given.clear()
    result = await run(folder)
    monkeypatch.undo()
    assert taken
    assert given
    assert (result.stdout, result.stderr, result.exit_code) == (b"x\n", b"", 0)
