"""A mapping of bounded size."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Recent(OrderedDict[_Key, _Value]):
    """Keeps the ``most`` entries that were set last, the oldest first."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: _Key, value: _Value) -> None:
        super().__setitem__(key, value)
        with contextlib.suppress(KeyError):  # another thread took it out meanwhile
            self.move_to_end(key)
            while len(self) > self._most:
                self.popitem(last=False)
