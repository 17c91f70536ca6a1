"""A cluster on loopback for the real client of agent-sandbox: its API server, its controller, its pods.

The API server answers what the client asks (recorded from it): create, watch and delete a SandboxClaim, get a Sandbox,
get a Pod. A claim gets a pod at once: the very program of deploy/kubernetes, started by bubblewrap with the mounts and
the user of the shipped template, at a loopback address of its own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
DEPLOYED = REPOSITORY / "deploy" / "kubernetes"
SERVER = REPOSITORY / "src" / "adk_skills_agent" / "sandbox" / "remote" / "pod_server.py"
CLAIMS = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/adk-skills/sandboxclaims"
SANDBOXES = "/apis/agents.x-k8s.io/v1beta1/namespaces/adk-skills/sandboxes/"
PODS = "/api/v1/namespaces/adk-skills/pods/"


def template() -> dict[str, Any]:
    return yaml.safe_load((DEPLOYED / "template.yaml").read_text())


@dataclass
class Pod:
    """One started pod."""

    name: str
    address: str
    process: subprocess.Popen[bytes]

    def end(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@dataclass
class Cluster:
    """What the API server knows; tests change it to make things go wrong."""

    pool: str | None = "adk-skills"
    refusal: int | None = None
    never_ready: bool = False
    spec: dict[str, Any] = field(default_factory=lambda: template()["spec"]["podTemplate"]["spec"])
    out_of_memory: bool = False
    keeps_claims: bool = False
    pods: dict[str, Pod] = field(default_factory=dict)
    claims: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server = _Server(("127.0.0.1", 0), _Api)
        self.server.daemon_threads = True
        self.server.cluster = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        self._starter = ThreadPoolExecutor(1)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def sandbox(self, **settings: Any) -> Any:
        """Our sandbox over the real client library, pointed at this cluster."""
        from k8s_agent_sandbox.models import SandboxInClusterConnectionConfig
        from kubernetes import client

        from adk_skills_agent.sandbox.remote.kubernetes import KubernetesSandbox

        configuration = client.Configuration(host=self.url)
        return KubernetesSandbox(
            connection=SandboxInClusterConnectionConfig(server_port=8888),
            api_client=client.ApiClient(configuration),
            **{"ready_seconds": 20, **settings},
        )

    def bind(self, claim: dict[str, Any]) -> None:
        name = f"adk-skills-{os.urandom(4).hex()}"
        # In one thread that stays: bubblewrap's pods die with the thread that started them.
        self.pods[name] = self._starter.submit(start_pod, name).result()
        claim["status"] = {
            "sandbox": {"name": name, "podIPs": [self.pods[name].address]},
            "conditions": [{"type": "Ready", "status": "True", "reason": "SandboxReady", "message": ""}],
        }

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()
        for pod in self.pods.values():
            pod.end()
        self._starter.shutdown()


def start_pod(name: str) -> Pod:
    """The main process of the template's pod, in a file system and a process table of its own, as user 65534."""
    address = f"127.{random.randint(1, 254)}.{random.randint(0, 254)}.{random.randint(2, 254)}"
    base = [prefix for prefix in {sys.base_prefix} if not prefix.startswith("/usr")]
    line = ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--uid", "65534", "--gid", "65534"]
    line += ["--die-with-parent", "--new-session", "--clearenv", "--setenv", "SANDBOX_BASE_DIR", "/sandbox"]
    line += ["--setenv", "PATH", f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin"]
    line += ["--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"]
    line += ["--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev"]
    line += [part for prefix in base for part in ("--ro-bind", prefix, prefix)]
    line += ["--ro-bind", str(SERVER), "/opt/adk-skills/pod_server.py"]
    for folder in ("/sandbox", "/work", "/skill", "/skills", "/tmp"):
        line += ["--size", str(256 << 20), "--tmpfs", folder]
    line += ["--remount-ro", "/", "--chdir", "/sandbox"]
    line += ["python3", "-I", "/opt/adk-skills/pod_server.py", f"{address}:8888"]
    process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        assert json.loads(process.stdout.readline())["port"] == 8888
    return Pod(name, address, process)


class _Server(ThreadingHTTPServer):
    request_queue_size = 256  # as any API server's; five is for one client at a time


class _Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    @property
    def cluster(self) -> Cluster:
        return self.server.cluster  # type: ignore[attr-defined]

    def answer(self, value: Any, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status: int, reason: str) -> None:
        self.answer(
            {"kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": status}, status
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        cluster = self.cluster
        cluster.requests.append(("POST", self.path))
        if cluster.refusal is not None:
            self.refuse(cluster.refusal, "Forbidden")
            return
        assert self.path == CLAIMS, self.path
        body["metadata"].update(uid=os.urandom(8).hex(), resourceVersion="1")
        cluster.claims[body["metadata"]["name"]] = body
        self.answer(body, 201)

    def do_GET(self) -> None:
        cluster = self.cluster
        path, _, query = self.path.partition("?")
        cluster.requests.append(("GET", path))
        if path == CLAIMS and "watch=true" in query.lower():
            self.watch(query)
        elif path.startswith(SANDBOXES):
            name = path.removeprefix(SANDBOXES)
            if name not in cluster.pods:
                self.refuse(404, "NotFound")
                return
            status = {"podIPs": [cluster.pods[name].address]}
            spec = {"podTemplate": {"spec": cluster.spec}}
            self.answer({"metadata": {"name": name}, "spec": spec, "status": status})
        elif path.startswith(PODS):
            ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}} if cluster.out_of_memory else {}
            told = {"name": "sandbox", "ready": False, "restartCount": 0, "image": "x", "imageID": "x", "state": ended}
            self.answer({"metadata": {"name": path.removeprefix(PODS)}, "status": {"containerStatuses": [told]}})
        else:
            self.refuse(404, "NotFound")

    def watch(self, query: str) -> None:
        cluster = self.cluster
        name = query.partition("metadata.name%3D")[2].partition("&")[0]
        claim = cluster.claims[name]
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        if claim["spec"]["warmPoolRef"]["name"] != cluster.pool:
            missing = {"type": "Ready", "status": "False", "reason": "WarmPoolNotFound", "message": "no such pool"}
            claim["status"] = {"conditions": [missing]}
        elif cluster.never_ready:
            time.sleep(1)
            return
        elif "status" not in claim:
            cluster.bind(claim)
        self.wfile.write(json.dumps({"type": "MODIFIED", "object": claim}).encode() + b"\n")

    def do_DELETE(self) -> None:
        cluster = self.cluster
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        cluster.requests.append(("DELETE", self.path))
        if cluster.keeps_claims:
            self.refuse(500, "InternalError")
            return
        name = self.path.partition("?")[0].rpartition("/")[2]
        claim = cluster.claims.pop(name, None)
        if claim is None:
            self.refuse(404, "NotFound")
            return
        bound = claim.get("status", {}).get("sandbox", {}).get("name")
        if bound in cluster.pods:
            cluster.pods.pop(bound).end()
        self.answer({"kind": "Status", "status": "Success"})
