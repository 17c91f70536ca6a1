"""A Sigstore of one's own: a certificate authority, a certificate log and a signature log, all in memory.

Every signature is a real one (RFC 6962 for the certificate's timestamp, Rekor's promise and checkpoint for the entry),
so that the ``sigstore`` library verifies the bundles as it verifies those of the public service.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

SHA256 = ec.ECDSA(hashes.SHA256())
NOW = datetime(2026, 3, 1, tzinfo=UTC)
STATEMENT = "application/vnd.in-toto+json"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def der(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def key_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(der(key)).digest()


class Authority:
    """``root()`` is its trusted root, ``sign()`` makes a bundle."""

    def __init__(self) -> None:
        self.ca_key, self.ct_key, self.log_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority of a test")])
        usage = x509.KeyUsage(False, False, False, False, False, True, True, None, None)
        self.ca = (
            x509.CertificateBuilder(self.name, self.name, self.ca_key.public_key(), 1)
            .not_valid_before(NOW - timedelta(days=1))
            .not_valid_after(NOW + timedelta(days=365))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.ca_key.public_key()), critical=False)
            .sign(self.ca_key, hashes.SHA256())
        )

    def root(self) -> str:
        def log(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
            public = {"rawBytes": b64(der(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256"}
            return {
                "baseUrl": "https://log.example.com",
                "hashAlgorithm": "SHA2_256",
                "logId": {"keyId": b64(key_id(key))},
                "publicKey": public | {"validFor": {"start": "2025-01-01T00:00:00Z"}},
            }

        authority = {
            "subject": {"commonName": "authority of a test", "organization": "test"},
            "uri": "https://ca.example.com",
            "certChain": {"certificates": [{"rawBytes": b64(self.ca.public_bytes(serialization.Encoding.DER))}]},
            "validFor": {"start": "2025-01-01T00:00:00Z"},
        }
        return json.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                "tlogs": [log(self.log_key)],
                "ctlogs": [log(self.ct_key)],
                "certificateAuthorities": [authority],
            }
        )

    def certificate(self, key: ec.EllipticCurvePrivateKey, identity: str, issuer: str) -> x509.Certificate:
        usage = x509.KeyUsage(True, False, False, False, False, False, False, None, None)
        above = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.ca_key.public_key())
        said_by = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1"), issuer.encode())
        builder = (
            x509.CertificateBuilder(self.name, x509.Name([]), key.public_key(), 2)
            .not_valid_before(NOW - timedelta(minutes=5))
            .not_valid_after(NOW + timedelta(minutes=5))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.RFC822Name(identity)]), critical=True)
            .add_extension(above, critical=False)
            .add_extension(said_by, critical=False)
        )
        body = builder.sign(self.ca_key, hashes.SHA256()).tbs_certificate_bytes
        time = int(NOW.timestamp() * 1000)
        signed = struct.pack("!BBQH", 0, 0, time, 1) + hashlib.sha256(der(self.ca_key)).digest()
        signature = self.ct_key.sign(signed + len(body).to_bytes(3, "big") + body + b"\0\0", SHA256)
        entry = b"\0" + key_id(self.ct_key) + struct.pack("!QHBBH", time, 0, 4, 3, len(signature)) + signature
        listed = struct.pack("!HH", len(entry) + 2, len(entry)) + entry
        octets = b"\x04" + (bytes([len(listed)]) if len(listed) < 128 else b"\x81" + bytes([len(listed)])) + listed
        place = x509.ExtensionOID.PRECERT_SIGNED_CERTIFICATE_TIMESTAMPS
        return builder.add_extension(x509.UnrecognizedExtension(place, octets), critical=False).sign(
            self.ca_key, hashes.SHA256()
        )

    def sign(
        self, data: bytes, identity: str = "release@example.com", issuer: str = "https://issuer.example.com"
    ) -> str:
        """A bundle over the bytes themselves."""
        key, digest = ec.generate_private_key(ec.SECP256R1()), hashlib.sha256(data)
        certificate, signature = self.certificate(key, identity, issuer), key.sign(data, SHA256)
        public = b64(certificate.public_bytes(serialization.Encoding.PEM))
        spec = {
            "data": {"hash": {"algorithm": "sha256", "value": digest.hexdigest()}},
            "signature": {"content": b64(signature), "publicKey": {"content": public}},
        }
        of = {"algorithm": "SHA2_256", "digest": b64(digest.digest())}
        return self._bundle(
            certificate, "hashedrekord", spec, {"messageSignature": {"signature": b64(signature), "messageDigest": of}}
        )

    def attest(
        self, data: bytes, identity: str = "release@example.com", issuer: str = "https://issuer.example.com"
    ) -> str:
        """A bundle over a statement that names the digest of the bytes, as GitHub's attestations are."""
        subject = {"name": "skill", "digest": {"sha256": hashlib.sha256(data).hexdigest()}}
        statement = {"_type": "https://in-toto.io/Statement/v1", "subject": [subject], "predicateType": "x"}
        payload = json.dumps(statement).encode()
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.certificate(key, identity, issuer)
        signature = key.sign(f"DSSEv1 {len(STATEMENT)} {STATEMENT} {len(payload)} ".encode() + payload, SHA256)
        envelope = {"payload": b64(payload), "payloadType": STATEMENT, "signatures": [{"sig": b64(signature)}]}
        spec = {
            "payloadHash": {"algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest()},
            "envelopeHash": {
                "algorithm": "sha256",
                "value": hashlib.sha256(json.dumps(envelope).encode()).hexdigest(),
            },
            "signatures": [
                {
                    "signature": b64(signature),
                    "verifier": b64(certificate.public_bytes(serialization.Encoding.PEM)),
                }
            ],
        }
        return self._bundle(certificate, "dsse", spec, {"dsseEnvelope": envelope})

    def _bundle(self, certificate: x509.Certificate, kind: str, spec: dict[str, Any], content: dict[str, Any]) -> str:
        body = rfc8785.dumps({"kind": kind, "apiVersion": "0.0.1", "spec": spec})
        log, time = key_id(self.log_key), int(NOW.timestamp())
        leaf = hashlib.sha256(b"\0" + body).digest()
        note = f"log.example.com\n1\n{b64(leaf)}\n"
        seal = b64(log[:4] + self.log_key.sign(note.encode(), SHA256))
        promise = rfc8785.dumps({"body": b64(body), "integratedTime": time, "logID": log.hex(), "logIndex": 0})
        entry = {
            "logIndex": "0",
            "logId": {"keyId": b64(log)},
            "kindVersion": {"kind": kind, "version": "0.0.1"},
            "integratedTime": str(time),
            "canonicalizedBody": b64(body),
            "inclusionPromise": {"signedEntryTimestamp": b64(self.log_key.sign(promise, SHA256))},
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": b64(leaf),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": f"{note}\n— log.example.com {seal}\n"},
            },
        }
        raw = b64(certificate.public_bytes(serialization.Encoding.DER))
        material = {"certificate": {"rawBytes": raw}, "tlogEntries": [entry]}
        media = "application/vnd.dev.sigstore.bundle.v0.3+json"
        return json.dumps({"mediaType": media, "verificationMaterial": material, **content})
