"""The conformance suite's registry: every backend that ships is an entry of ``BACKENDS`` and passes every row.

A test names the attack row of SANDBOX.md section 3 it covers. ``@pytest.mark.level("landlock")`` says that a row
holds from that level up; without the mark it holds for all. ``@pytest.mark.local("why")`` marks rows about this
machine's own levels, which say nothing about a container.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import importlib.util
import os
import stat
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import backend_matrix
import container_engines
import level_table
from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    ReadOnlyMount,
    Sandbox,
    SandboxPolicy,
)
from adk_skills_agent.sandbox.files.removal import temporary_folder
from adk_skills_agent.sandbox.local.namespaces import zygote
from backend_versions import ran_on


@dataclass(frozen=True)
class Backend:
    """One way to run. ``require`` skips or fails the test when it cannot run on this machine."""

    name: str
    level: IsolationLevel
    make: Callable[[], Sandbox]
    require: Callable[[], None] = lambda: None
    waiting: bool = False  # every run of the fixture ``box`` uses a sandbox that was started before it
    forked: bool = False  # every sandbox of it is made by the zygote
    maker: str = "auto"  # the policy's
    grouped: bool = False  # each of its runs has a control group; at the level namespaces none has one otherwise
    is_local: bool = True  # this machine contains its runs itself
    is_elsewhere: bool = False  # what contains them there is not ours, and on loopback not there at all

    @property
    def policy(self) -> dict[str, object]:
        """Settings of a run at this level and no other."""
        return {"isolation": self.level.value, "min_isolation": self.level.value, "maker": self.maker}

    @property
    def has_namespaces(self) -> bool:
        """Whether it is this machine's own level of that name, made by this process."""
        return self.level is IsolationLevel.NAMESPACES and self.is_local

    def agent(self, program: str) -> str:
        """A program for an agent of its own, whose argument is :attr:`policy` in JSON, in this backend's world."""
        return f"{level_table.WITHOUT_GROUPS}\n{program}" if self.has_namespaces and not self.grouped else program


def _local() -> Sandbox:
    from adk_skills_agent.sandbox.local import local_sandbox

    return local_sandbox()


def _in(engine: str, runtime: str | None = None) -> Sandbox:
    from adk_skills_agent.sandbox.container import ContainerOptions, ContainerSandbox

    found = container_engines.shared(engine)
    return ContainerSandbox(found.image, base_url=found.url, options=ContainerOptions(runtime=runtime))


def _container(name: str, make: Callable[[], Sandbox], require: Callable[[], object]) -> Backend:
    return Backend(f"container-{name}", IsolationLevel.CONTAINER, make, lambda: void(require()), is_local=False)


@functools.cache
def _cluster() -> Any:
    from loopback_cluster import Cluster

    made = Cluster()
    atexit.register(made.close)
    return made


def _pods() -> Sandbox:
    made: Sandbox = _cluster().sandbox()
    return made


def _on_nodes() -> Sandbox:
    from adk_skills_agent.sandbox.ray.sandbox import RaySandbox
    from ray_nodes import shared_nodes

    return RaySandbox(shared_nodes().address, max_workers=1, runs_per_worker=64, cpus=0.1)


def _require_nodes() -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs Ray: the extra cluster")
    level_table.require("namespaces")


def _service() -> Sandbox:
    from adk_skills_agent.executors import remote_sandbox
    from remote_services import ElsewhereEnvironment

    return remote_sandbox(ElsewhereEnvironment(Path(tempfile.mkdtemp(prefix="elsewhere-", dir=_SERVICES))))


_SERVICES, _ = temporary_folder("services", _local)


def void(_value: object) -> None:
    """Nothing, whatever it was."""


def _namespaces(name: str, maker: str, *, grouped: bool, waiting: bool = False) -> Backend:
    return Backend(
        f"namespaces-{name}",
        IsolationLevel.NAMESPACES,
        _local,
        level_table.require_control_groups if grouped else functools.partial(level_table.require, "namespaces"),
        waiting=waiting,
        forked=maker == "auto",
        maker=maker,
        grouped=grouped,
    )


