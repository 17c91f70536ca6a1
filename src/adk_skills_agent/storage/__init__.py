"""Objects that several machines share: by name, whole or not there, created by one of those who try at once."""

from adk_skills_agent.storage.objects import ObjectStore, open_objects
from adk_skills_agent.storage.sealing import Sealer

__all__ = ["ObjectStore", "Sealer", "open_objects"]
