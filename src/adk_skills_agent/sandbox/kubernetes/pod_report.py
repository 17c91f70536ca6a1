"""What a pod's own description says about who enforces what in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adk_skills_agent.sandbox.contract import IsolationLevel, IsolationReport, SandboxPolicy

_OWN_KERNEL = ("gvisor", "runsc", "kata", "firecracker")


def pod_report(pod: Mapping[str, Any] | None, policy: SandboxPolicy) -> IsolationReport:
    """The report of one run.

    The level is ``container`` only when everything that makes it one is in the pod's description; else it is
    ``remote``, and the report says what is missing.

    Args:
        pod: The pod's ``spec`` as the API server has it; None when it could not be read.
        policy: Of the run.
    """
    if pod is None:
        return IsolationReport(
            IsolationLevel.REMOTE,
            dict.fromkeys(("files", "network", "processes", "memory", "pids", "disk", "kernel"), "pod"),
            ("The pod's description could not be read: what it enforces is not known.", *_of_the_run(policy)),
        )
    container = (pod.get("containers") or [{}])[0]
    security = {**(pod.get("securityContext") or {}), **(container.get("securityContext") or {})}
    limits = (container.get("resources") or {}).get("limits") or {}
    runtime = str(pod.get("runtimeClassName") or "")
    lacking = [sentence for ok, sentence in _needed(pod, security, limits) if not ok]
    own_kernel = any(name in runtime.lower() for name in _OWN_KERNEL)
    enforced = {
        "files": "pod (read-only root)" if security.get("readOnlyRootFilesystem") else "pod",
        "network": "network policy",
        "processes": "pod",
        "memory": f"pod ({limits['memory']}), rlimit" if "memory" in limits else "rlimit",
        "pids": "rlimit",
        "disk": f"pod ({limits['ephemeral-storage']})" if "ephemeral-storage" in limits else "none",
        "kernel": f"runtime class {runtime}" if runtime else "shared",
    }
    degraded = [*lacking, *_of_the_run(policy)]
    if not own_kernel:
        degraded.append("kernel: the pod shares its node's; a runtime class such as gvisor gives it its own.")
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


def _of_the_run(policy: SandboxPolicy) -> tuple[str, ...]:
    sentences = [
        "network: the network policy of the template holds where the cluster's network plugin enforces it.",
        "memory: memory_bytes is per process; all of them together have the pod's limit.",
        "output: comes when the run has ended, not while it lasts.",
        "processes: a run that is given up ends with its pod, when the cluster has deleted it.",
        "disk: workspace_bytes bounds what comes back; what may be written is the pod's limit.",
    ]
    if policy.network.mode not in {"none", "loopback"}:
        sentences.append(f"network: {policy.network.mode!r} is the template's affair and not changed for one run.")
    if policy.extra_ro:
        sentences.append("files: extra_ro names folders of the agent's machine, which are not in a pod.")
    return tuple(sentences)