BACKENDS = (
    _namespaces("cgroup-bubblewrap", "bubblewrap", grouped=True),
    _namespaces("cgroup-zygote", "auto", grouped=True),
    _namespaces("bubblewrap", "bubblewrap", grouped=False),
    _namespaces("zygote", "auto", grouped=False),
    _namespaces("slots", "auto", grouped=False, waiting=True),
    *(
        Backend(name, IsolationLevel(name), _local, functools.partial(level_table.require, name))
        for name in ("landlock", "process")
    ),
    *(
        _container(engine, functools.partial(_in, engine), functools.partial(container_engines.require, engine))
        for engine in container_engines.ENGINES
    ),
    _container(
        "gvisor", functools.partial(_in, "gvisor", "runsc"), functools.partial(container_engines.require, "gvisor")
    ),
    Backend(
        "kubernetes",
        IsolationLevel.CONTAINER,
        _pods,
        functools.partial(level_table.require, "namespaces"),
        is_local=False,
        is_elsewhere=True,
    ),
    Backend("ray", IsolationLevel.NAMESPACES, _on_nodes, _require_nodes, is_local=False),
    Backend("remote", IsolationLevel.REMOTE, _service, is_local=False, is_elsewhere=True),
)


_AT_THE_END = "output comes when the run has ended, which the report says"
_TOGETHER = "the memory of all processes is limited by the place, which the report says"
_WRITTEN = "what may be written is limited by the place, which the report says"
_ITS_PROCESSORS = "the processors are the place's"
NOT_ELSEWHERE = {
    "test_output_is_there_while_the_script_still_runs": _AT_THE_END,
    "test_output_streams_while_the_script_runs": _AT_THE_END,
    "test_row_33_whoever_stops_listening_ends_the_run": _AT_THE_END,
    "test_row_33_cancelling_the_task_kills_the_script_and_removes_its_files": _AT_THE_END,
    "test_row_33_a_loop_that_is_thrown_away_ends_its_runs": _AT_THE_END,
    "test_row_33_cancelling_at_any_moment_leaves_nothing": "a run that is given up may go on, which the report says",
    "test_row_33_a_timeout_of_the_caller_ends_the_run": "a run that is given up may go on, which the report says",
    "test_row_363_a_run_that_watches_so_many_files_that_telling_them_takes_the_processors_is_ended": _ITS_PROCESSORS,
    "test_row_7_shared_memory_is_limited": _TOGETHER,
    "test_row_7_memory_that_is_in_no_process_is_counted_too": _TOGETHER,
    "test_row_8_many_children_inside_their_own_limits_are_stopped_together": _TOGETHER,
    "test_row_11_very_many_files_are_stopped_or_collection_is_bounded": _WRITTEN,
    "test_row_11_deleted_files_that_are_open_count_on_disk": _WRITTEN,
    "test_the_workspace_cannot_grow_beyond_its_limit": _WRITTEN,
    "test_deep_folders_do_not_hide_what_they_hold_from_the_limit": _WRITTEN,
    "test_row_80_disk_that_was_taken_before_anybody_looked_is_found_at_the_end": _WRITTEN,
    "test_row_80_temporary_files_count_at_the_end_too": _WRITTEN,
    "test_row_80_a_folder_that_cannot_be_listed_hides_nothing": _WRITTEN,
    "test_a_persistent_workspace_is_kept_after_a_timeout_and_never_outgrows_its_limit": _WRITTEN,
    "test_a_hard_link_to_elsewhere_keeps_the_earlier_version_and_says_so": "hard links are the place's",
    "test_a_policy_is_met_exactly_or_refused_with_reasons": "there are no levels to choose from",
}
"""Rows that other machines decide on; those that hold from a level up are theirs, too, but for these."""
_NO_TIMES = "nobody inside is told what all of it uses, and there is no group to ask"
_NO_FILES = "its file systems do not count files; what they take of memory counts"
_ITS_TASKS = "its own threads count, so the program in it ends a run that has more, or the engine ends all"
_OLD_LS = "ls of the image asks what runsc of 2022 does not know"
_OWN_KERNEL = "its kernel answers by itself, and nothing of it reaches Linux"
NOT_GVISOR = {
    "test_row_4_a_fork_bomb_stays_inside_its_limit_and_ends_at_the_deadline": _ITS_TASKS,
    "test_a_fork_bomb_is_over_soon_after_its_deadline": "64 of its processes take it long to end",
    "test_row_5_threads_run_out_in_the_script_only": _ITS_TASKS,
    "test_the_limit_of_processes_is_the_runs_own_and_exact": _ITS_TASKS,
    "test_row_11_very_many_files_are_stopped_or_collection_is_bounded": _NO_FILES,
    "test_row_11_files_without_content_are_counted_too": _NO_FILES,
    "test_row_16_cpu_of_children_is_limited_each_and_reported": _NO_TIMES,
    "test_row_16_cpu_of_a_run_that_is_killed_is_reported": _NO_TIMES,
    "test_row_16_cpu_of_strays_that_are_killed_is_reported": _NO_TIMES,
    "test_row_17_limits_cannot_be_raised_nor_those_of_others_changed": _OWN_KERNEL,
    "test_row_56_no_network_is_reached_and_refusal_is_immediate": "it refuses with other numbers",
    "test_row_62_calls_by_another_table_do_not_go_through": _OWN_KERNEL,
    "test_row_63_nothing_can_be_typed_into_a_terminal": "it refuses with other numbers",
    "test_row_64_the_kernel_cannot_be_configured": _OWN_KERNEL,
    "test_row_344_nobody_reads_what_all_of_the_machine_waits_for_meanwhile": _OWN_KERNEL,
    "test_row_363_a_run_that_watches_so_many_files_that_telling_them_takes_the_processors_is_ended": _OWN_KERNEL,
    "test_folders_named_by_the_policy_are_readable_at_their_own_path": "it refuses with other numbers",
    "test_row_29_nothing_inside_can_end_or_stop_process_1": "process 1 is one like others, and its end is an error",
    "test_row_29_a_run_whose_keeper_is_killed_is_an_error_of_the_sandbox_and_clean": "its processes are not Linux's",
    "test_row_61_two_runs_share_no_place": _OLD_LS,
}
"""Rows that gVisor decides on; see docs/reference/backends.md."""
SUPERVISED_ELSEWHERE = frozenset(
    {
        "test_row_16_cpu_of_strays_that_are_killed_is_reported",
        "test_row_20_a_daemon_that_gave_up_everything_dies_with_the_run",
        "test_row_21_children_in_sessions_of_their_own_die_at_the_deadline",
    }
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "level(name): the row holds from this isolation level up")
    config.addinivalue_line("markers", "local(why): the row is about this machine's own levels")
    config.addinivalue_line("markers", "host_side: the row attacks what the host does before and after the command")
    config.addinivalue_line("markers", "every_level: a row at one more local backend, run by make test-levels")


