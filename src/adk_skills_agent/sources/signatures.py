"""Who signed a skill, and whose signatures a project takes: git's tags and commits, Sigstore bundles of archives.

A project says it in its ``pyproject.toml`` or ``adk-skills.toml``::

    [tool.adk-skills]
    require-signature = true

    [tool.adk-skills.signers]
    ssh = "allowed_signers"            # git's gpg.ssh.allowedSignersFile
    gpg = ["0123456789ABCDEF0123456789ABCDEF01234567"]
    sigstore = [{ identity = "release@example.com", issuer = "https://accounts.google.com" }]
    trust-root = "trusted_root.json"   # of one's own Sigstore; without it the public one

Without the second table git's own settings and keyring decide. git verifies its signatures itself; the ``sigstore``
library verifies bundles, without the network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from adk_skills_agent.errors import ConfigError, SourceError, nearest, said_by
from adk_skills_agent.sources.tree import read_regular

BUNDLE_SUFFIXES = (".sigstore.json", ".sigstore")
"""What the bundle of an archive is called: the name of the archive and one of these."""
MAX_BUNDLE_BYTES = 4 << 20
_KEYS = ("ssh", "gpg", "sigstore", "trust-root")
_TABLE_KEYS = ("require-signature", "signers")
_STATEMENT = "application/vnd.in-toto+json"


@dataclass(frozen=True, slots=True)
class SignaturePolicy:
    """Whose signatures count, and whether there must be one."""

    required: bool = False  # whether what nobody of them signed is refused
    ssh: Path | None = None  # the file of allowed signers for git's ssh signatures
    gpg: tuple[str, ...] = ()  # fingerprints of the keys for git's OpenPGP signatures
    sigstore: tuple[tuple[str, str], ...] = ()  # identities, each with the issuer that vouches for it (empty for any)
    # the ``trusted_root.json`` that Sigstore bundles are checked with; the public one when None
    trust_root: Path | None = None
    bundle: Path | None = None  # the Sigstore bundle of the archive that is added, when it is not beside the archive

    @property
    def names_signers(self) -> bool:
        """Whether it names anybody; else whom git's own settings know counts."""
        return self.ssh is not None or bool(self.gpg or self.sigstore)

    @property
    def is_asked(self) -> bool:
        """Whether signatures are looked at."""
        return self.required or self.names_signers or self.bundle is not None

    def demanding(self, required: bool, bundle: Path | None = None) -> SignaturePolicy:
        """The same, required also when ``required`` says so, with a bundle that was named."""
        return replace(self, required=self.required or required, bundle=bundle or self.bundle)

    def knows(self, signer: str) -> bool:
        """Whether a signer that a lock names is still one of these.

        Raises ``ConfigError`` when the file of SSH signers cannot be read.
        """
        if not signer or not self.names_signers:
            return bool(signer)
        if signer in {identity for identity, _ in self.sigstore}:
            return True
        if any(signer.upper().endswith(key) for key in self.gpg):
            return True
        return self.ssh is not None and any(_is_principal(signer, patterns) for patterns in _principals(self.ssh))

    def why_not(self, name: str, signer: str) -> str:
        """Why a locked skill is refused; empty when it is not. Raises ``ConfigError`` as :meth:`knows` does."""
        if not self.required or self.knows(signer):
            return ""
        if signer:
            return f"{name} was signed by {signer}, who is not among the signers of this project any more"
        return f"{name} is not signed, or was locked without looking"


