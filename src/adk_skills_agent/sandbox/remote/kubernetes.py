"""``sandbox="kubernetes"``: each run in a pod of its own, from a warm pool of agent-sandbox.

A run claims a sandbox, sends everything into its pod, runs the supervisor there and deletes the claim, whatever
happened. The claim has a shutdown time: the pods of an agent that was killed go away by themselves.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from adk_skills_agent.errors import SandboxError, SandboxUnavailable
from adk_skills_agent.installation import install_hint
from adk_skills_agent.sandbox.contract import (
    CONCERNS,
    STRICT_ELSEWHERE,
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    IsolationReport,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.policy import check_policy
from adk_skills_agent.sandbox.remote.remote import (
    INLINE_BYTES,
    KEPT_SECONDS,
    Ask,
    BatchSandbox,
    Job,
    RemoteAnswer,
    RemoteChannel,
    ask_shell,
    most_answer,
)
from adk_skills_agent.sandbox.supervisor.channel import SandboxEnd
from adk_skills_agent.sandbox.supervisor.command import Layout, check_level, run_command
from adk_skills_agent.sandbox.threads import MAX_RUNNING, Place, uninterrupted

logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")

WARM_POOL = "adk-skills"
NAMESPACE = "adk-skills"
_HOME = "/sandbox"
_FOLDERS = ("/work", "/skill", "/skills", "/tmp")  # noqa: S108  # volumes of the pod
_LABELS = {"app.kubernetes.io/managed-by": "adk-skills-runtime"}
_DELETE_SECONDS = 20.0
_SPARE_SECONDS = 120
_MOST_RUN_SECONDS = 3600.0


class KubernetesSandbox(BatchSandbox):
    """Runs commands in pods; see :class:`Sandbox` for the contract, deploy/kubernetes for what the cluster needs.

    Args:
        warm_pool: The ``SandboxWarmPool`` pods are taken from.
        namespace: Where it is.
        connection: A connection configuration of ``k8s_agent_sandbox.models``; None connects to pods directly inside
            of a cluster, else by ``kubectl port-forward``.
        api_client: A ``kubernetes.client.ApiClient``; None takes the cluster's or the user's configuration.
        ready_seconds: How long a pod may take to be ready.
        most_service_seconds: How long the way there and back may take on top of that and of the run's own time.
        most_runs: Pods at the same time; more runs wait for their turn, fair to users and sessions.
    """

    name = "kubernetes"
    _place = "in a pod"
    filters_secrets = True

    def __init__(
        self,
        *,
        warm_pool: str = WARM_POOL,
        namespace: str = NAMESPACE,
        connection: Any = None,
        api_client: Any = None,
        ready_seconds: int = 180,
        most_service_seconds: float = 60.0,
        most_runs: int = MAX_RUNNING,
    ) -> None:
        super().__init__(most_runs)
        self._pool = warm_pool
        self._namespace = namespace
        self._connection = connection
        self._api_client = api_client
        self._ready_seconds = ready_seconds
        self._patience = most_service_seconds
        self._lock = threading.Lock()
        self._made: Any = None

    async def run(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one command to its end; see :meth:`Sandbox.run`.

        Raises:
            SandboxUnavailable: There is no client library, cluster or warm pool, or it is not what the policy needs.
        """
        # Refused without a pod where no pod can be what is asked for.
        check_level(check_policy(request.policy), IsolationLevel.CONTAINER, "a pod of Kubernetes")
        nonce = os.urandom(16).hex()
        job = Job(nonce, _HOME, "/work", (), _FOLDERS, INLINE_BYTES)

        async with self._turns.turn(request.share) as place:

            async def open_channel(policy: SandboxPolicy) -> PodChannel:
                return await self._claim(policy, job, place)

            return await run_command(open_channel, request, Layout(batch=True), patience=self._patience)

    async def _claim(self, policy: SandboxPolicy, job: Job, place: Place) -> PodChannel:
        seconds = _MOST_RUN_SECONDS if policy.wall_seconds is None else policy.wall_seconds
        life = int(self._ready_seconds + seconds + policy.term_grace_seconds + self._patience) + _SPARE_SECONDS
        claimed = _begin_in_own_thread(lambda: self._create(life))
        try:
            pod = await asyncio.wrap_future(claimed)
        except (asyncio.CancelledError, GeneratorExit):
            # The claim may be there already, or come a moment later: it goes as soon as it is known. Until then it
            # counts: else who comes and leaves has any number of pods, and a thread for each (row 433).
            place.keep(KEPT_SECONDS)
            claimed.add_done_callback(lambda _: _delete_later(claimed, place.give_back))
            raise
        try:
            spec = await in_own_thread(lambda: _pod_spec(pod, self._namespace))
            report = pod_report(spec, policy)
            check_level(policy, report.level, " ".join(report.degraded))
        except BaseException:
            await _deleted(pod)
            raise
        service = _PodShell(pod)
        wait = seconds + policy.term_grace_seconds + self._patience

        def ask(request: bytes, sent: Callable[[], None]) -> Coroutine[None, None, bytes]:
            return ask_shell(service, job, request, wait, most_answer(policy), sent, clean_up=False)

        return PodChannel(report, ask, pod, self._namespace)

    def _create(self, life: int) -> Any:
        client = self._client()
        try:
            return client.create_sandbox(
                self._pool,
                self._namespace,
                sandbox_ready_timeout=self._ready_seconds,
                labels=_LABELS,
                shutdown_after_seconds=life,
            )
        except Exception as error:  # of the client library, of Kubernetes', of the network
            raise self._unavailable(error) from error

    def _client(self) -> Any:
        with self._lock:
            if self._made is None:
                try:
                    from k8s_agent_sandbox.models import (
                        SandboxInClusterConnectionConfig,
                        SandboxLocalTunnelConnectionConfig,
                    )
                    from k8s_agent_sandbox.sandbox_client import SandboxClient
                except ImportError as error:
                    reason = "k8s-agent-sandbox is not installed"
                    raise SandboxUnavailable(
                        f"Pods cannot be used: {reason}. Run: {install_hint('kubernetes')}",
                        (f"kubernetes: {reason}",),
                    ) from error
                inside = "KUBERNETES_SERVICE_HOST" in os.environ
                usual = SandboxInClusterConnectionConfig if inside else SandboxLocalTunnelConnectionConfig
                connection = self._connection if self._connection is not None else usual()
                try:
                    self._made = SandboxClient(connection_config=connection, api_client=self._api_client)
                except Exception as error:  # no configuration, or a broken one
                    raise self._unavailable(error) from error
            return self._made

    def _unavailable(self, error: Exception) -> SandboxError:
        kind = type(error).__name__
        said = str(getattr(error, "reason", None) or error).strip().splitlines()[:1]
        place = f"warm pool {self._pool!r} in namespace {self._namespace!r}"
        status = getattr(error, "status", None)
        advice = "Is agent-sandbox installed there? See deploy/kubernetes."
        if kind in {"SandboxTemplateNotFoundError", "SandboxWarmPoolNotFoundError"} or status == 404:
            advice = "Create them: kubectl apply -k deploy/kubernetes."
        elif kind == "ConfigException":
            advice = "Set KUBECONFIG, or run inside of a cluster."
        elif status in {401, 403}:
            advice = "The account needs deploy/kubernetes/rbac.yaml."
        reason = f"kubernetes: no pod from {place} ({kind}: {(said or [''])[0][:200]})"
        logger.info("%s", reason, exc_info=error)
        return SandboxUnavailable(f"Pods cannot be used: {reason.removeprefix('kubernetes: ')}. {advice}", (reason,))


