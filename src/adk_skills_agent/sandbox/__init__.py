"""Run ONE command safely: request in, result out. Knows nothing of skills or of google-adk.

Everything that other layers may use is here; each name is imported on first use. What is not named here is private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adk_skills_agent.lazy_names import names_on_first_use

if TYPE_CHECKING:
    from adk_skills_agent.sandbox.choose import SANDBOX_NAMES, SandboxChoice, choose_sandbox, sandbox_of
    from adk_skills_agent.sandbox.components import (
        container_filter,
        control_group,
        control_groups_problem,
        require_bubblewrap,
        what_is_scarce,
    )
    from adk_skills_agent.sandbox.container import ContainerOptions, ContainerSandbox
    from adk_skills_agent.sandbox.container.engine import (
        Engine as ContainerEngine,
    )
    from adk_skills_agent.sandbox.container.engine import (
        connect_now as connect_engine,
    )
    from adk_skills_agent.sandbox.container.engine import (
        engine_urls,
    )
    from adk_skills_agent.sandbox.container.removals import (
        labels as container_labels,
    )
    from adk_skills_agent.sandbox.container.removals import (
        sweep_orphans,
    )
    from adk_skills_agent.sandbox.contract import (
        CONCERNS,
        HOME_DIR,
        SKILL_DIR,
        SKILL_VARIABLES,
        TMP_DIR,
        WORK_DIR,
        ExecutionRequest,
        ExecutionResult,
        InputFile,
        IsolationLevel,
        IsolationReport,
        Network,
        OutputFile,
        ReadOnlyMount,
        Sandbox,
        SandboxPolicy,
        Status,
    )
    from adk_skills_agent.sandbox.files.collect import (
        MAX_DEPTH,
        Walk,
        distinct_name,
        is_scratch,
        mime_type,
        portable,
        safe_name,
        scratch_note,
    )
    from adk_skills_agent.sandbox.files.removal import remove_tree, temporary_folder, temporary_prefix
    from adk_skills_agent.sandbox.in_process import InProcessPython, InProcessResult
    from adk_skills_agent.sandbox.local import local_sandbox
    from adk_skills_agent.sandbox.local.cgroup import ControlGroup
    from adk_skills_agent.sandbox.local.levels.base import LocalLevel, local_levels
    from adk_skills_agent.sandbox.local.machine import Machine, this_machine
    from adk_skills_agent.sandbox.local.namespaces.bubblewrap import kept_group
    from adk_skills_agent.sandbox.local.sandbox import PROCESS_WARNING
    from adk_skills_agent.sandbox.network.hosts import (
        HostNameError,
        address_refusal,
        normalise_host,
        parse_host,
        parse_hosts,
    )
    from adk_skills_agent.sandbox.output import Capture, secrets_of_run
    from adk_skills_agent.sandbox.policy import (
        FORMER_LEVELS,
        PRESETS,
        PresetName,
        check_env,
        check_env_name,
        check_policy,
        load_policy,
        looks_secret,
        policy_of,
        resolve_policy,
    )
    from adk_skills_agent.sandbox.process.command import NOBODY, search_path
    from adk_skills_agent.sandbox.ray.cluster import join as join_cluster
    from adk_skills_agent.sandbox.ray.cluster import load_ray, sentence_of, why_no_worker
    from adk_skills_agent.sandbox.ray.sandbox import RaySandbox
    from adk_skills_agent.sandbox.remote.kubernetes import KubernetesSandbox
    from adk_skills_agent.sandbox.remote.remote import MAY_GO_ON, RemoteAnswer, RemoteSandbox, within_memory
    from adk_skills_agent.sandbox.remote.result import foreign_result
    from adk_skills_agent.sandbox.secrets import (
        MIN_SECRET_CHARS,
        EnvValue,
        FileSearch,
        Redactor,
        Secret,
        SecretForms,
        forms_of,
        log_exception,
        redact_error,
        redacted,
        redacted_aside,
        secrets_of,
    )
    from adk_skills_agent.sandbox.sessions.session import SessionHost, SessionRequest
    from adk_skills_agent.sandbox.sessions.sessions import SessionHealth, SessionLimits, Sessions
    from adk_skills_agent.sandbox.skill_store import FolderDigest, snapshot
    from adk_skills_agent.sandbox.streaming import EndEvent, OutputEvent, ResourceSample
    from adk_skills_agent.sandbox.supervisor.python_program import program_text as python_program_text
    from adk_skills_agent.sandbox.threads import (
        MAX_RUNNING,
        MAX_WAITING,
        WHOSE,
        OnePerProcess,
        Semaphore,
        acting_for,
        in_worker,
        more_for,
        of_who_has_most,
        uninterrupted,
        warn_insecure_once,
    )

# The same for Python at run time: the names of each module.
_NAMES = {
    "choose": "SANDBOX_NAMES SandboxChoice choose_sandbox sandbox_of",
    "components": "container_filter control_group control_groups_problem require_bubblewrap what_is_scarce",
    "container": "ContainerOptions ContainerSandbox",
    "container.removals": "labels=container_labels sweep_orphans",
    "container.engine": "engine_urls Engine=ContainerEngine connect_now=connect_engine",
    "contract": (
        "CONCERNS ExecutionRequest ExecutionResult InputFile IsolationLevel IsolationReport Network OutputFile "
        "HOME_DIR ReadOnlyMount SKILL_DIR SKILL_VARIABLES Sandbox SandboxPolicy Status TMP_DIR WORK_DIR"
    ),
    "files.collect": "MAX_DEPTH Walk distinct_name is_scratch mime_type portable safe_name scratch_note",
    "files.removal": "remove_tree temporary_folder temporary_prefix",
    "in_process": "InProcessPython InProcessResult",
    "local": "local_sandbox",
    "local.sandbox": "PROCESS_WARNING",
    "local.cgroup": "ControlGroup",
    "local.levels.base": "LocalLevel local_levels",
    "local.machine": "Machine this_machine",
    "local.namespaces.bubblewrap": "kept_group",
    "network.hosts": "HostNameError address_refusal normalise_host parse_host parse_hosts",
    "output": "Capture secrets_of_run",
    "policy": (
        "FORMER_LEVELS PRESETS PresetName check_env check_env_name check_policy load_policy looks_secret policy_of "
        "resolve_policy"
    ),
    "process.command": "NOBODY search_path",
    "ray.cluster": "join=join_cluster load_ray sentence_of why_no_worker",
    "ray.sandbox": "RaySandbox",
    "remote.kubernetes": "KubernetesSandbox",
    "remote.remote": "MAY_GO_ON RemoteAnswer RemoteSandbox within_memory",
    "remote.result": "foreign_result",
    "secrets": (
        "EnvValue FileSearch MIN_SECRET_CHARS Redactor Secret SecretForms forms_of log_exception redact_error "
        "redacted redacted_aside secrets_of"
    ),
    "sessions.session": "SessionHost SessionRequest",
    "sessions.sessions": "SessionHealth SessionLimits Sessions",
    "skill_store": "FolderDigest snapshot",
    "supervisor.python_program": "program_text=python_program_text",
    "streaming": "EndEvent OutputEvent ResourceSample",
    "threads": (
        "MAX_RUNNING MAX_WAITING OnePerProcess Semaphore WHOSE acting_for in_worker more_for of_who_has_most "
        "uninterrupted warn_insecure_once"
    ),
}
__getattr__, __all__ = names_on_first_use(__name__, _NAMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
