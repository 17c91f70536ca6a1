"""One run with namespaces of its own: bubblewrap, a workspace in memory, its files reached through descriptors."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from adk_skills_agent.errors import SandboxError
from adk_skills_agent.sandbox.contract import WORK_DIR, ExecutionRequest, SandboxPolicy
from adk_skills_agent.sandbox.local.aftermath import Aftermath
from adk_skills_agent.sandbox.local.at_once import TakesTimeError, is_empty
from adk_skills_agent.sandbox.local.bash_ahead import bash_of
from adk_skills_agent.sandbox.local.command import encode
from adk_skills_agent.sandbox.local.confined_run import not_started
from adk_skills_agent.sandbox.local.confinement import process_limits, run_uid
from adk_skills_agent.sandbox.local.environment import build_environment
from adk_skills_agent.sandbox.local.exact_end import exact_status, told_status
from adk_skills_agent.sandbox.local.guest_control import GuestControl
from adk_skills_agent.sandbox.local.inner_command import check_inside, check_sources, inner_command, mounted, view_of
from adk_skills_agent.sandbox.local.late_close import do_late, when_idle
from adk_skills_agent.sandbox.local.newborn import Birth, Newborn, born_plainly
from adk_skills_agent.sandbox.local.own_interpreter import script_position
from adk_skills_agent.sandbox.local.population import TICKS_PER_SECOND, alive_below, besides, cpu_seconds
from adk_skills_agent.sandbox.local.private_folders import PrivateFolders
from adk_skills_agent.sandbox.local.processes import RunMarks
from adk_skills_agent.sandbox.local.python_view import shown_at
from adk_skills_agent.sandbox.local.reaping import reap_late
from adk_skills_agent.sandbox.local.run import TMP_DIR, LocalRun, drain
from adk_skills_agent.sandbox.local.sandbox_choice import new_sandbox, slot_key
from adk_skills_agent.sandbox.local.sandbox_start import (
    Started,
    folders_on_the_way,
    is_readable,
    sandbox_spec,
)
from adk_skills_agent.sandbox.local.slots import slot_pool
from adk_skills_agent.sandbox.local.waiting_sandbox import Command, hand_over, take_waiting
from adk_skills_agent.sandbox.local.watchdog import DiskLimit
from adk_skills_agent.sandbox.local.workspace import Stamp, Workspace, fill_workspace, stamp

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.local.network import RunNetwork

_KILL_SECONDS = 5.0
_DYING_SECONDS = 0.5  # a killed process is not dead at once
_FEW_FILES, _FEW_BYTES = 32, 64 << 10  # what is collected in the time that changing over to a thread takes


class NamespacesRun(LocalRun):
    """A run in a sandbox made by bubblewrap.

    Args:
        request: What to run.
        policy: Its checked policy.
    """

    def __init__(self, request: ExecutionRequest, policy: SandboxPolicy) -> None:
        super().__init__(request, policy)
        self.birth: Birth = born_plainly
        self._network = _network(request, policy)
        self._uid = run_uid(policy)
        self._started_sandbox: Started | None = None
        self._folders: PrivateFolders | None = None
        self._command_end: int | None = None  # the command's pidfd
        self._alive_besides: int | None = None
        self._killed_cpu = 0.0
        self._ordered = False
        self._own_cpu = 0.0
        self._on_the_way: tuple[str, ...] = ()
        self._given: Command
        self._marker = ""
        self._at_once = False
        self._left_alone: Stamp | None = None  # the workspace before the command, when a change of it would show

    @property
    def disk(self) -> tuple[DiskLimit, ...]:
        """The three file systems of the run that it can write to."""
        assert self._folders is not None  # noqa: S101  # only called after start()
        return self._folders.limits(self._policy)

    def start_at_once(self) -> bool:
        """With a warm slot, and when there is nothing to be put into it."""
        request = self._request
        if request.input_files or self._network is not None or not is_empty(request.workspace):
            return False
        self._at_once = True
        try:
            self.start()
        except TakesTimeError:
            return False
        finally:
            self._at_once = False
        return True

    def finishes_at_once(self) -> bool:
        """When nothing is alive any more, and next to nothing is to be collected, or brought back to a disk."""
        folders, workspace = self._folders, self._workspace
        if folders is None or workspace is None or workspace.persistent or not self._is_alone():
            return False
        if self._is_untouched():
            return True
        if self._request.workspace is None:
            return folders.holds_little(_FEW_FILES, _FEW_BYTES)
        return folders.holds_little(len(workspace.links) + len(self._on_the_way), 0)

    def terminate(self) -> None:
        """Ask the command to end: SIGTERM to its group. Process 1, which leads it, does not heed it."""
        box = self._started_sandbox
        if box is None or self._over or os.getpid() != self._owner:
            return
        for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process could not answer
            with contextlib.suppress(OSError):
                os.killpg(box.first_pid, number)

    def kill(self) -> None:
        """End everything of the run now: the kernel ends a namespace with its first process."""
        box = self._started_sandbox
        if box is None or os.getpid() != self._owner:
            return
        self._ordered = True
        self._count(box)
        box.end()

    def may_write_more(self) -> bool:
        """Whether anything but process 1 is alive; bubblewrap keeps the pipes open, so their end says nothing."""
        box = self._started_sandbox
        if box is None or os.getpid() != self._owner:
            return False
        if isinstance(box.control, GuestControl):
            box.control.listen()
            if box.control.alone:
                return False
        return besides(alive_below(box.first_pid), box.command) > 0

    def _count(self, box: Started) -> None:
        """Count what is alive besides the command, and what all used; only the first time counts."""
        if self._alive_besides is None:
            alive = alive_below(box.first_pid)
            self._alive_besides = besides(alive, box.command)
            # A killed namespace takes the times of what died with it along.
            self._killed_cpu = sum(info.cpu_ticks for info in alive) / TICKS_PER_SECOND

    def _prepare_and_spawn(self) -> None:
        request, policy = self._request, self._policy
        environment = build_environment(
            policy,
            request.env,
            workspace=str(WORK_DIR),
            tmp=str(TMP_DIR),
            run_id=self.run_id,
        )
        check_sources(request, policy, self._uid)
        if self._network is not None:
            environment.update(self._network.environment())
        shown = mounted(request)
        self.view = view_of(shown)
        command = inner_command(request, policy, environment["PATH"], shown)
        self.shown = command.shown
        environment["PATH"] = ":".join(shown_at(folder) for folder in environment["PATH"].split(":"))
        script = None
        if policy.python in {None, sys.executable}:
            script = script_position([command.on_host, *command.argv[1:]], environment)
        spec = sandbox_spec(request, policy, self._uid)
        self._on_the_way = folders_on_the_way(spec.shown)
        made_of = (request, policy, spec, command.argv, script)
        limits = process_limits(policy, None if policy.pids is None else policy.pids + 1)  # process 1 counts, too
        key = slot_key(*made_of, self.birth)
        bash = None if key is None else bash_of(request, policy, command.argv, environment, limits)
        self._given = given = Command(command.argv, environment, limits, script, bash)
        slot = None
        if key is not None:
            slot = take_waiting(key, given, policy.warm_slots, self.run_id, patient=not self._at_once)
        if slot is not None and self._begin_in(slot):
            self.warm = True
            return
        if self._at_once:
            raise TakesTimeError
        with slot_pool().cold_start() if policy.warm_slots else contextlib.nullcontext():
            self._begin_in(self.birth(lambda: new_sandbox(*made_of, environment)))

    def _begin_in(self, newborn: Newborn) -> bool:
        """Fill a sandbox and let the command begin; False when the sandbox had died while it was idle (row 71)."""
        box = newborn.started
        newborn.close_stats()
        self._started_sandbox, self.child = box, box.child
        self.adopt(newborn)
        try:
            self._fill_and_begin(newborn, self._given.environment["PATH"])
        except BaseException as error:
            died = isinstance(error, (SandboxError, OSError)) and is_readable(
                box.first, _DYING_SECONDS if newborn.was_idle else 0
            )
            self._ordered = True
            try:
                self._end_processes(Aftermath())
            finally:
                if newborn.feed is not None:
                    newborn.feed.close()
            self._close()
            if not died or not newborn.was_idle:
                raise
            self._drop_folders()
            self._ordered, self._alive_besides, self._killed_cpu = False, None, 0.0
            return False
        return True

    def adopt(self, newborn: Newborn) -> None:
        """Take over what a sandbox was born with."""

    def _fill_and_begin(self, newborn: Newborn, path: str) -> None:
        request, policy, box = self._request, self._policy, newborn.started
        self._folders = folders = box.folders
        self._workspace = workspace = newborn.workspace or Workspace("", folders.work, folders.tmp)
        if workspace.links and not (self._at_once or (request.input_files == () and is_empty(request.workspace))):
            workspace.unlink()  # files of these names come first
        workspace.given_folders.update(self._on_the_way)
        if not self._at_once:  # else there is nothing
            fill_workspace(
                workspace,
                policy,
                persistent=request.workspace,
                input_files=request.input_files,
                mounts=() if workspace.links else request.mounts,
                inside=True,
            )
            self._own(workspace)
        check_inside(request, policy, workspace, path)
        self._left_alone = None if workspace.given or workspace.given_folders else folders.settled()
        if self._network is not None:
            self._network.start(box.first_pid)
        if isinstance(box.control, GuestControl):
            self._own_cpu = cpu_seconds(box.command)
            hand_over(newborn, box.control, self._given, request)
        else:
            self._own_cpu = cpu_seconds(self.child.pid) + cpu_seconds(box.first_pid)
            if box.command:
                self._command_end = os.pidfd_open(box.command)
            name = f".not-started-{os.urandom(8).hex()}"
            self._marker = f"{folders.tmp}/{name}"
            box.control.begin(f"{TMP_DIR}/{name}")
        self.child.started = time.monotonic()
        self.marks = RunMarks(self.child.pid, self.run_id, "", frozenset(), self.child.started)

    def _own(self, workspace: Workspace) -> None:
        uid = self._uid
        if uid is None:
            return
        for name in workspace.given_folders.difference(self._on_the_way):
            os.chown(encode(f"{workspace.work}/{name}"), uid, uid, follow_symlinks=False)
        for name in workspace.given:
            path = encode(f"{workspace.work}/{name}")
            os.chown(path, uid, uid, follow_symlinks=False)
            workspace.given[name] = stamp(os.lstat(path))

    def _end_processes(self, result: Aftermath) -> None:
        box, child = self._started_sandbox, self.child
        assert box is not None  # noqa: S101  # only called after the sandbox was made
        if self._is_alone():
            self._take_leave(box, result)
            return
        self._count(box)
        result.killed = self._alive_besides or 0
        # Our own kill is none by others, and only a forked sandbox shows it in its status.
        ours = child.pid == box.first_pid and not is_readable(box.first, 0)
        box.end()
        hung = False
        if not is_readable(box.outer, _KILL_SECONDS):
            box.end_outer()
            hung = True
            if not is_readable(box.outer, _KILL_SECONDS):
                result.survivors += 1  # it hangs inside the kernel; nothing can be done about it
        self._close_network(result)
        result.rest = (drain(child.stdout), drain(child.stderr))
        with contextlib.suppress(ChildProcessError):
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            child.waited = (status, usage) if pid else None
        with contextlib.suppress(ChildProcessError):
            os.waitpid(box.first_pid, os.WNOHANG)  # ours when bubblewrap died first and the agent is process 1
        if child.waited is not None:
            usage = child.waited[1]
            result.cpu_seconds = max(0.0, usage.ru_utime + usage.ru_stime - self._own_cpu) + self._killed_cpu
            peak = usage.ru_maxrss * 1024
            result.max_rss = peak if peak > child.starter_rss else None
        if child.waited is not None and os.WIFSIGNALED(child.waited[0]) and not (hung or ours or self._ordered):
            # Nobody inside can do that (row 29), and how its command ended then says nothing about the command.
            raise SandboxError(
                "The sandbox of the run was killed by something outside of it, perhaps because the system has no "
                "memory left; it is not known how the command ended."
            )
        self._tell_end(box, result)

    def _is_alone(self) -> bool:
        """Whether nothing of the run is left but process 1 and bubblewrap, which end by themselves."""
        box = self._started_sandbox
        if box is None or self._ordered or not isinstance(box.control, GuestControl):
            return False
        box.control.listen()
        return box.control.alone

    def _take_leave(self, box: Started, result: Aftermath) -> None:
        """End a run in which nothing is alive any more; what is left of its sandbox need not be waited for."""
        control, child = box.control, box.child
        assert isinstance(control, GuestControl)  # noqa: S101  # nobody else says so
        self._close_network(result)
        result.rest = (drain(child.stdout), drain(child.stderr))
        result.cpu_seconds = max(0.0, control.cpu_seconds - self._own_cpu)
        result.max_rss = control.max_rss
        self._tell_end_of_guest(control, result)

    def _close_network(self, result: Aftermath) -> None:
        if self._network is not None:
            self._network.stop()
            result.network = self._network.decisions
            result.notes.extend(self._network.notes())

    def _tell_end(self, box: Started, result: Aftermath) -> None:
        if isinstance(box.control, GuestControl):
            self._tell_end_of_guest(box.control, result)
            return
        exact = None if self._command_end is None else exact_status(self._command_end)
        result.status, result.inferred = told_status(exact, box.control.exit_code())
        if result.status is None and self._ordered:
            result.status = int(signal.SIGKILL)

    def _tell_end_of_guest(self, control: GuestControl, result: Aftermath) -> None:
        control.listen()
        result.status = control.status
        if control.failure is not None and not self._ordered:
            raise not_started(self.shown, *control.failure)
        if control.status is None and self._ordered:
            result.status = int(signal.SIGKILL)

    def _never_started(self, result: Aftermath) -> bool:
        return self._marker != "" and super()._never_started(result)

    def _collect(self, result: Aftermath) -> None:
        assert self._workspace is not None  # noqa: S101  # checked by the caller
        assert self._folders is not None  # noqa: S101  # made together
        if self._is_untouched():
            result.notes.extend(self._workspace.notes)
            return
        self._folders.open_again()
        for name in reversed(self._on_the_way):
            place = encode(f"{self._workspace.work}/{name}")
            with contextlib.suppress(OSError):  # the script put something there
                try:
                    os.rmdir(place)  # noqa: PTH106
                except NotADirectoryError:  # a file was shown there
                    os.unlink(place)  # noqa: PTH108
        super()._collect(result)

    def _is_untouched(self) -> bool:
        """Whether the workspace holds what it held before the command: nothing was made, removed or renamed in it."""
        assert self._folders is not None  # noqa: S101  # checked by the caller
        return self._left_alone is not None and self._left_alone == self._folders.settled()

    def _close(self) -> None:
        if self._is_alone() and self._started_sandbox is not None:
            do_late(self._started_sandbox.reap)
        elif self._started_sandbox is not None:
            if self.child.waited is None:
                reap_late(self.child.pid)
            self._started_sandbox.close()
        self._started_sandbox = None
        if self._command_end is not None:
            os.close(self._command_end)
            self._command_end = None
        if self.warm:
            when_idle(slot_pool().refill)

    def _drop_workspace(self, *, started: bool) -> str | None:
        self._drop_folders()
        return super()._drop_workspace(started=started)

    def _drop_folders(self) -> None:
        # Nothing to delete: the file systems end with the last descriptor.
        self._workspace = None
        folders, self._folders = self._folders, None
        if folders is not None:
            folders.close()


def _network(request: ExecutionRequest, policy: SandboxPolicy) -> RunNetwork | None:
    if policy.network.mode != "allow":
        return None  # nothing of the proxy is imported
    from adk_skills_agent.sandbox.local.network import network_of_run

    return network_of_run(request, policy)