class PodChannel(RemoteChannel):
    """A pod that is deleted with the channel."""

    def __init__(
        self,
        isolation: IsolationReport,
        ask: Ask,
        pod: Any,
        namespace: str,
    ) -> None:
        super().__init__(isolation, ask)
        self._pod = pod
        self._namespace = namespace
        self._out_of_memory = False

    async def receive(self) -> bytes:
        """Bytes of the program in the pod; none at the end, or when the pod was ended by its memory limit."""
        try:
            return await super().receive()
        except SandboxError:
            if await in_own_thread(lambda: _was_out_of_memory(self._pod, self._namespace)):
                self._out_of_memory = True
                return b""
            raise

    async def close(self) -> SandboxEnd:
        """Delete the pod and everything in it."""
        await self.give_up()
        problem = await _deleted(self._pod)
        notes = () if problem is None else (problem,)
        if self._out_of_memory:
            return SandboxEnd(Status.OUT_OF_MEMORY, ("The pod was ended by its memory limit.", *notes))
        return SandboxEnd(notes=notes)


class _PodShell:
    """A claimed sandbox as a :class:`~adk_skills_agent.sandbox.remote.remote.RemoteShell`."""

    name = "The pod"

    def __init__(self, pod: Any) -> None:
        self._pod = pod

    async def open(self) -> str:
        return _HOME

    async def run(self, command: str, seconds: float | None) -> RemoteAnswer:
        wait = _MOST_RUN_SECONDS if seconds is None else seconds
        found = await in_own_thread(lambda: self._pod.commands.run(command, int(wait) + 1, wait))
        return RemoteAnswer(found.exit_code, found.stdout, found.stderr, timed_out=bool(found.timed_out))

    async def read(self, path: str, most: int) -> bytes:
        def bounded() -> bytes:
            # What is there may be another file by now, of any size (row 285).
            content = io.BytesIO()
            self._pod.files.read_to(path.removeprefix(f"{_HOME}/"), content, max_bytes=most)
            return content.getvalue()

        return await in_own_thread(bounded)

    async def write(self, path: str, content: bytes) -> None:
        await in_own_thread(lambda: self._pod.files.write(path.removeprefix(f"{_HOME}/"), content))

    async def close(self) -> None:
        """The channel deletes the pod."""


