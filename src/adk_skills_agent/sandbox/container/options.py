"""How a container is made: hardened, each default switchable by name and then reported (S0-99 to S0-104)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sandbox.container.engine import EngineInfo
from adk_skills_agent.sandbox.contract import HOME_DIR, SandboxPolicy
from adk_skills_agent.sandbox.process.command import HIDDEN_OF_KERNEL, PENDING_SIGNALS, STACK_BYTES, most_watches
from adk_skills_agent.sandbox.process.seccomp import NAMESPACES, WITHOUT_TIMERS, kernel_sentences, program
from adk_skills_agent.sandbox.process.system_calls import NUMBERS
from adk_skills_agent.sandbox.supervisor import frames

NOBODY = 65534
_MOST_SOCKETS = 1_024
_SHARE_OF_SOCKETS = 4  # a run may have one part in so many of its memory in sockets besides
_MOST_TERMINALS = 8  # as on this machine; an engine's mount has no bound but the machine's 3,072
_GVISOR = "runsc"
_GVISOR_TASKS, _GVISOR_TASKS_EACH = 128, 12
"""Tasks on the host: gVisor's own (56 were seen), and for each process of a run (8 were seen, with ptrace)."""
_SUPERVISOR_PROCESSES = 2  # and its other thread
_SUPERVISOR_MEMORY_BYTES = 32 << 20
_OOM_SCORE = 500
"""Of all in a container when the machine's memory is full: nobody in it may go below (row 334).

What the program in it starts goes on to 1,000, so that the kernel takes a script and not that program, which has to
tell of it, when only the container's memory is full.
"""
_HIDDEN = tuple(f"/proc/{name}" for name in HIDDEN_OF_KERNEL)
_MASKED_BY_DOCKER = (
    *("/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats"),
    *("/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"),
    "/sys/devices/virtual/powercap",
)
"""The paths that Docker hides by itself; whoever names some has to name these, too."""
_OF_CONTAINER = {
    *("image", "entrypoint", "command", "environment", "working_dir", "user", "labels", "hostname"),
    *("stdin_open", "tty", "use_config_proxy"),
}
"""Settings that the SDK takes for the container; the others are for its host."""
_NICENESS = 19  # of scripts; beside others of the machine counts what the engine gives to the container
_LEAST_FILES = 4096  # more than a script, see limit_files()
_PAGE_BYTES = 4096
_ENVIRONMENT = {
    "HOME": str(HOME_DIR),
    "TMPDIR": "/tmp",  # noqa: S108  # the container's own
    "LANG": "C.UTF-8",
    "PYTHONUTF8": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "PYTHONUNBUFFERED": "1",
    **WITHOUT_TIMERS,
}
"""What code of a session sees; a command gets an environment of its own."""


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """What holds for every container; a limit of a run (memory, processes, time, sizes) is the policy's.

    Attributes:
        user: User and group of everything in it, as ``uid:gid``; None takes the image's, which may be root.
        read_only_root: The image's files cannot be changed; only ``/work``, ``/tmp`` and ``/dev/shm`` can.
        drop_capabilities: No capability of root is left, also not for root.
        no_new_privileges: Set-user-id programs give nothing.
        private_ipc: Shared memory and semaphores of its own.
        keep_logs: Let the engine keep what the supervisor writes; False has no log that could fill its disk.
        cpus: Processors it may use at most, as a number that may be a fraction; None for all.
        runtime: OCI runtime, such as ``runsc`` (gVisor); None takes the engine's.
        seccomp_profile: JSON text of a profile instead of the engine's; None takes the engine's.
        network: The engine's network that a policy with network ``host`` gets.
        python: The image's Python, 3.8 or newer.
    """

    user: str | None = f"{NOBODY}:{NOBODY}"
    read_only_root: bool = True
    drop_capabilities: bool = True
    no_new_privileges: bool = True
    private_ipc: bool = True
    keep_logs: bool = False
    cpus: float | None = 1.0
    runtime: str | None = None
    seccomp_profile: str | None = None
    network: str = "bridge"
    python: str = "python3"

    def __post_init__(self) -> None:
        if self.cpus is not None and not (isinstance(self.cpus, (int, float)) and 0 < self.cpus < math.inf):
            raise ConfigError(f"cpus must be a number above 0, or None for all processors, not {self.cpus!r}.")
        if self.user is not None and not all(part.isdigit() for part in self.user.split(":")):
            raise ConfigError(f"user must be uid:gid in numbers, or None for the image's, not {self.user!r}.")
        if not self.python or "\0" in self.python:
            raise ConfigError(f"python must name the image's interpreter, not {self.python!r}.")

    def weakened(self) -> tuple[str, ...]:
        """One sentence for each default that is switched off."""
        as_root = self.user is not None and self.user.split(":")[0] == "0"
        writable = not self.read_only_root
        sentences = {
            "user=None: programs run as the image's user, which may be root.": self.user is None,
            f"user={self.user!r}: programs run as root of the container.": as_root,
            "read_only_root=False: the image's files can be changed, and take the engine's disk.": writable,
            "drop_capabilities=False: the container has the engine's default capabilities.": not self.drop_capabilities,
            "no_new_privileges=False: set-user-id programs of the image give their rights.": not self.no_new_privileges,
            "private_ipc=False: shared memory is the engine's default.": not self.private_ipc,
            "keep_logs=True: what the supervisor writes is kept on the engine's disk.": self.keep_logs,
            "seccomp_profile='unconfined': no system call is filtered.": self.seccomp_profile == "unconfined",
        }
        return tuple(sentence for sentence, is_off in sentences.items() if is_off)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a container is made of: what is the same for two runs can be made ahead.

    ``volumes`` are the names of volumes and where they are, ``folders`` host folders and where they are, all read-only.
    """

    image: str
    options: ContainerOptions
    policy: SandboxPolicy
    volumes: tuple[tuple[str, PurePosixPath], ...] = ()
    folders: tuple[tuple[str, str], ...] = ()

    def settings(self, info: EngineInfo, text: str, labels: Mapping[str, str]) -> dict[str, Any]:
        """Arguments of the SDK's ``containers.create``, and ``masked_paths``, unknown to it (:func:`create`)."""
        from docker.types import Mount, Ulimit

        options, policy = self.options, self.policy
        made: dict[str, Any] = {
            "image": self.image,
            "entrypoint": [options.python, "-I", "-c", text],
            "command": [],
            "stdin_open": True,
            "tty": False,
            "working_dir": "/work",
            # Else the SDK adds the proxies of the user's own settings, with their logins (row 281).
            "use_config_proxy": False,
            "hostname": "sandbox",
            "environment": dict(_ENVIRONMENT),
            "labels": dict(labels),
            # Podman ignores network_disabled. "none" has a loopback interface of its own, and nothing else.
            "network_mode": options.network if policy.network.mode == "host" else "none",
            "read_only": options.read_only_root,
            "tmpfs": self._tmpfs(info),
            # Docker gives it from the policy's memory, like every file in memory.
            "shm_size": max(policy.shm_bytes or 0, 4096) if policy.shm_bytes is not None else policy.memory_bytes,
            "ulimits": [
                Ulimit(name="core", soft=1, hard=1),  # not 0, see process_limits()
                # Podman passes its own limit on, which may be above what it may set itself.
                Ulimit(name="nofile", soft=self._files(), hard=self._files()),
            ],
            "mounts": [
                *(Mount(str(at), name, type="volume", read_only=True, no_copy=True) for name, at in self.volumes),
                *(Mount(at, folder, type="bind", read_only=True) for folder, at in self.folders),
            ],
        }
        if not info.rootless:  # there it bounds nothing: only root can forbid to lower it again
            made["oom_score_adj"] = _OOM_SCORE
        # When its program ends, as it does with the agent's stream, nothing of it is left. Podman could not tell any
        # more how it ended.
        made["auto_remove"] = not info.is_podman
        if info.is_podman:
            made["ulimits"].append(Ulimit(name="nproc", soft=4096, hard=4096))
        if options.user is not None:
            made["user"] = options.user
        if options.drop_capabilities:
            made["cap_drop"] = ["ALL"]
        security = ["no-new-privileges"] if options.no_new_privileges else []
        if info.is_podman:  # besides its own; Docker's own are replaced
            security.append(f"mask={':'.join(_HIDDEN)}")
        else:
            made["masked_paths"] = [*dict.fromkeys((*_MASKED_BY_DOCKER, *_HIDDEN))]
        if options.seccomp_profile is not None:
            security.append(f"seccomp={options.seccomp_profile}")
        if security:
            made["security_opt"] = security
        made["sysctls"] = {}
        if made["network_mode"] == "none":  # a server cannot ask for the port of connections that have just ended
            made["sysctls"]["net.ipv4.tcp_max_tw_buckets"] = "0"
        if options.private_ipc:
            made["ipc_mode"] = "private"
            most = policy.memory_bytes if policy.shm_bytes is None else policy.shm_bytes
            if most is not None:  # of System V; its pages are counted as the container's memory when they are used
                made["sysctls"] |= {"kernel.shmmax": str(most), "kernel.shmall": str(most // _PAGE_BYTES)}
        if not options.keep_logs:
            made["log_config"] = {"Type": "none"}
        if options.cpus is not None:
            made["nano_cpus"] = int(options.cpus * 1e9)
        if options.runtime is not None:
            made["runtime"] = options.runtime
        if policy.memory_bytes is not None:
            made["mem_limit"] = made["memswap_limit"] = policy.memory_bytes + _SUPERVISOR_MEMORY_BYTES
        pids = None if policy.pids is None else policy.pids + _SUPERVISOR_PROCESSES
        if pids is not None and _is_gvisor(options, info):
            pids = _GVISOR_TASKS + _GVISOR_TASKS_EACH * pids
        made["pids_limit"] = -1 if pids is None else pids
        return made

    def hello(self, info: EngineInfo) -> dict[str, Any]:
        """What the program in it is told first: limits that no engine sets, or not every one."""
        policy, memory, is_gvisor = self.policy, self.policy.memory_bytes, _is_gvisor(self.options, info)
        limits = {
            "CORE": 1,
            "FSIZE": policy.file_bytes,
            "NOFILE": policy.open_files,
            # gVisor knows no such limit, and refuses one; its signals are in its own memory.
            "SIGPENDING": None if is_gvisor else PENDING_SIGNALS,
            "STACK": None if memory is None else [min(STACK_BYTES, memory), memory],
        }
        places = ("/work", "/tmp", "/dev/shm")  # noqa: S108
        return {
            "limits": {name: most for name, most in limits.items() if most is not None},
            "inodes": {} if policy.workspace_inodes is None else dict.fromkeys(places, policy.workspace_inodes),
            # Control groups of version 1 are charged nothing of TCP, no group for what nobody accepts or for datagrams.
            # With a network it may be the host's.
            "sockets": None if policy.network.mode == "host" or memory is None else _MOST_SOCKETS,
            "socket_bytes": memory // _SHARE_OF_SOCKETS if memory is not None else None,
            "nice": _NICENESS,
            "terminals": _MOST_TERMINALS,
            # A control group counts gVisor's own threads; the program counts those of the run.
            "tasks": policy.pids if is_gvisor else None,
            "watches": most_watches(policy),
            "alone": True,
            # The engine's own filter leaves more open than a script needs: ptrace, io_uring, netlink, other tables.
            "filters": {arch: frames.base64(program(arch, NAMESPACES)) for arch in NUMBERS},
        }

    def _files(self) -> int:
        # The supervisor lowers it for what it starts; it needs a few itself.
        return max(self.policy.open_files or 1024, _LEAST_FILES)

    def _tmpfs(self, info: EngineInfo) -> dict[str, str]:
        policy = self.policy
        found = {
            "/work": _memory_folder(info, policy.workspace_bytes, policy.workspace_inodes, self.options.user),
            "/tmp": _memory_folder(info, policy.tmp_bytes, policy.workspace_inodes, self.options.user),  # noqa: S108
        }
        if info.is_podman and self.options.read_only_root:
            # Podman makes these writable in a read-only container, without a limit.
            found |= dict.fromkeys(("/run", "/var/tmp"), "rw,size=4096,mode=0555,nosuid,nodev,noexec")  # noqa: S108
        return found

    def report_of(self, info: EngineInfo) -> dict[str, str]:
        """Who enforces what, for the isolation report."""
        options, policy = self.options, self.policy
        runtime = options.runtime or info.default_runtime or "its runtime"
        by, is_gvisor = f"{info.product} ({runtime})", _is_gvisor(options, info)
        return {
            "files": f"{by}: read-only image" if options.read_only_root else f"{by}: image",
            "network": f"{by}: network {options.network}" if policy.network.mode == "host" else f"{by}: no network",
            "processes": f"{by}: process namespace",
            "memory": f"{by}: cgroup" if policy.memory_bytes is not None else "none",
            "pids": "none" if policy.pids is None else f"{by}: {'supervisor, ' if is_gvisor else ''}cgroup",
            "disk": f"{by}: memory file systems of a fixed size",
            "cpu": "rlimit" if options.cpus is None else f"{by}: cgroup, rlimit",
            "syscalls": f"{by}: {'gVisor' if is_gvisor else 'seccomp'}, capabilities",
        }

    def uncharged(self, info: EngineInfo) -> list[str]:
        """What the filter does not see and the container's control group does not count, for the isolation report;
        gVisor has a kernel of its own, and its memory counts.
        """
        if _is_gvisor(self.options, info):
            return []
        told = list(kernel_sentences())  # of this machine, where the engine usually is
        if self.policy.memory_bytes is None:
            return told
        sockets = (
            "with the host's network nothing bounds the connections"
            if self.policy.network.mode == "host"
            else f"a run ends with more than {_MOST_SOCKETS:,} sockets, or with a quarter of memory_bytes in those of "
            "TCP and UDP (before it was ended, a script took 2.8 times memory_bytes from the machine)"
        )
        locks = most_watches(self.policy)
        told.append(
            "memory: the kernel charges connections that nobody accepts, datagrams and locks of files to nobody, with "
            f"control groups of version 1 also buffers of TCP; {sockets}, and may hold "
            f"{'any number of locks' if locks is None else f'{locks:,} locks'}."
        )
        if info.rootless:
            told.append(
                "memory: when the machine has none left, the kernel may end another program before a script, which can "
                "lower its oom_score_adj there: only root can forbid that."
            )
        return told


def _is_gvisor(options: ContainerOptions, info: EngineInfo) -> bool:
    return (options.runtime or info.default_runtime or "").startswith(_GVISOR)


def _memory_folder(info: EngineInfo, size: int | None, inodes: int | None, user: str | None) -> str:
    """Options of a tmpfs. Podman knows neither owner nor inodes: everybody may write there; the supervisor counts."""
    parts = ["rw", "exec", "nosuid", "nodev"]
    if size is not None:
        parts.append(f"size={max(size, 4096)}")
    if info.is_podman or user is None:
        # Without notmpcopyup Podman gives it the rights of the image's folder of that name.
        return ",".join([*parts, "mode=1777", *(["notmpcopyup"] if info.is_podman else [])])
    uid, _, gid = user.partition(":")
    if inodes is not None:
        parts.append(f"nr_inodes={2 * inodes + 16}")  # the supervisor counts exactly; this is the net below it
    return ",".join([*parts, "mode=0700", f"uid={uid}", f"gid={gid or uid}"])


@dataclass(frozen=True, slots=True)
class ContainerDescription:
    """What a sandbox of containers found, for people: ``adk-skills doctor --container``. What is not known is empty.

    ``weakened`` has a sentence for each hardening that is switched off.
    """

    engine: str
    url: str
    runtime: str
    runtimes: tuple[str, ...]
    rootless: bool
    cgroups: str
    image: str
    python: str
    weakened: tuple[str, ...]


def create(client: Any, settings: Mapping[str, Any]) -> str:
    """Make a container of :meth:`Plan.settings`; gives its id. The SDK cannot name paths to hide from it."""
    own = {name: value for name, value in settings.items() if name in _OF_CONTAINER}
    of_host = {name: value for name, value in settings.items() if name not in {*_OF_CONTAINER, "masked_paths"}}
    host = client.api.create_host_config(**of_host)
    if "masked_paths" in settings:
        host["MaskedPaths"] = settings["masked_paths"]
    return str(client.api.create_container(**own, host_config=host)["Id"])
