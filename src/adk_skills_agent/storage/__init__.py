"""Objects that several machines share: by name, whole or not there, created by one of those who try at once."""

from adk_skills_agent.storage.objects import MOST_BYTES, ObjectStore, open_objects, within
from adk_skills_agent.storage.sealing import Sealer

__all__ = ["MOST_BYTES", "ObjectStore", "Sealer", "open_objects", "within"]
