"""Encryption of what is stored: AES-256-GCM, bound to the object's name, with keys that can be changed."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from adk_skills_agent.errors import ConfigError, StorageDamaged, StorageError
from adk_skills_agent.installation import install_hint

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_MAGIC = b"adk-sealed-1\0"
_ID_BYTES = 8
_NONCE_BYTES = 12
_KEY_BYTES = 32
SEAL_BYTES = len(_MAGIC) + _ID_BYTES + _NONCE_BYTES + 16
"""What sealing adds to an object: the last 16 are the tag."""
EXTRA = "encrypt"


class Sealer:
    """Seals and opens objects, and names content so that only who has the key can tell what it is.

    ``keys`` are of 32 bytes each, or 64 hexadecimal digits, or base64 of 32 bytes. The first one seals; all of them
    open, so a key is changed by putting the new one first. Raises ``ConfigError`` when a key is of another length.
    """

    def __init__(self, keys: Sequence[bytes | str]) -> None:
        if not keys:
            raise ConfigError("key must be one key or a list of keys, the newest first; the list is empty.")
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise ConfigError(f"A key needs cryptography. Install it: {install_hint(EXTRA)}.") from error
        self._ciphers: dict[bytes, AESGCM] = {}
        raw = [_key_bytes(key) for key in keys]
        for key in raw:
            self._ciphers[_derived(key, b"id")[:_ID_BYTES]] = AESGCM(_derived(key, b"seal"))
        self._first = _derived(raw[0], b"id")[:_ID_BYTES]
        self._names = _derived(raw[0], b"names")

    def name_of(self, digest: bytes) -> str:
        """The name of some content: 64 hexadecimal digits, from its sha256."""
        return hmac.new(self._names, digest, hashlib.sha256).hexdigest()

    def seal(self, name: str, data: bytes) -> bytes:
        """The object to store under a name."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._ciphers[self._first].encrypt(nonce, data, self._first + name.encode())
        return _MAGIC + self._first + nonce + sealed

    def open(self, name: str, data: bytes) -> bytes:
        """What was sealed.

        Raises ``StorageDamaged`` when it is damaged, or was sealed under another name, or ``StorageError`` when it was
        sealed with another key, or was never sealed.
        """
        from cryptography.exceptions import InvalidTag

        if not is_sealed(data):
            raise StorageError(
                f"{name} in the store is not encrypted, and a key was given. Start with an empty store, or give no key."
            )
        rest = data[len(_MAGIC) :]
        which, nonce, sealed = rest[:_ID_BYTES], rest[_ID_BYTES:][:_NONCE_BYTES], rest[_ID_BYTES + _NONCE_BYTES :]
        cipher = self._ciphers.get(which)
        if cipher is None:
            raise StorageError(
                f"{name} in the store was encrypted with another key. Add the earlier key to key=[...], or to the "
                "variable ADK_SKILLS_WORKSPACE_KEY behind a comma."
            )
        try:
            return cipher.decrypt(nonce, sealed, which + name.encode())
        except InvalidTag:
            raise StorageDamaged(f"{name} in the store is damaged, or not what was stored under this name.") from None


def is_sealed(data: bytes) -> bool:
    """Whether an object was sealed with some key."""
    return data.startswith(_MAGIC)


def _derived(key: bytes, purpose: bytes) -> bytes:
    return hmac.new(key, b"adk-skills-runtime workspace store " + purpose, hashlib.sha256).digest()


def _key_bytes(key: bytes | str) -> bytes:
    raw = key
    if isinstance(raw, str):
        text = raw.strip()
        try:
            raw = bytes.fromhex(text) if len(text) == 2 * _KEY_BYTES else base64.urlsafe_b64decode(_urlsafe(text))
        except (ValueError, binascii.Error):
            raw = b""
    if not isinstance(raw, bytes) or len(raw) != _KEY_BYTES:
        raise ConfigError(
            "key must be 32 bytes, as 64 hexadecimal digits or as base64. Make one with: "
            "python -c 'import secrets; print(secrets.token_hex(32))'"
        )
    return raw


def _urlsafe(text: str) -> str:
    return text.replace("+", "-").replace("/", "_")