def in_own_thread(work: Callable[[], _Result]) -> asyncio.Future[_Result]:
    """Blocking work of the client library in a thread of its own, which is given up with whoever waits for it.

    Such work waits for a network, up to minutes: in a pool, a few that hang would keep all others from starting.
    """
    return asyncio.wrap_future(_begin_in_own_thread(work))


def _begin_in_own_thread(work: Callable[[], _Result]) -> Future[_Result]:
    done: Future[_Result] = Future()
    done.set_running_or_notify_cancel()

    def go() -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001  # raised again where it is awaited
            done.set_exception(error)
        else:
            done.set_result(result)

    threading.Thread(target=go, name="adk-skills-kubernetes", daemon=True).start()
    return done


def _pod_spec(pod: Any, namespace: str) -> Any:
    try:
        found = pod.k8s_helper.get_sandbox(pod.sandbox_id, namespace) or {}
    except Exception:  # not being allowed to look is an answer, too: the report says so
        logger.info("the description of sandbox %s could not be read", pod.sandbox_id, exc_info=True)
        return None
    return ((found.get("spec") or {}).get("podTemplate") or {}).get("spec")


def _was_out_of_memory(pod: Any, namespace: str) -> bool:
    try:
        found = pod.k8s_helper.core_v1_api.read_namespaced_pod(pod.get_pod_name(), namespace)
    except Exception:  # noqa: BLE001  # then it is not known, and the error that brought us here stands
        return False
    for container in (found.status.container_statuses or ()) if found.status else ():
        for state in (container.state, container.last_state):
            if state is not None and state.terminated is not None and state.terminated.reason == "OOMKilled":
                return True
    return False


async def _deleted(pod: Any) -> str | None:
    """Delete a claim, whatever happens meanwhile; a sentence when that did not work."""

    async def delete() -> str | None:
        try:
            async with asyncio.timeout(_DELETE_SECONDS):
                await in_own_thread(pod.terminate)
        except TimeoutError:
            problem = "it took too long"
        except Exception as error:  # noqa: BLE001  # of the client library, of Kubernetes', of the network
            problem = str(error)
        else:
            return None
        logger.error("the sandbox claim %s could not be deleted: %s", pod.claim_name, problem)
        return f"The pod's claim {pod.claim_name!r} could not be deleted; its shutdown time will end it."

    return await uninterrupted(delete())


def _delete_later(claimed: Future[Any], then: Callable[[], None]) -> None:
    """Delete a pod that nobody waits for any more; ``then`` is called when there is none."""

    def delete() -> None:
        try:
            if claimed.exception() is None:
                claimed.result().terminate()
        except Exception as error:  # noqa: BLE001  # of the client library, of Kubernetes', of the network
            logger.error("a sandbox claim could not be deleted: %s", error)  # noqa: TRY400  # its text is enough
        finally:
            then()

    threading.Thread(target=delete, name="adk-skills-kubernetes", daemon=True).start()


_OWN_KERNEL = ("gvisor", "runsc", "kata", "firecracker")


def pod_report(pod: Mapping[str, Any] | None, policy: SandboxPolicy) -> IsolationReport:
    """The report of one run.

    The level is ``container`` only when everything that makes it one is in the pod's description; else it is
    ``remote``, and the report says what is missing.
    """
    if pod is None:
        return IsolationReport(
            IsolationLevel.REMOTE,
            dict.fromkeys(CONCERNS, "pod"),
            ("The pod's description could not be read: what it enforces is not known.", *_of_the_run(policy)),
        )
    container = (pod.get("containers") or [{}])[0]
    security = {**(pod.get("securityContext") or {}), **(container.get("securityContext") or {})}
    limits = (container.get("resources") or {}).get("limits") or {}
    runtime = str(pod.get("runtimeClassName") or "")
    needed = (*_needed(pod, security, limits), *_not_given(pod, container, security))
    lacking = [sentence for ok, sentence in needed if not ok]
    own_kernel = any(name in runtime.lower() for name in _OWN_KERNEL)
    enforced = {
        "files": "pod (read-only root)" if security.get("readOnlyRootFilesystem") else "pod",
        "network": "network policy",
        "processes": "pod",
        "memory": f"pod ({limits['memory']}), rlimit" if "memory" in limits else "rlimit",
        "pids": "rlimit",
        "disk": f"pod ({limits['ephemeral-storage']})" if "ephemeral-storage" in limits else "none",
        "cpu": f"pod ({limits['cpu']}), rlimit" if "cpu" in limits else "rlimit",
        "syscalls": f"runtime class {runtime}" if runtime else "shared",
    }
    degraded = [*lacking, *_of_the_run(policy)]
    if not own_kernel:
        degraded.append("syscalls: the pod shares its node's kernel; a runtime class such as gvisor gives it its own.")
    level = IsolationLevel.REMOTE if lacking else IsolationLevel.CONTAINER
    return IsolationReport(level, enforced, tuple(degraded))


