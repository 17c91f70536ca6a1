"""Certificates of an authority of the test's own, in the files that ``docker --tlsverify`` wants."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Authority:
    """Signs certificates, which it puts below a folder.

    Args:
        folder: Where ``server`` and ``client`` are made.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("authority of a test")
        basic = x509.BasicConstraints(ca=True, path_length=None)
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        self._own = self._signed(self._name, self._key, (basic, True), (usage, True))

    def give_to_both(self, address: str) -> None:
        """``ca.pem``, ``cert.pem`` and ``key.pem`` for a server at an address, and for who asks it."""
        server = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        self._give("server", (server, False), ExtendedKeyUsageOID.SERVER_AUTH)
        self._give("client", None, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _give(self, whom: str, more: tuple[x509.ExtensionType, bool] | None, use: x509.ObjectIdentifier) -> None:
        folder = self._folder / whom
        folder.mkdir()
        key = ec.generate_private_key(ec.SECP256R1())
        extensions = [(x509.ExtendedKeyUsage([use]), False), *([more] if more else [])]
        certificate = self._signed(_named(whom), key, *extensions)
        for name, data in (
            ("ca.pem", self._own.public_bytes(serialization.Encoding.PEM)),
            ("cert.pem", certificate.public_bytes(serialization.Encoding.PEM)),
            (
                "key.pem",
                key.private_bytes(
                    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
                ),
            ),
        ):
            (folder / name).write_bytes(data)

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: tuple[x509.ExtensionType, bool]
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
