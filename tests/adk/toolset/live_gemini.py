"""Gemini's live protocol on the loopback interface, as far as a conversation in text with tools needs it."""

from __future__ import annotations

import json
import ssl
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from google.adk.models import Gemini
from websockets.asyncio.server import Server, ServerConnection, serve

Answer = dict[str, Any]


def calls(name: str, **args: object) -> Answer:
    return {"toolCall": {"functionCalls": [{"name": name, "args": args, "id": f"call-{name}"}]}}


def says(text: str) -> Answer:
    return {"serverContent": {"modelTurn": {"role": "model", "parts": [{"text": text}]}, "turnComplete": True}}


def tls() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For a server of this machine and for a client that trusts it: google-genai's live client insists on TLS."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(secret + pem)
        file.flush()
        serving.load_cert_chain(file.name)
    return serving, ssl.create_default_context(cadata=pem.decode())


class LiveGemini:
    """Answers what a client sends with what ``answer`` gives for it; keeps everything that came.

    Args:
        answer: Gets the text of a user's turn, or the name of the tool whose answer came.
    """

    def __init__(self, answer: Callable[[str], Answer]) -> None:
        self._answer = answer
        self.setups: list[dict[str, Any]] = []
        self.messages: list[dict[str, Any]] = []
        self._server: Server | None = None

    async def __aenter__(self) -> Self:
        serving, self._trusting = tls()
        self._server = await serve(self._talk, "127.0.0.1", 0, ssl=serving)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    def model(self) -> Gemini:
        assert self._server is not None
        port = next(iter(self._server.sockets)).getsockname()[1]
        options = {"base_url": f"https://127.0.0.1:{port}", "async_client_args": {"ssl": self._trusting}}
        arguments = {"api_key": "rehearsed", "vertexai": False, "http_options": options}
        return Gemini(model="gemini-live-2.5-flash", client_kwargs=arguments)

    async def _talk(self, connection: ServerConnection) -> None:
        self.setups.append(json.loads(await connection.recv())["setup"])
        await connection.send(json.dumps({"setupComplete": {}}))
        async for raw in connection:
            message = json.loads(raw)
            self.messages.append(message)
            heard = self._heard(message)
            if heard:
                answer = self._answer(heard)
                await connection.send(json.dumps(answer))
                if "toolCall" in answer:
                    await connection.send(json.dumps({"serverContent": {"turnComplete": True}}))

    @staticmethod
    def _heard(message: dict[str, Any]) -> str:
        content = message.get("client_content") or message.get("clientContent")
        if content and content.get("turnComplete", content.get("turn_complete")):
            turns = content.get("turns") or []
            return "".join(part.get("text", "") for part in (turns[-1]["parts"] if turns else []))
        responses = message.get("tool_response") or message.get("toolResponse")
        if responses:
            return str((responses.get("functionResponses") or responses.get("function_responses"))[0]["name"])
        realtime = message.get("realtime_input") or message.get("realtimeInput")
        return str(realtime.get("text") or "") if realtime else ""
