from __future__ import annotations

import os
import subprocess
import tracemalloc
from pathlib import Path

import pytest

from adk_skills_agent.errors import ConfigError, EvalFileError
from adk_skills_agent.evals.formats.reading import read_eval_file
from adk_skills_agent.evals.skillsbench import local_image
from adk_skills_agent.evals.skillsbench.local_image import not_interpretable
from adk_skills_agent.evals.skillsbench.runner import make_plan
from adk_skills_agent.evals.skillsbench.task import filled, read_task, read_tasks
from evals.skillsbench.bench_tasks import make_task


def harbor(folder: Path, toml: str = "", instruction: str = "Do it.\n") -> Path:
    for name, text in {
        "instruction.md": instruction,
        "task.toml": toml,
        "environment/Dockerfile": "FROM ubuntu:24.04\n",
        "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
        "solution/solve.sh": "true\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def benchflow(folder: Path, text: str) -> Path:
    for name, content in {
        "task.md": text,
        "environment/Dockerfile": "FROM ubuntu:24.04\n",
        "verifier/test.sh": "true\n",
        "oracle/solve.sh": "true\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


@pytest.mark.requirement("S0-127")
def test_each_phase_has_the_limits_of_its_own_table(tmp_path: Path) -> None:
    task = read_task(
        harbor(
            tmp_path / "t",
            "[agent]\ntimeout_sec = 1\n[verifier]\ntimeout_sec = 2.5\n[verifier.env]\nKEY = '${KEY}'\n"
            "[environment]\nbuild_timeout_sec = 3\ncpus = 2\nmemory_mb = 4096\nstorage = '5G'\nallow_internet = false\n"
            "[metadata]\ncategory = 'x'\n",
        )
    )
    limits = task.limits
    assert (limits.agent_seconds, limits.verifier_seconds, limits.build_seconds) == (1, 2.5, 3)
    assert (limits.cpus, limits.memory_bytes, limits.storage_bytes) == (2, 4096 << 20, 5 << 30)
    assert not task.settings.allow_internet
    assert task.settings.verifier_env == {"KEY": "${KEY}"}
    assert task.settings.category == "x"
    assert task.layout == "harbor"
    assert not task.diagnostics


@pytest.mark.requirement("S0-127")
def test_a_toml_that_cannot_be_read_leaves_the_defaults_and_says_so(tmp_path: Path) -> None:
    task = read_task(harbor(tmp_path / "t", "[agent\n"))
    assert (task.limits.agent_seconds, task.limits.build_seconds, task.limits.verifier_seconds) == (900, 600, 900)
    assert "It is no TOML" in task.diagnostics[0].message
    assert task.diagnostics[0].file == str(tmp_path / "t" / "task.toml")


@pytest.mark.parametrize("value", ["-1", "'soon'", "nan", "true", "0"])
def test_a_limit_that_cannot_be_used_is_replaced_and_named(tmp_path: Path, value: str) -> None:
    task = read_task(harbor(tmp_path / "t", f"[agent]\ntimeout_sec = {value}\n"))
    assert task.limits.agent_seconds == 900
    assert "timeout_sec" in task.diagnostics[0].message


def test_the_whole_body_of_a_task_document_is_its_prompt(tmp_path: Path) -> None:
    task = read_task(
        benchflow(
            tmp_path / "t",
            "---\nschema_version: '1.3'\nagent:\n  timeout_sec: 7\nsandbox:\n  memory_mb: 10\n---\n\n## Steps\n\nDo.\n",
        )
    )
    assert task.instruction == "## Steps\n\nDo.\n"
    assert task.limits.agent_seconds == 7
    assert task.limits.memory_bytes == 10 << 20
    assert task.layout == "benchflow"
    assert task.tests.name == "verifier"
    assert task.solution is not None
    assert task.solution.name == "oracle"


def test_below_the_heading_prompt_is_the_prompt_up_to_a_role(tmp_path: Path) -> None:
    task = read_task(
        benchflow(
            tmp_path / "t",
            "---\nversion: 1\n---\nintro\n\n## prompt\n\nDo.\n\n```\n## role:no\n```\n\n"
            "## More\n\n## role:critic\nBe.\n",
        )
    )
    assert task.instruction == "Do.\n\n```\n## role:no\n```\n\n## More\n"


def test_a_name_of_the_native_layout_wins_also_when_it_is_empty(tmp_path: Path) -> None:
    folder = harbor(tmp_path / "t")
    (folder / "verifier").mkdir()
    with pytest.raises(ConfigError, match="so nothing can grade it"):
        read_task(folder)


def test_a_frontmatter_that_cannot_be_read_leaves_the_defaults_and_its_line(tmp_path: Path) -> None:
    task = read_task(benchflow(tmp_path / "t", "---\na: 1\nb: [\n---\nDo.\n"))
    assert task.limits.agent_seconds == 900
    assert task.diagnostics[0].line is not None


def test_compose_and_gpus_are_said_to_be_unsupported(tmp_path: Path) -> None:
    folder = harbor(tmp_path / "t", "[environment]\ngpus = 1\n")
    (folder / "environment" / "docker-compose.yaml").write_text("services: {}\n")
    task = read_task(folder)
    assert "docker-compose.yaml" in task.unsupported[0]
    assert "1 GPU" in task.unsupported[1]


@pytest.mark.requirement("S0-126")
def test_tasks_are_sorted_filtered_and_what_is_none_has_a_reason(tmp_path: Path) -> None:
    for name in ("b-one", "a-one", "c-two"):
        harbor(tmp_path / name)
    (tmp_path / "notes-one").mkdir()
    (harbor(tmp_path / "broken-one") / "tests" / "test.sh").unlink()
    found = read_tasks(tmp_path, containing="one")
    assert [task.name for task in found.tasks] == ["a-one", "b-one"]
    assert set(found.skipped) == {"notes-one", "broken-one"}
    assert "test.sh" in found.skipped["broken-one"]


def test_a_folder_without_tasks_says_what_a_task_is(tmp_path: Path) -> None:
    harbor(tmp_path / "one")
    with pytest.raises(ConfigError, match="has no task whose name contains 'two': a task is a folder"):
        read_tasks(tmp_path, containing="two")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_tasks(tmp_path / "absent")


def test_row_154_no_part_of_a_task_is_a_link_to_the_hosts_files(tmp_path: Path) -> None:
    """Seen: ``solution -> ~/.ssh`` gave that folder to the environment, whose scripts have a network."""
    private = tmp_path / "home"
    private.mkdir()
    (private / "solve.sh").write_text("true\n")
    for number, name in enumerate(("solution", "verifier", "instruction.md", "environment/skills", "tests/test.sh")):
        folder = harbor(tmp_path / "tasks" / str(number))
        if (folder / name).exists():
            (folder / name).rename(folder / "away")
        (folder / name).symlink_to(private)
    shared = harbor(tmp_path / "tasks" / "shared")
    (shared / "oracle").symlink_to(harbor(tmp_path / "tasks" / "other") / "tests")
    found = read_tasks(tmp_path / "tasks")
    assert [task.name for task in found.tasks] == ["other", "shared"]
    assert found.skipped["0"] == "0/solution is a link out of the folder of tasks."
    assert len(found.skipped) == 5


@pytest.mark.parametrize(
    "name", ["task.toml", "instruction.md", "environment/Dockerfile", "tests/data", "evals/test_config.json"]
)
def test_row_232_a_file_of_any_size_does_not_fill_the_memory(tmp_path: Path, name: str) -> None:
    """Seen: gigabytes for a sparse file, before anything is said."""
    task = harbor(tmp_path / "task")
    (task / name).parent.mkdir(exist_ok=True)
    with (task / name).open("wb") as file:
        file.truncate(200 << 20)
    tracemalloc.start()
    try:
        if "evals" in name:
            (task / "evals" / "a.evalset.json").write_text('{"eval_set_id": "a", "eval_cases": []}')
            with pytest.raises(EvalFileError, match="more than 32 MiB"):
                read_eval_file(task / "evals" / "a.evalset.json")
        elif name == "task.toml":
            assert "more than 32 MiB" in str(read_task(task).diagnostics)
        elif name == "tests/data":
            assert make_plan([read_task(task)], ["with-skill"], ["oracle"], 1, {})[0].fingerprint
        else:
            with pytest.raises(ConfigError, match="more than 32 MiB"):
                not_interpretable(read_task(task))
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_row_144_a_task_toml_with_a_key_of_thousands_of_parts_leaves_the_defaults(tmp_path: Path) -> None:
    task = read_task(harbor(tmp_path / "t", "a" + ".a" * 50_000 + " = 1\n"))
    assert "more than 20 parts" in task.diagnostics[0].message


def test_only_variables_a_task_names_come_from_the_host() -> None:
    host = {"KEY": "k", "OTHER": "o"}
    assert filled({"A": "${KEY}", "B": "${NONE:-d}", "C": "${NONE}", "D": "$OTHER"}, host) == (
        {"A": "k", "B": "d", "D": "$OTHER"},
        ("NONE",),
    )


@pytest.mark.parametrize(
    "dockerfile",
    [
        "ARG A=0123456789\n" + "ARG A=$A$A$A$A$A$A$A$A\n" * 12 + "FROM debian:12\n",  # row 280
        "FROM $NOTHING\n",
        "FROM debian:12\nCOPY 'a /b\n",
        "FROM debian:12\nENV A\n",
    ],
)
def test_a_dockerfile_that_cannot_be_read_leaves_its_task_out_and_no_other(tmp_path: Path, dockerfile: str) -> None:
    folder = harbor(tmp_path / "t", "[environment]\nmemory = '9" + "9" * 400 + "G'\nstorage_mb = 1e305\n")
    (folder / "environment/Dockerfile").write_text(dockerfile)
    assert not_interpretable(read_task(folder))


def test_a_category_is_a_short_text_for_it_is_in_each_row(tmp_path: Path) -> None:
    for number, told in enumerate((f"'{'x' * 1000}'", "[1, 2]", "''")):
        task = read_task(harbor(tmp_path / str(number), f"[metadata]\ncategory = {told}\n"))
        assert task.settings.category == ("uncategorised" if number else "x" * 100)


def test_row_286_files_that_are_too_large_or_too_deep_to_be_looked_at_leave_their_task_out(tmp_path: Path) -> None:
    """Seen: a sparse file of a terabyte was packed, into a temporary file, until the disk was full."""
    with (harbor(tmp_path / "large") / "environment/data").open("wb") as file:
        file.truncate(1 << 40)
    place = os.open(harbor(tmp_path / "deep") / "environment", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=place)
        below = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)
    harbor(tmp_path / "good")
    found = read_tasks(tmp_path)
    assert [task.name for task in found.tasks] == ["good"]
    assert "1,099,511," in found.skipped["large"]
    assert "folders in folders" in found.skipped["deep"]
    subprocess.run(["rm", "-rf", tmp_path / "deep"], check=True)


def test_local_mode_takes_what_a_run_mounts_of_the_task_and_says_which_mount_it_cannot_do(tmp_path: Path) -> None:
    """Seen: mounts were ignored, and the command told that its file is not there."""
    mount = "RUN --mount=type=bind,source=data.txt,target=/m \\\n --mount=type=cache,target=/c cat /m\n"
    task = make_task(tmp_path / "a", environment__Dockerfile=f"FROM debian:12\n{mount}")
    assert not_interpretable(task) is None
    assert [one.keyword for one in local_image._read(task, with_skills=True)] == ["FROM", "COPY", "RUN"]
    mount = mount.replace("type=bind", "type=bind,rw")
    task = make_task(tmp_path / "b", environment__Dockerfile=f"FROM debian:12\n{mount}")
    assert "line 2: local mode cannot mount" in str(not_interpretable(task))