SLOW = frozenset({"namespaces-cgroup-bubblewrap", "namespaces-zygote", "namespaces-slots"})
"""Backends of `make test-levels`. In `make test` the level namespaces is there as most people have it: made by the
zygote with control groups, or by bubblewrap where there are none; landlock and process are there, too."""


COSTLY = frozenset(
    {
        "test_a_fork_bomb_is_over_soon_after_its_deadline",
        "test_a_package_of_the_interpreter_works",
        "test_a_program_of_the_system_works",
        "test_more_runs_than_places_take_turns_and_all_end",
        "test_row_11_ten_thousand_nested_folders_are_removed_and_the_collector_comes_back",
        "test_row_16_cpu_of_a_run_that_is_killed_is_reported",
        "test_row_11_very_many_files_are_stopped_or_collection_is_bounded",
        "test_row_16_cpu_of_children_is_limited_each_and_reported",
        "test_row_16_cpu_of_strays_that_are_killed_is_reported",
        "test_row_31_an_agent_that_is_process_1_keeps_no_zombies_after_100_runs",
        "test_row_31_daemons_and_stubborn_children_die_with_the_agent",
        "test_row_33_cancelling_at_any_moment_leaves_nothing",
        "test_row_118_a_module_imported_ahead_leads_no_file_of_the_session_out_of_the_sandbox",
        "test_row_136_locks_of_files_count_as_memory",
        "test_row_177_memory_of_a_process_that_hides_its_open_files_counts",
        "test_row_65_parallel_runs_do_not_mix_and_leave_nothing",
        "test_row_65_sixty_runs_that_end_in_every_way_leave_nothing",
        "test_row_73_too_few_descriptors_are_a_typed_error_and_leak_nothing",
        "test_row_77_a_run_uses_up_what_the_kernel_counts_for_a_user_for_itself_only",
        "test_row_79_buffers_of_sockets_count_as_memory",
        "test_row_79_large_messages_between_processes_count_as_memory",
        "test_row_79_page_tables_count_as_memory",
        "test_row_84_many_mappings_do_not_blind_the_watchdog",
        "test_several_event_loops_in_several_threads_at_once",
        "test_the_event_loop_stays_free_while_scripts_run",
        "test_hundreds_of_runs_get_their_turn_in_order_at_every_level",
    }
)
"""Rows of seconds: `make test` has them on one backend."""

