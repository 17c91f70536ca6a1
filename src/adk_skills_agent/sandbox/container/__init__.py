"""Containers of Docker and Podman as a sandbox; the extra ``[container]`` brings the Docker SDK it needs."""

from __future__ import annotations

from adk_skills_agent.sandbox.container.image import DEFAULT_IMAGE, shipped_image
from adk_skills_agent.sandbox.container.options import ContainerDescription, ContainerOptions
from adk_skills_agent.sandbox.container.sandbox import ContainerSandbox

__all__ = ["DEFAULT_IMAGE", "ContainerDescription", "ContainerOptions", "ContainerSandbox", "shipped_image"]
