"""Containers and volumes of agents that are gone: the next agent removes them (issue 5)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from adk_skills_agent.sandbox.container.engine_errors import is_going, is_gone
from adk_skills_agent.sandbox.container.listing import containers
from adk_skills_agent.sandbox.container.owner import OWNER_LABEL, is_orphan

if TYPE_CHECKING:
    from docker import DockerClient

logger = logging.getLogger(__name__)


def sweep_orphans(client: DockerClient) -> tuple[str, ...]:
    """Kill and remove what agents left that do not run any more. Blocking; several agents may do it at once.

    Returns:
        A sentence for each thing that could not be removed.

    Raises:
        docker.errors.DockerException: The engine does not answer.
    """
    problems = []
    for found in containers(client, {"label": OWNER_LABEL}):
        if not is_orphan(found.get("Labels")):
            continue
        name = str(found["Id"])
        try:
            client.api.remove_container(name, force=True, v=True)
            logger.info("Removed container %s of an agent that is gone.", name[:12])
        except Exception as error:  # noqa: BLE001  # one that stays must not keep the others
            if not is_gone(error) and not is_going(error):
                problems.append(f"Container {name[:12]} of an agent that is gone could not be removed: {error}.")
    listed = client.api.volumes(filters={"label": OWNER_LABEL}) or {}
    for found in listed.get("Volumes") or ():
        if not is_orphan(found.get("Labels")):
            continue
        try:
            client.api.remove_volume(found["Name"], force=True)
        except Exception as error:  # noqa: BLE001  # as above
            if not is_gone(error):
                problems.append(f"Volume {found['Name']} of an agent that is gone could not be removed: {error}.")
    for problem in problems:
        logger.warning("%s", problem)
    return tuple(problems)
