"""Serve the agents of this folder in production: google-adk's own API, and what a platform asks of a replica.

    python main.py        # settings are environment variables, see README.md

``/healthz`` says that the process answers, ``/readyz`` that it can do its work: the database and the store answer, and
a script has just run in the sandbox. ``/metrics`` is for Prometheus. On SIGTERM the replica says that it is not ready,
goes on for ``DRAIN_SECONDS`` so that the platform sends nothing new, and ends when the requests it has are answered.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI, Response
from google.adk.cli.fast_api import get_fast_api_app
from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from adk_skills_agent import ExecutionRequest, SkillsError


def _number(name: str, default: float) -> float:
    text = os.environ.get(name, "")
    try:
        return float(text or default)
    except ValueError:
        sys.exit(f"serve: {name} must be a number, not {text!r}")


HERE = Path(__file__).parent
AGENTS = HERE / "agents"
PORT = int(_number("PORT", 8080))
SESSIONS = os.environ.get("SESSION_DB", "sqlite:///./sessions.db")
ARTIFACTS = os.environ.get("ARTIFACTS", "memory://")
DRAIN_SECONDS = _number("DRAIN_SECONDS", 10)
END_SECONDS = int(_number("END_SECONDS", 45))
READY_SECONDS = _number("READY_SECONDS", 5)
"""How long a good answer of /readyz is taken for the next one: probes must not cost more than requests."""

logger = logging.getLogger("serve")


class Readiness:
    """Whether this replica can do its work, asked of what it works with."""

    def __init__(self) -> None:
        self.draining = False
        self._good_until = 0.0
        self._asking = asyncio.Lock()

    async def problem(self) -> str:
        """A sentence, or empty when all is well."""
        if self.draining:
            return "This replica is ending."
        async with self._asking:
            if time.monotonic() < self._good_until:
                return ""
            for name, check in (("sandbox", self._sandbox), ("workspace store", self._store), ("sessions", self._db)):
                try:
                    async with asyncio.timeout(20):
                        await check()
                except Exception as error:  # whatever it is, this replica cannot work
                    logger.exception("not ready: %s", name)
                    return f"{name}: {type(error).__name__}"
            self._good_until = time.monotonic() + READY_SECONDS
            return ""

    async def _sandbox(self) -> None:
        from desk.agent import policy, sandbox

        result = await sandbox.run(ExecutionRequest(("python3", "-c", "print(6 * 7)"), policy))
        if result.stdout.strip() != b"42":
            raise RuntimeError(f"a script printed {result.stdout[:80]!r} and ended with {result.exit_code}")

    async def _store(self) -> None:
        from desk.agent import store

        await asyncio.to_thread(store.ready)  # once: can be written to, and keeps two replicas apart
        await asyncio.to_thread(store.objects.names, "check")

    async def _db(self) -> None:
        await self.sessions.get_session(app_name="desk", user_id="readyz", session_id="readyz")

    @property
    def sessions(self):
        """google-adk's service for the database, one for this process."""
        from google.adk.cli.utils.service_factory import create_session_service_from_options

        if not hasattr(self, "_sessions"):
            self._sessions = create_session_service_from_options(base_dir=str(AGENTS), session_service_uri=SESSIONS)
        return self._sessions


def make_app(readiness: Readiness) -> FastAPI:
    metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()]))
    sys.path.insert(0, str(AGENTS))
    try:
        importlib.import_module("desk.agent")  # a setting that cannot be used ends the replica here, not each request
    except (SkillsError, ValueError) as error:
        sys.exit(f"serve: {error}")

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        from desk.agent import sandbox, skills

        await skills.close()  # ends what still runs, and removes the local copies of the sessions' files
        await sandbox.close()

    app = get_fast_api_app(
        agents_dir=str(AGENTS),
        session_service_uri=SESSIONS,
        artifact_service_uri=ARTIFACTS,
        web=False,
        lifespan=lifespan,
    )

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz")
    async def readyz(response: Response) -> dict[str, str]:
        problem = await readiness.problem()
        if problem:
            response.status_code = 503
            return {"status": "not ready", "problem": problem}
        return {"status": "ready"}

    @app.get("/metrics")
    def prometheus() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    return app


class Server(uvicorn.Server):
    """uvicorn, but SIGTERM first says that the replica is not ready, and only then closes the door."""

    def __init__(self, config: uvicorn.Config, readiness: Readiness) -> None:
        super().__init__(config)
        self._readiness = readiness

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig != signal.SIGTERM or self._readiness.draining:
            super().handle_exit(sig, frame)
            return
        self._readiness.draining = True
        logger.warning("SIGTERM: not ready any more, closing in %g seconds", DRAIN_SECONDS)
        loop = asyncio.get_running_loop()
        loop.call_soon_threadsafe(loop.call_later, DRAIN_SECONDS, self._close)

    def _close(self) -> None:
        self.should_exit = True


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    readiness = Readiness()
    config = uvicorn.Config(
        make_app(readiness),
        host=os.environ.get("HOST", "0.0.0.0"),  # noqa: S104  # a container has its own network
        port=PORT,
        timeout_graceful_shutdown=END_SECONDS,
        log_level="info",
    )
    Server(config, readiness).run()


if __name__ == "__main__":
    main()
