"""The table of tested levels, and what is a skip and what a failure."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import backend_matrix
import level_table
from adk_skills_agent.sandbox.contract import IsolationLevel
from adk_skills_agent.sandbox.local.levels import base
from adk_skills_agent.sandbox.local.namespaces import bubblewrap


def report(nodeid: str) -> SimpleNamespace:
    return SimpleNamespace(nodeid=nodeid)


def test_every_level_has_a_line_with_its_state_its_users_and_its_tests():
    here = "tests/sandbox/conformance/test_x.py"
    stats = {
        "passed": [report(f"{here}::test_a[process]"), report(f"{here}::test_b[process-0.0]")],
        "failed": [report(f"{here}::test_b[0.0-process]")],
        "skipped": [report(f"{here}::test_a[landlock]"), SimpleNamespace()],
    }
    lines = {line.split()[0]: line for line in level_table.table(stats)}
    assert list(lines) == [level.value for level in level_table.LOCAL]
    assert set(level_table.LOCAL) == set(IsolationLevel) - {IsolationLevel.CONTAINER, IsolationLevel.REMOTE}
    assert lines["process"].endswith("tests: 2 passed, 1 failed")
    assert "works; the agent is user" in lines["process"]
    assert lines["landlock"].endswith("tests: 1 skipped")
    assert lines["namespaces"].endswith("tests: none run")


def told(backend: str, *, is_local: bool = False, **more: object) -> list[tuple[str, dict[str, object]]]:
    return [(backend_matrix.PROPERTY, {"backend": backend, "applies": True, "is_local": is_local, **more})]


def test_other_places_have_a_line_with_what_they_ran_on_or_why_they_did_not():
    engine = told("container-docker", ran_on="Docker 1, runc 2; Linux 6")
    missing = SimpleNamespace(
        nodeid="x", user_properties=told("container-podman"), longrepr=("x.py", 1, "Skipped: podman is not installed")
    )
    own = SimpleNamespace(
        nodeid="x", user_properties=told("kubernetes", applies=False), longrepr=("x.py", 1, "Skipped: x")
    )
    stats = {
        "passed": [
            SimpleNamespace(user_properties=engine),
            SimpleNamespace(user_properties=told("namespaces-zygote", is_local=True)),
        ],
        "failed": [SimpleNamespace(user_properties=engine), report("tests/x.py::test_a[namespaces-zygote]")],
        "skipped": [missing, own],
    }
    assert level_table.other_places(stats) == [
        "container-docker: ran on Docker 1, runc 2; Linux 6; tests: 1 passed, 1 failed",
        "container-podman: NOT RUN: podman is not installed; tests: 1 skipped",
        "kubernetes: nothing that is asked of it was run; tests: 1 skipped",
    ]
    (line,) = level_table.other_places({"passed": [report("tests/x.py::test_a[namespaces-zygote]")]})
    assert "no test of a container, a pod or a service" in line


def test_a_level_whose_package_is_missing_is_a_failure(monkeypatch):
    monkeypatch.setattr(bubblewrap, "features", lambda: None)
    monkeypatch.setattr(base, "_answers", {})
    with pytest.raises(pytest.fail.Exception, match=r"bubblewrap is not installed.*apt-get install bubblewrap"):
        level_table.require("namespaces")
    assert any("NOT INSTALLED: bubblewrap" in line for line in level_table.table({}))


def test_a_level_the_kernel_lacks_is_a_skip_with_the_reason(monkeypatch):
    level = level_table.level_named("namespaces")
    monkeypatch.setattr(type(level), "problem", lambda self: "user namespaces are switched off")
    with pytest.raises(pytest.skip.Exception, match="user namespaces are switched off"):
        level_table.require("namespaces")
    with pytest.raises(pytest.skip.Exception, match="no such level"):
        level_table.require("firecracker")
