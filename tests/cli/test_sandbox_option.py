"""``--sandbox``, ``ADK_SKILLS_SANDBOX`` and ``doctor --container`` (issue 5)."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

import preloaded

PROGRAM = preloaded.program("adk-skills")


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ADK_SKILLS_S")} | environ
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, env=env, timeout=120)


@pytest.fixture
def skill(make_skill) -> str:
    return str(make_skill("hello", files={"scripts/hi.py": "print('hi')"}))


def test_the_flag_comes_before_the_variable_and_the_result_names_the_sandbox(skill, tmp_path):
    out = ("-o", str(tmp_path / "out"), "--json")
    done = run("run", skill, "hi.py", "--sandbox", "local", *out, ADK_SKILLS_SANDBOX="kubernetes")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sandbox"] == "local"


def test_the_variable_and_the_file_are_heard(skill, tmp_path):
    out = ("-o", str(tmp_path / "out"), "--json")
    refused = run("run", skill, "hi.py", *out, ADK_SKILLS_SANDBOX="kubernetes", KUBECONFIG="/nowhere")
    assert refused.returncode == 1
    assert "Pods cannot be used" in refused.stderr
    assert "Traceback" not in refused.stderr
    policy = tmp_path / "limits.toml"
    policy.write_text('[tool.adk-skills]\nsandbox = "local"\n[tool.adk-skills.policy]\nwall_seconds = 20\n')
    done = run("run", skill, "hi.py", "--policy-file", str(policy), *out)
    assert json.loads(done.stdout)["sandbox"] == "local", done.stderr
    wrong = run("run", skill, "hi.py", *out, ADK_SKILLS_SANDBOX="vm")
    assert (wrong.returncode, "There is no sandbox 'vm'" in wrong.stderr) == (2, True)
    elsewhere = run("run", skill, "hi.py", *out, ADK_SKILLS_SANDBOX="docker")
    assert "Did you mean 'container'?" in elsewhere.stderr


def test_the_doctor_says_which_sandbox_and_who_said_so():
    done = run("doctor", "--json", ADK_SKILLS_SANDBOX="local")
    told = json.loads(done.stdout)["sandbox"]
    assert told == {"name": "local", "source": "the environment variable ADK_SKILLS_SANDBOX"}


def test_the_doctor_tries_the_place_that_scripts_are_sent_to_and_not_only_this_machine(tmp_path):
    sent = {"ADK_SKILLS_SANDBOX": "container", "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    done = run("doctor", "--json", **sent)
    told = json.loads(done.stdout)
    assert (done.returncode, told["scripts_run"], told["elsewhere"]["works"]) == (1, False, False)
    page = run("doctor", **sent)
    assert (page.returncode, "Sandbox container cannot be used: " in page.stderr) == (1, True)
    assert "refuses to run scripts here" not in page.stderr
    here = json.loads(run("doctor", "--json", ADK_SKILLS_SANDBOX="local").stdout)
    assert (here["elsewhere"], here["scripts_run"]) == (None, here["default_policy_holds"])


def test_the_doctor_tries_a_sandbox_out():
    done = run("doctor", "--sandbox", "local", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["sandbox"], told["works"]) == (0, "local", True)
    assert set(told["isolation"]) == {"level", "enforced", "degraded", "reasons", "maker"}
    assert "What holds in it, at level" in run("doctor", "--sandbox", "local").stdout


def test_the_doctor_without_an_engine_says_what_to_do(tmp_path):
    nowhere = f"unix://{tmp_path}/none.sock"
    done = run("doctor", "--container", DOCKER_HOST=nowhere)
    assert done.returncode == 1
    assert "No container engine can be used" in done.stderr
    assert "Traceback" not in done.stderr
    told = json.loads(run("doctor", "--container", "--json", DOCKER_HOST=nowhere).stdout)
    assert (told["sandbox"], told["works"], told["isolation"]) == ("container", False, None)
    assert told["problem"]
    both = run("doctor", "--container", "--sandbox", "local")
    assert both.returncode == 2