def _principals(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        said = f"The allowed signers {path} cannot be read: {error}. Check ssh in [tool.adk-skills.signers]."
        raise ConfigError(said) from error
    kept = [line.strip() for line in lines]
    return [line.split()[0].strip('"') for line in kept if line and not line.startswith("#")]


def _is_principal(signer: str, patterns: str) -> bool:
    """As ssh matches a list of patterns: one fits, and none with ``!`` does."""
    listed = patterns.split(",")
    if any(one.startswith("!") and fnmatchcase(signer, one[1:]) for one in listed):
        return False
    return any(not one.startswith("!") and fnmatchcase(signer, one) for one in listed)


_MISTAKEN_TABLES = ("adk-skills", "adk_skills", "adk-skill")


def read_signature_policy(path: Path) -> SignaturePolicy:
    """What a project demands of signatures; nothing when there is no such file.

    Paths in the file start from its folder. Raises ``ConfigError`` when a line is wrong.
    """
    if not path.is_file() or not _may_say_something(path):
        return SignaturePolicy()
    from adk_skills_agent.settings import read_toml

    document = read_toml(path, "project file")
    tool: Any = document.get("tool")
    table: Any = tool.get("adk-skills") if isinstance(tool, Mapping) else None
    tables = tool if isinstance(tool, Mapping) else {}
    for place in (document, tables, *(some.get(name) for some in (document, tables) for name in _MISTAKEN_TABLES)):
        if isinstance(place, Mapping) and place is not table and _TABLE_KEYS[0] in place:
            raise ConfigError(f"{path}: {_TABLE_KEYS[0]} must stand under [tool.adk-skills]. Move it there.")
    if not isinstance(table, Mapping):
        return SignaturePolicy()
    for key in table:
        if "sign" in key and key not in _TABLE_KEYS:
            close = nearest(key, _TABLE_KEYS, 1)
            hint = close[0] if close else _TABLE_KEYS[0]
            raise ConfigError(f"{path}, [tool.adk-skills]: there is no {key!r}. Did you mean {hint!r}?")
    required, signers = table.get("require-signature", False), table.get("signers", {})
    where = f"{path}, [tool.adk-skills.signers]"
    if not isinstance(required, bool):
        raise ConfigError(f"{path}, [tool.adk-skills]: require-signature is {required!r}. Write true or false.")
    if not isinstance(signers, Mapping):
        raise ConfigError(f"{where}: it must be a table with {', '.join(_KEYS)}.")
    for key in signers:
        if key not in _KEYS:
            close = nearest(key, _KEYS, 1)
            raise ConfigError(f"{where}: there is no {key!r}. Did you mean {close[0] if close else _KEYS[0]!r}?")
    gpg = signers.get("gpg", [])
    keys = [str(one).replace(" ", "").upper() for one in gpg] if isinstance(gpg, list) else [""]
    if any(len(key) not in {40, 64} or set(key) - set("0123456789ABCDEF") for key in keys):
        raise ConfigError(f"{where}: gpg must be a list of whole fingerprints. See: gpg --fingerprint.")
    return SignaturePolicy(
        required,
        _file(signers, "ssh", path, where),
        tuple(keys),
        _identities(signers.get("sigstore", []), where),
        _file(signers, "trust-root", path, where),
    )


def _may_say_something(path: Path) -> bool:
    """Whether a file has the words; a manifest of 1,000 skills is not parsed to find that it says nothing of this."""
    try:
        text = read_regular(path)
    except OSError:
        return True
    return b"signature" in text or b"signers" in text or b"\\" in text


def _file(signers: Mapping[str, Any], key: str, base: Path, where: str) -> Path | None:
    value = signers.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ConfigError(f"{where}: {key} is {value!r}. Write the path of a file.")
    file = (base.parent / Path(value).expanduser()).absolute()
    if not file.is_file():
        raise ConfigError(f"{where}: {key} names {file}, and there is no such file. Put it there, or correct the path.")
    return file


def _identities(value: object, where: str) -> tuple[tuple[str, str], ...]:
    found = []
    for one in value if isinstance(value, list) else [value]:
        identity = one.get("identity") if isinstance(one, Mapping) else one
        issuer = one.get("issuer", "") if isinstance(one, Mapping) else ""
        if not isinstance(identity, str) or not identity or not isinstance(issuer, str):
            raise ConfigError(f'{where}: sigstore must be a list such as [{{ identity = "me@example.com" }}].')
        found.append((identity, issuer))
    return tuple(found)


def unsigned(what: str, reason: str) -> SourceError:
    """The error for something that must be signed and is not, or by somebody else."""
    return SourceError(
        f"{what} {reason}, and a signature is required. Ask its author for one, or change who is trusted: "
        "[tool.adk-skills.signers] of the project, else git's gpg.ssh.allowedSignersFile and your keyring."
    )


def bundle_signer(data: bytes, bundle: bytes, policy: SignaturePolicy) -> tuple[str, str]:
    """Who signed these bytes and when, by a Sigstore bundle; checked without the network.

    A bundle signs the bytes themselves, or a statement (in-toto) that names their digest, as GitHub's attestations do.
    Returns the identity, and the time from which its certificate holds, in UTC. Raises ``SourceError`` when it is no
    such bundle, of other bytes, or of somebody else, or ``ConfigError`` when the ``sigstore`` library is not installed,
    no identity is named, or the root of trust is none.
    """
    try:
        from sigstore.errors import Error as SigstoreError
        from sigstore.models import Bundle, TrustedRoot
        from sigstore.verify import Verifier
        from sigstore.verify.policy import AnyOf, Identity
    except ImportError as error:
        raise ConfigError(
            "Sigstore bundles need the sigstore library. Install it: pip install 'adk-skills-runtime[sigstore]'."
        ) from error
    if not policy.sigstore:
        raise ConfigError(
            "A Sigstore bundle proves nothing while nobody is trusted. "
            "Name who may sign under sigstore of [tool.adk-skills.signers]."
        )
    try:
        verifier = (
            Verifier(trusted_root=TrustedRoot.from_file(str(policy.trust_root)))
            if policy.trust_root is not None
            else Verifier.production(offline=True)
        )
    except (SigstoreError, OSError, ValueError) as error:
        why = said_by(error).rstrip(".")
        said = f"The Sigstore root of trust cannot be used: {why}. Check trust-root."
        raise ConfigError(said) from error
    import json

    try:
        parsed = Bundle.from_json(bundle)
        is_statement = "dsseEnvelope" in json.loads(bundle)
    except (SigstoreError, ValueError) as error:
        said = said_by(error).rstrip(".")
        raise SourceError(f"The file beside the archive is no Sigstore bundle: {said}.") from error
    said = ""
    for identity, issuer in policy.sigstore:
        wanted = AnyOf([Identity(identity=identity, issuer=issuer or None)])
        try:
            if is_statement:
                kind, payload = verifier.verify_dsse(parsed, wanted)
                if kind != _STATEMENT or not _names(payload, data):
                    said = "the statement in it is about other bytes"
                    continue
            else:
                verifier.verify_artifact(data, parsed, wanted)
        except SigstoreError as error:
            said = said_by(error).rstrip(".")
            continue
        return identity, parsed.signing_certificate.not_valid_before_utc.strftime("%Y-%m-%dT%H:%M:%SZ")
    raise SourceError(f"The Sigstore bundle does not hold for these bytes and signers: {said}.")


def _names(payload: bytes, data: bytes) -> bool:
    """Whether an in-toto statement is about these bytes."""
    import json

    digest = hashlib.sha256(data).hexdigest()
    try:
        subjects = json.loads(payload)["subject"]
        return any(one["digest"].get("sha256") == digest for one in subjects)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