WATCHED_ALIKE = frozenset(
    {
        "test_an_installer_works_on_a_wheel",
        "test_processes_without_semaphores_work",
        "test_row_11_deleted_files_that_are_open_count_on_disk",
        "test_row_12_13_a_flood_is_cut_and_the_agent_stays_small",
        "test_row_13_a_flood_on_both_streams_at_once_is_cut",
        "test_row_13_one_line_without_an_end_keeps_its_head_and_its_tail",
        "test_row_272_files_that_are_only_mapped_are_not_taken_from_all_programs",
        "test_row_27_the_way_a_script_ends_is_reported_and_no_core_is_written",
        "test_row_28_exit_codes_that_look_like_kills_are_exit_codes",
        "test_row_363_a_run_that_watches_so_many_files_that_telling_them_takes_the_processors_is_ended",
        "test_row_74_the_home_folder_is_new_in_every_run_and_nobody_elses",
        "test_row_7_memory_that_is_in_no_process_is_counted_too",
        "test_row_7_shared_memory_is_limited",
        "test_row_80_a_folder_that_cannot_be_listed_hides_nothing",
        "test_row_80_disk_that_was_taken_before_anybody_looked_is_found_at_the_end",
        "test_row_8_many_children_inside_their_own_limits_are_stopped_together",
        "test_row_95_code_that_an_environment_runs_at_its_start_has_no_more_than_a_script",
    }
)
"""Rows of tenths of a second that what starts, watches and ends a run decides, which landlock and process share:
`make test` has them at landlock and not at process; cheaper rows about the same are there at both."""


@functools.cache
def _usual() -> str:
    """The backend that `make test` has for the level namespaces."""
    grouped = level_table.problem_of_control_groups() is None
    return "namespaces-cgroup-zygote" if grouped else "namespaces-bubblewrap"


def _is_slow(backend: Backend, row: str, *, host_side: bool, usual: str) -> bool:
    """Whether a row is left to `make test-slow` on a backend."""
    if not backend.is_local:
        return True
    if row in COSTLY:
        return backend.name != usual
    if row in WATCHED_ALIKE and backend.level is IsolationLevel.PROCESS:
        return True
    if host_side:  # what is done before and after a run
        return backend.name not in (usual, "landlock")
    return backend.name in SLOW or (backend.has_namespaces and backend.name != usual)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each row on each backend; those that are not wanted are not even collected, which takes seconds a worker."""
    if "backend" not in metafunc.fixturenames:
        return
    host_side = any(mark.name == "host_side" for mark in metafunc.definition.iter_markers())
    all_slow = any(mark.name == "slow" for mark in metafunc.definition.iter_markers())
    fast_only = metafunc.config.getoption("markexpr") == "not slow"
    usual, chosen = _usual(), []
    for one in BACKENDS:
        slow = _is_slow(one, metafunc.definition.originalname, host_side=host_side, usual=usual)
        if fast_only and slow:
            continue
        marks = [pytest.mark.slow] if slow else []
        if slow and one.is_local and not all_slow:
            marks.append(pytest.mark.every_level)
        chosen.append(pytest.param(one, id=one.name, marks=marks))
    metafunc.parametrize("backend", chosen, indirect=True)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Backend:
    chosen: Backend = request.param
    told: dict[str, Any] = {
        "backend": chosen.name,
        "test": f"{request.module.__name__}::{request.function.__name__}",
        "applies": False,
        "is_local": chosen.is_local,
        "setup_ms": [],
    }
    request.node.user_properties.append((backend_matrix.PROPERTY, told))
    mark = request.node.get_closest_marker("level")
    if mark is not None and chosen.level.strength < IsolationLevel(mark.args[0]).strength:
        pytest.skip(f"holds from level {mark.args[0]} up; {chosen.name} is {chosen.level.value}")
    row = request.function.__name__
    if chosen.is_elsewhere and row not in SUPERVISED_ELSEWHERE and (mark is not None or row in NOT_ELSEWHERE):
        why = NOT_ELSEWHERE.get(row, "what keeps scripts apart is the place's own")
        pytest.skip(f"{chosen.name}: {why}")
    if chosen.name == "container-gvisor" and row in NOT_GVISOR:
        pytest.skip(f"{chosen.name}: {NOT_GVISOR[row]}")
    own = request.node.get_closest_marker("local")
    if own is not None and not chosen.is_local:
        pytest.skip(f"about this machine's own levels: {own.args[0]}")
    told["applies"] = True
    chosen.require()
    if not chosen.is_local or os.environ.get("ADK_SKILLS_WRITE_DOCS"):
        told["ran_on"] = ran_on(chosen.name)
    return chosen


LATE_SECONDS = 10.0
"""How late a limit may strike on a loaded machine; row 2 of the table wants 0.3 s on an idle one."""


@dataclass
class Box:
    """Runs attacks: real scripts of a skill, mounted at /skill, under a policy of the backend's level."""

    sandbox: Sandbox
    skill: Path
    policy: dict[str, object]
    setup_ms: list[float] = field(default_factory=list)
    _count: int = field(default=0)

    @property
    def has_own_file_system(self) -> bool:
        """The workspace is a file system of its limited size: full is an error in the script, not a stop of the run."""
        return IsolationLevel(str(self.policy["isolation"])).strength >= IsolationLevel.NAMESPACES.strength

    def script(self, code: str | bytes, suffix: str = ".py", name: str | None = None) -> str:
        """Write a script into the skill; its path in the sandbox."""
        self._count += 1
        path = self.skill / "scripts" / (name or f"attack_{self._count}{suffix}")
        path.write_bytes(code if isinstance(code, bytes) else code.encode())
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return f"/skill/scripts/{path.name}"

    def request(self, *argv: str, **settings: object) -> ExecutionRequest:
        """A request; settings that are fields of the policy go there, the others into the request."""
        policy = dict(self.policy)
        rest = {}
        for key, value in settings.items():
            (policy if key in SandboxPolicy.__dataclass_fields__ and key != "env" else rest)[key] = value
        rest.setdefault("mounts", (ReadOnlyMount(self.skill),))
        return ExecutionRequest(argv=argv, policy=SandboxPolicy(**policy), **rest)  # type: ignore[arg-type]

    async def run(self, *argv: str, **settings: object) -> ExecutionResult:
        result = await self.sandbox.run(self.request(*argv, **settings))
        self.setup_ms.append(result.setup_ms)
        return result

    def assert_on_time(self, result: ExecutionResult, seconds: float) -> None:
        """The command ended when its deadline, with the grace, says: not before ``seconds`` and not much later."""
        assert seconds * 1000 - 50 < result.wall_ms < (seconds + LATE_SECONDS) * 1000

    async def python(self, code: str | bytes, *args: str, **settings: object) -> ExecutionResult:
        return await self.run("python3", self.script(code), *args, **settings)

    async def bash(self, code: str | bytes, *args: str, **settings: object) -> ExecutionResult:
        return await self.run("bash", self.script(code, ".sh"), *args, **settings)


