"""``sandbox="kubernetes"``: each run in a pod of its own, from a warm pool of agent-sandbox.

A run claims a sandbox, sends everything into its pod, runs the supervisor there and deletes the claim, whatever
happened. The claim has a shutdown time: the pods of an agent that was killed go away by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from adk_skills_agent.errors import SandboxError, SandboxUnavailable
from adk_skills_agent.sandbox.box_command import run_command
from adk_skills_agent.sandbox.box_layout import BoxLayout
from adk_skills_agent.sandbox.contract import (
    ExecutionRequest,
    ExecutionResult,
    IsolationLevel,
    IsolationReport,
    Sandbox,
    SandboxPolicy,
    Status,
)
from adk_skills_agent.sandbox.kubernetes.pod_report import pod_report
from adk_skills_agent.sandbox.policy import check_policy
from adk_skills_agent.sandbox.remote import RemoteAnswer, RemoteChannel, RemoteEnd, ask_shell, check_level
from adk_skills_agent.sandbox.remote_launcher import Job

logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")

WARM_POOL = "adk-skills"
NAMESPACE = "adk-skills"
_HOME = "/sandbox"
_FOLDERS = ("/work", "/skill", "/tmp")  # noqa: S108  # volumes of the pod
_INLINE_BYTES = 256 << 10
_LABELS = {"app.kubernetes.io/managed-by": "adk-skills-agent"}
_DELETE_SECONDS = 20.0
_SPARE_SECONDS = 120
_MOST_RUN_SECONDS = 3600.0


class KubernetesSandbox(Sandbox):
    """Runs commands in pods; see :class:`Sandbox` for the contract, deploy/kubernetes for what the cluster needs.

    Args:
        warm_pool: The ``SandboxWarmPool`` pods are taken from.
        namespace: Where it is.
        connection: A connection configuration of ``k8s_agent_sandbox.models``; None connects to pods directly inside
            of a cluster, else by ``kubectl port-forward``.
        api_client: A ``kubernetes.client.ApiClient``; None takes the cluster's or the user's configuration.
        ready_seconds: How long a pod may take to be ready.
        most_service_seconds: How long the way there and back may take on top of that and of the run's own time.
    """

    name = "kubernetes"

    def __init__(
        self,
        *,
        warm_pool: str = WARM_POOL,
        namespace: str = NAMESPACE,
        connection: Any = None,
        api_client: Any = None,
        ready_seconds: int = 180,
        most_service_seconds: float = 60.0,
    ) -> None:
        self._pool = warm_pool
        self._namespace = namespace
        self._connection = connection
        self._api_client = api_client
        self._ready_seconds = ready_seconds
        self._patience = most_service_seconds
        self._lock = threading.Lock()
        self._made: Any = None
        self._probed: IsolationReport | None = None

    async def run(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one command to its end; see :meth:`Sandbox.run`.

        Raises:
            SandboxUnavailable: There is no client library, cluster or warm pool, or it is not what the policy needs.
        """
        # Refused without a pod where no pod can be what is asked for.
        check_level(check_policy(request.policy), IsolationLevel.CONTAINER, "a pod of Kubernetes")
        nonce = os.urandom(16).hex()
        job = Job(nonce, _HOME, "/work", (), _FOLDERS, _INLINE_BYTES)

        async def open_channel(policy: SandboxPolicy) -> PodChannel:
            return await self._claim(policy, job)

        return await run_command(open_channel, request, BoxLayout(batch=True), patience=self._patience)

    async def probe(self) -> IsolationReport:
        """Run a command that does nothing in a pod and report what holds there; once for each object.

        Raises:
            SandboxUnavailable: There is no such pod.
            SandboxError: It does not work.
        """
        if self._probed is None:
            policy = SandboxPolicy(min_isolation=IsolationLevel.PROCESS.value, wall_seconds=10.0)
            result = await self.run(ExecutionRequest(("sh", "-c", ":"), policy))
            if result.status is not Status.OK:
                raise SandboxError(f"A trial run in a pod did not end well: {result.status.value}.")
            self._probed = result.isolation
        return self._probed

    async def _claim(self, policy: SandboxPolicy, job: Job) -> PodChannel:
        seconds = _MOST_RUN_SECONDS if policy.wall_seconds is None else policy.wall_seconds
        life = int(self._ready_seconds + seconds + policy.term_grace_seconds + self._patience) + _SPARE_SECONDS
        claiming = asyncio.ensure_future(in_own_thread(lambda: self._create(life)))
        try:
            pod = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # The claim may be there already, or come a moment later: it goes as soon as it is known.
            claiming.add_done_callback(_delete_later)
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

        def ask(request: bytes) -> asyncio.Future[bytes]:
            return asyncio.ensure_future(ask_shell(service, job, request, wait, clean_up=False))

        return PodChannel(report, ask, pod=pod, namespace=self._namespace)

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
                        f"Pods cannot be used: {reason}. Run: pip install 'adk-skills-agent[kubernetes]'.",
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