def _needed(pod: Mapping[str, Any], security: Mapping[str, Any], limits: Mapping[str, Any]) -> list[tuple[bool, str]]:
    dropped = [str(name).upper() for name in (security.get("capabilities") or {}).get("drop") or ()]
    hosts = [name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name)]
    host_paths = [volume.get("name") for volume in pod.get("volumes") or () if volume.get("hostPath")]
    return [
        (bool(security.get("runAsNonRoot")), "processes: the pod may run as root (runAsNonRoot is not set)."),
        (security.get("allowPrivilegeEscalation") is False, "processes: allowPrivilegeEscalation is not false."),
        ("ALL" in dropped, "processes: not all capabilities are dropped."),
        (not security.get("privileged"), "processes: the container is privileged."),
        (bool(security.get("readOnlyRootFilesystem")), "files: the root file system can be written to."),
        (pod.get("automountServiceAccountToken") is False, "files: the pod may hold a token of the cluster."),
        ("memory" in limits, "memory: the pod has no limit."),
        (not hosts, f"network: the pod shares {', '.join(hosts)} with its node."),
        (not host_paths, f"files: folders of the node are mounted ({', '.join(map(str, host_paths))})."),
    ]


def _not_given(
    pod: Mapping[str, Any], container: Mapping[str, Any], security: Mapping[str, Any]
) -> list[tuple[bool, str]]:
    """What a template, or who changes it on its way, may give a pod besides (row 497)."""
    added = [str(name) for name in (security.get("capabilities") or {}).get("add") or () if name != "NET_BIND_SERVICE"]
    profiles = {kind: (security.get(f"{kind}Profile") or {}).get("type") for kind in ("seccomp", "appArmor")}
    kinds = ("containers", "initContainers", "ephemeralContainers")
    others = [one for kind in kinds for one in pod.get(kind) or () if one is not container]
    strong = [str(one.get("name")) for one in others if (one.get("securityContext") or {}).get("privileged")]
    volumes = [str(one.get("name")) for one in pod.get("volumes") or () if not _is_of_the_pod(one)]
    variables = [one.get("valueFrom") or {} for one in container.get("env") or ()] + list(
        container.get("envFrom") or ()
    )
    secrets = any(one.get("secretKeyRef") or one.get("secretRef") for one in variables)
    return [
        (not added, f"processes: capabilities are added ({', '.join(added)})."),
        (profiles["seccomp"] != "Unconfined", "syscalls: the seccomp profile is Unconfined."),
        (profiles["appArmor"] != "Unconfined", "files: the AppArmor profile is Unconfined."),
        (security.get("procMount") in {None, "Default"}, "processes: /proc is not masked (procMount)."),
        (not pod.get("shareProcessNamespace"), "processes: the containers of the pod share their processes."),
        (not strong, f"processes: another container of the pod is privileged ({', '.join(strong)})."),
        (
            not volumes,
            f"files: volumes that are not the pod's alone, or hold keys, are mounted ({', '.join(volumes)}).",
        ),
        (not secrets, "files: secrets of the cluster are in the container's environment."),
    ]


def _is_of_the_pod(volume: Mapping[str, Any]) -> bool:
    held = [volume, *((volume.get("projected") or {}).get("sources") or ())]
    keys = any({"secret", "serviceAccountToken"} & one.keys() for one in held)
    own = volume.keys() & {"emptyDir", "configMap", "downwardAPI", "projected", "hostPath", "ephemeral"}
    return bool(own) and not keys  # a hostPath has a sentence of its own


def _of_the_run(policy: SandboxPolicy) -> tuple[str, ...]:
    sentences = [
        "network: the network policy of the template holds where the cluster's network plugin enforces it.",
        "memory: memory_bytes is per process; all of them together have the pod's limit.",
        "output: comes when the run has ended, not while it lasts.",
        "processes: a run that is given up ends with its pod, when the cluster has deleted it.",
        "disk: workspace_bytes bounds what comes back; what may be written is the pod's limit.",
    ]
    if policy.syscalls == "strict":
        sentences.append(STRICT_ELSEWHERE)
    if policy.network.mode not in {"none", "loopback"}:
        sentences.append(f"network: {policy.network.mode!r} is the template's affair and not changed for one run.")
    if policy.extra_ro:
        sentences.append("files: extra_ro names folders of the agent's machine, which are not in a pod.")
    return tuple(sentences)