@pytest.fixture
def maker(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs of a backend with namespaces have a control group, or none; sandboxes it is to fork are all forked."""
    if not backend.has_namespaces:
        return
    from adk_skills_agent.sandbox.local.namespaces import zygote

    if not backend.grouped:
        level_table.enter(level_table.UNGROUPED, monkeypatch)

    ready = zygote.ZygoteLife.ready

    def at_once(life: zygote.ZygoteLife, uid: int | None) -> zygote.Zygote:
        found = ready(life, uid)
        if found is None:
            assert life.wait(20.0), "no zygote can be started here"
            found = ready(life, uid)
        assert found is not None
        return found

    if backend.forked:
        monkeypatch.setattr(zygote, "_FIRST_OF_USE", 1)
        monkeypatch.setattr(zygote.ZygoteLife, "ready", at_once)
        monkeypatch.setattr(zygote.ZygoteLife, "failed", _refuse)


def _refuse(_life: object, _zygote: object, error: Exception) -> None:
    raise AssertionError("bubblewrap made a sandbox that should have been forked") from error


@pytest.fixture
def box(
    request: pytest.FixtureRequest,
    backend: Backend,
    tmp_path: Path,
    nothing_left: None,
    maker: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Box]:
    if backend.waiting:
        from adk_skills_agent.sandbox.local.namespaces.zygote import start_waiting
        from adk_skills_agent.sandbox.warm_pool import WarmPool

        # Made the moment it is needed: the same sandbox and the same job, without the wait for an idle one.
        monkeypatch.setattr(WarmPool, "take", lambda _pool, spec, _wanted: start_waiting(spec))
    skill = tmp_path / "skill"
    (skill / "scripts").mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: skill\ndescription: attacks\n---\n")
    sandbox = backend.make()
    yield Box(
        sandbox,
        skill,
        {**backend.policy, "wall_seconds": 20.0},
        dict(request.node.user_properties)[backend_matrix.PROPERTY]["setup_ms"],
    )
    if not backend.is_local:
        asyncio.run(sandbox.close())


Run = Callable[..., Awaitable[ExecutionResult]]


@pytest.fixture
def agent_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent whose own environment is full of what must not get through."""
    for name, value in {
        "GOOGLE_API_KEY": "hunter2",
        "PYTHONPATH": "/hunter2",
        "BASH_ENV": "/hunter2",
        "ENV": "/hunter2",
        "IFS": "hunter2",
        "PYTHONSTARTUP": "/hunter2",
        "NODE_OPTIONS": "hunter2",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"/hunter2:{os.environ['PATH']}")
