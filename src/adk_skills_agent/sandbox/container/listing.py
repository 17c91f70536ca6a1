"""Which containers an engine has, also one that does not get over a container which it was just removing."""

from __future__ import annotations

import contextlib
import re
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docker import DockerClient

_HALF_REMOVED = re.compile(r'container from store "?([0-9a-f]{64})"?: container not known')
_LOOKS_AGAIN = (0.0, 0.05, 0.2, 0.5, 1.0)
_MOST = 1000


def containers(client: DockerClient, filters: dict[str, str]) -> list[dict[str, Any]]:
    """All containers that pass the filters, which only containers of this package do, running or not. Blocking.

    Podman refuses to list anything as long as it knows a container whose storage is gone: for a moment while it removes
    one, and for ever when it was killed meanwhile. Such a container cannot run any more; its removal is completed.

    Args:
        client: The engine's.
        filters: As in the engine's API. They decide which containers are completely removed, so they must not be empty.

    Raises:
        docker.errors.DockerException: The engine does not answer, or refuses.
    """
    from docker import errors

    looked: dict[str, int] = {}
    while True:
        try:
            found: list[dict[str, Any]] = client.api.containers(all=True, filters=filters)
        except errors.APIError as error:
            half = _HALF_REMOVED.search(str(error.explanation or error))
            if half is None:
                raise
            name = half[1]
            looks = looked[name] = looked.get(name, -1) + 1
            if looks >= len(_LOOKS_AGAIN) or len(looked) > _MOST:
                raise
            time.sleep(_LOOKS_AGAIN[looks])  # the engine may be just at it
            if looks:
                with contextlib.suppress(errors.APIError):
                    client.api.remove_container(name, force=True, v=True)
        else:
            return found