@dataclass(slots=True)
class PodChannel(RemoteChannel):
    """A pod that is deleted with the channel."""

    pod: Any = None
    namespace: str = ""
    _failed: bool = field(default=False)

    async def receive(self) -> bytes:
        """Bytes of the program in the pod; none at the end, or when the pod was ended by its memory limit."""
        try:
            return await RemoteChannel.receive(self)
        except SandboxError:
            if await in_own_thread(lambda: _was_out_of_memory(self.pod, self.namespace)):
                self._failed = True
                return b""
            raise

    async def close(self) -> RemoteEnd:
        """Delete the pod and everything in it."""
        await self.give_up()
        problem = await _deleted(self.pod)
        notes = () if problem is None else (problem,)
        if self._failed:
            return RemoteEnd(Status.OUT_OF_MEMORY, ("The pod was ended by its memory limit.", *notes))
        return RemoteEnd(notes=notes)


class _PodShell:
    """A claimed sandbox as a :class:`~adk_skills_agent.sandbox.remote.RemoteShell`."""

    name = "The pod"

    def __init__(self, pod: Any) -> None:
        self._pod = pod

    async def open(self) -> str:
        return _HOME

    async def run(self, command: str, seconds: float | None) -> RemoteAnswer:
        wait = _MOST_RUN_SECONDS if seconds is None else seconds
        found = await in_own_thread(lambda: self._pod.commands.run(command, int(wait) + 1, wait))
        return RemoteAnswer(found.exit_code, found.stdout, found.stderr, timed_out=bool(found.timed_out))

    async def read(self, path: str) -> bytes:
        content: bytes = await in_own_thread(lambda: self._pod.files.read(path.removeprefix(f"{_HOME}/")))
        return content

    async def write(self, path: str, content: bytes) -> None:
        await in_own_thread(lambda: self._pod.files.write(path.removeprefix(f"{_HOME}/"), content))

    async def close(self) -> None:
        """The channel deletes the pod."""


async def in_own_thread(work: Callable[[], _Result]) -> _Result:
    """Blocking work of the client library in a thread of its own, which is given up with whoever waits for it.

    Such work waits for a network, up to minutes: in a pool, a few that hang would keep all others from starting.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Result] = loop.create_future()

    def settle(result: _Result | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def go() -> None:
        result, raised = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001  # raised again where it is awaited
            raised = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, raised)

    threading.Thread(target=go, name="adk-skills-kubernetes", daemon=True).start()
    return await done


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
    deleting = asyncio.ensure_future(in_own_thread(pod.terminate))
    cancelled = None
    while not deleting.done():
        try:
            finished, _ = await asyncio.wait([deleting], timeout=_DELETE_SECONDS)
        except asyncio.CancelledError as error:
            cancelled = error
            continue
        if not finished:
            deleting.cancel()
            break
    if cancelled is not None:
        raise cancelled
    problem = "it took too long" if deleting.cancelled() or not deleting.done() else deleting.exception()
    if problem is None:
        return None
    logger.error("the sandbox claim %s could not be deleted: %s", pod.claim_name, problem)
    return f"The pod's claim {pod.claim_name!r} could not be deleted; its shutdown time will end it."


def _delete_later(claiming: asyncio.Future[Any]) -> None:
    if claiming.cancelled() or claiming.exception() is not None:
        return
    threading.Thread(target=claiming.result().terminate, name="adk-skills-kubernetes", daemon=True).start()
