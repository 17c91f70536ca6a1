"""The sample application for production: two replicas, a database, a store, and one of them is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from replicas import SERVE, Talk, in_threads, model, replicas

pytest.importorskip("opentelemetry.exporter.prometheus")


@contextlib.contextmanager
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """An OpenTelemetry collector: its address, and the spans it was sent."""
    spans: list[bytes] = []

    class Traces(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces":
                spans.append(body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class has it so
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Traces) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_address[1]}", spans
        listening.shutdown()


@pytest.mark.slow
def test_replicas_answer_probes_share_conversations_and_drain(tmp_path: Path) -> None:
    with (
        model() as server,
        collector() as (otlp, spans),
        replicas(tmp_path, server, OTEL_EXPORTER_OTLP_ENDPOINT=otlp) as (one, two),
        httpx.Client() as client,
    ):
        assert client.get(f"{one.url}/healthz").json() == {"status": "ok"}
        assert client.get(f"{one.url}/readyz", timeout=30).json() == {"status": "ready"}
        talk = Talk("first", client)
        talk.begin(one.url)
        for number, replica in enumerate((one, two, one, two)):
            talk.note(replica.url, f"n{number}")
        talk.check(one.url)
        talk.check(two.url)
        assert talk.acknowledged == ["n0", "n1", "n2", "n3"]

        measured = client.get(f"{two.url}/metrics").text
        assert "skill_script_runs_total{" in measured
        assert "skill_workspace_stored_total{" in measured
        assert "lovelace" not in measured

        # SIGTERM: not ready at once; what it works on, and what is asked meanwhile, is answered.
        assert two.process is not None
        slow = Talk("second", client)
        slow.begin(two.url)
        working = threading.Thread(target=slow.note, args=(two.url, "slowly"))
        working.start()
        time.sleep(0.3)
        os.kill(two.process.pid, signal.SIGTERM)
        time.sleep(0.1)
        refused = client.get(f"{two.url}/readyz")
        assert (refused.status_code, refused.json()["problem"]) == (503, "This replica is ending.")
        talk.note(two.url, "late")
        assert two.process.wait(60) == 0
        working.join()
        assert (talk.acknowledged[-1], slow.acknowledged) == ("late", ["slowly"])
        talk.check(one.url)
        slow.check(one.url)
        assert any(b"run_skill_script notes scripts/note.py" in sent for sent in spans)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lacking", "setting"),
    [
        # Stronger than any level of a local sandbox.
        ("sandbox", {"MIN_ISOLATION": "container", "ADK_SKILLS_SANDBOX": "local"}),
        # Scripts would run in a cluster that does not answer; this machine's own sandbox says nothing of that.
        ("sandbox", {"MIN_ISOLATION": "landlock", "ADK_SKILLS_SANDBOX": "ray", "RAY_ADDRESS": "127.0.0.1:1"}),
        ("workspace store", {"WORKSPACE_STORE": "/proc/nobody-can-write-here", "MIN_ISOLATION": "process"}),
    ],
)
def test_a_replica_without_what_it_works_with_is_not_ready(
    tmp_path: Path, lacking: str, setting: dict[str, str]
) -> None:
    from replicas import Replica

    with model() as server:
        environment = {
            **server.environment(),
            "SESSION_DB": f"sqlite:///{tmp_path}/sessions.db",
            "WORKSPACE_STORE": str(tmp_path / "store"),
            **setting,
        }
        replica = Replica(environment, tmp_path / "log")
        replica.start()
        try:
            until = time.monotonic() + 60
            while time.monotonic() < until:
                try:
                    answered = httpx.get(f"{replica.url}/readyz", timeout=30)
                    break
                except httpx.HTTPError:
                    time.sleep(0.2)
            assert answered.status_code == 503
            assert answered.json()["problem"].startswith(f"{lacking}: ")
            assert httpx.get(f"{replica.url}/healthz").status_code == 200
        finally:
            replica.kill()


@pytest.mark.slow
def test_a_setting_that_cannot_be_used_ends_a_replica_with_a_sentence(tmp_path: Path) -> None:
    """It ran on, and the reason was in a traceback of each probe."""
    for name, value, said in (
        ("DRAIN_SECONDS", "soon", "serve: DRAIN_SECONDS must be a number, not 'soon'"),
        ("MIN_ISOLATION", "much", "serve: policy: min_isolation must be one of"),
    ):
        ended = subprocess.run(
            [sys.executable, "-W", "ignore", str(SERVE / "main.py")],
            env={**os.environ, "WORKSPACE_STORE": str(tmp_path / "store"), name: value},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (ended.returncode, ended.stderr.startswith(said)) == (1, True), ended.stderr


def kill_one_in_the_middle(folder: Path, conversations: int, rounds: int, at_once: int, **settings: str) -> None:
    with model() as server, replicas(folder, server, **settings) as pair, httpx.Client() as client:
        talks = [Talk(f"t{number}", client) for number in range(conversations)]
        in_threads([lambda talk=talk: talk.begin(pair[0].url) for talk in talks], at_once)
        done = threading.Event()

        def killer() -> None:
            while sum(len(talk.acknowledged) for talk in talks) < conversations * rounds / 3 and not done.is_set():
                time.sleep(0.01)
            pair[1].kill()
            time.sleep(0.5)
            pair[1].start()

        def converse(number: int) -> None:
            talk = talks[number]
            for each in range(rounds):
                first, second = pair[(number + each) % 2], pair[(number + each + 1) % 2]
                text = f"n{number}x{each}"
                if talk.note(first.url, text) is None:
                    told = talk.send(second.url, "what happened")
                    # Of a call that nobody answered the model knows that nothing is known, or its answer was saved.
                    assert told.get("status") in ("unknown", "success", None), told
                    talk.note(second.url, f"{text}again")

        killing = threading.Thread(target=killer)
        killing.start()
        try:
            in_threads([lambda number=number: converse(number) for number in range(conversations)], at_once)
        finally:
            done.set()
            killing.join()
        pair[1].wait_until_ready()
        in_threads([lambda n=n, talk=talk: talk.check(pair[n % 2].url) for n, talk in enumerate(talks)], at_once)
        assert sum(len(talk.acknowledged) for talk in talks) >= conversations * rounds * 0.9
        assert sum(len(talk.unacknowledged) for talk in talks) >= 1, "nothing was cut off: kill it earlier"


@pytest.mark.slow
def test_a_replica_killed_in_the_middle_loses_no_acknowledged_answer_and_no_file(tmp_path: Path) -> None:
    kill_one_in_the_middle(tmp_path, conversations=6, rounds=6, at_once=6)


@pytest.mark.slow
def test_200_conversations_lose_nothing_when_a_replica_is_killed(tmp_path: Path) -> None:
    kill_one_in_the_middle(tmp_path, conversations=200, rounds=3, at_once=8)


@pytest.mark.slow
def test_postgresql_has_the_sessions(tmp_path: Path) -> None:
    pytest.importorskip("asyncpg")
    from postgresql import postgresql

    with postgresql() as url:
        kill_one_in_the_middle(tmp_path, conversations=12, rounds=6, at_once=8, SESSION_DB=url)
