"""The log-triage script as a sandbox runs it, with every awk that is here."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SKILL = Path(__file__).parents[2] / "examples" / "skills" / "log-triage"
AWKS = [name for name in ("mawk", "gawk", "original-awk", "busybox") if shutil.which(name)] or ["awk"]

pytestmark = pytest.mark.skipif(
    not (shutil.which("bash") and shutil.which("awk")), reason="this machine has no bash or no awk"
)


@pytest.fixture(params=AWKS)
def run(request, tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    real = shutil.which(request.param)
    (programs / "awk").symlink_to(real)  # busybox looks at the name it is called by
    work = tmp_path / "work"
    work.mkdir()
    for entry in SKILL.iterdir():
        (work / entry.name).symlink_to(entry)

    def start(*options, log=None):
        if log is not None:
            (work / "in.log").write_bytes(log if isinstance(log, bytes) else log.encode())
            options = ("--input", "in.log", *options)
        return subprocess.run(
            ["bash", str(SKILL / "scripts" / "triage.sh"), *options],
            cwd=work,
            env={"PATH": f"{programs}:{os.defpath}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )

    start.work = work
    return start


def rows(done):
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    assert lines[0] == "count\tlevel\tfirst\tlast\tshape\texample"
    return [line.split("\t") for line in lines[1:-1]], lines[-1]


def shapes(run, log, *options):
    return [(row[0], row[1], row[4]) for row in rows(run("--format", "tsv", *options, log=log))[0]]


def test_the_sample_is_ranked_by_level_and_count(run):
    done = run("--input", "assets/sample.log", "--level", "warn")
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert lines[:2] == ["| count | level | first | last | shape | example |", "|---|---|---|---|---|---|"]
    assert [line.split(" | ")[:2] for line in lines[2:7]] == [
        ["| 1", "FATAL"],
        ["| 23", "ERROR"],
        ["| 4", "ERROR"],
        ["| 14", "WARN"],
        ["| 7", "WARN"],
    ]
    assert "`ERROR orders: could not place order <n>: no database connection within <n> s`" in lines[3]
    assert lines[-1] == (
        "164 lines read, 0 blank, 115 left out by the options, 12 without a level; 5 groups, 0 not shown."
    )


def test_what_varies_becomes_placeholders(run):
    log = (
        "2026-02-03 10:00:00,123 ERROR [worker-7] job 6f1c2a9e-0b7d-4c1e-9a55-1f2e3d4c5b6a failed after 1.5 s\n"
        "2026-02-03 10:00:09,123 ERROR [worker-12] job 00000000-1111-2222-3333-abcdefabcdef failed after 20 s\n"
        "[03/Feb/2026:10:15:42 +0000] WARN 10.0.3.17:5432 refused \"GET /a\" 'x y' https://a.example/b?c=1\n"
        "[03/Feb/2026:10:15:43 +0000] WARN 10.0.3.1:80 refused \"POST\" '' http://b.example/\n"
        "Feb  3 10:15:42 INFO wrote /var/lib/shop/a.jpg at 0x7ffe12 rev deadbeef01\n"
        "Feb 13 10:15:42 INFO wrote /tmp/b at 0xff rev 0badcafe\n"
    )
    assert shapes(run, log) == [
        ("2", "ERROR", "ERROR [worker-<n>] job <uuid> failed after <n> s"),
        ("2", "WARN", "WARN <ip> refused <str> <str> <url>"),
        ("2", "INFO", "INFO wrote <path> at <hex> rev <hex>"),
    ]


def test_levels_are_found_in_several_forms_and_synonyms(run):
    log = (
        'level=error msg="a"\n{"level":"warning","msg":"b"}\nCRITICAL: c\n<4> [NOTICE] d\nSEVERE e\n'
        "information about ERRORS\nno level\n"
    )
    assert [(level, shape) for _, level, shape in shapes(run, log)] == [
        ("FATAL", "CRITICAL: c"),
        ("ERROR", "SEVERE e"),
        ("ERROR", "level=error msg=<str>"),
        ("WARN", "{<str>:<str>,<str>:<str>}"),
        ("INFO", "<<n>> [NOTICE] d"),
        ("-", "information about ERRORS"),
        ("-", "no level"),
    ]


def test_first_and_last_times_and_the_first_example_are_kept(run):
    table, _ = rows(
        run("--format", "tsv", log="2026-01-01T00:00:01Z ERROR a 1\nERROR a 2\n2026-01-01T00:00:03Z ERROR a 3\n")
    )
    assert table == [["3", "ERROR", "2026-01-01T00:00:01Z", "2026-01-01T00:00:03Z", "ERROR a <n>", "ERROR a 1"]]


def test_grep_takes_the_text_as_it_is(run):
    log = "ERROR a.*b\nERROR aXXb\nERROR c\\nd\n"
    assert shapes(run, log, "--grep", "a.*b") == [("1", "ERROR", "ERROR a.*b")]
    assert shapes(run, log, "--grep", "c\\nd") == [("1", "ERROR", "ERROR c\\nd")]


def test_top_cuts_and_says_how_much(run):
    table, last = rows(run("--format=tsv", "--top=2", log="ERROR a\nWARN b\nINFO c\n"))
    assert len(table) == 2
    assert last == "# 3 lines read, 0 blank, 0 left out by the options, 0 without a level; 3 groups, 1 not shown."


def test_hostile_bytes_stay_in_their_cells(run):
    log = b"ERROR \x1b[31mred\x1b[0m\tx | `y` \xff\xfe\r\n\r\n" + b"ERROR " + b"z" * 1_000_000 + b"\n"
    done = run(log=log)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\x1b" not in done.stdout
    assert b"x \\| 'y'" in done.stdout
    assert len(done.stdout) < 5_000
    assert done.stdout.count(b"\n") == 6
    assert b"3 lines read, 1 blank" in done.stdout


def test_an_empty_log_is_an_empty_table(run):
    assert rows(run("--format", "tsv", log=""))[0] == []


def test_the_table_can_be_written_to_a_file_too(run):
    done = run("--output", "triage.md", log="ERROR a\n")
    assert (run.work / "triage.md").read_bytes() == done.stdout


def test_a_name_that_awk_would_take_for_an_assignment_is_read(run):
    (run.work / "a=b.log").write_text("ERROR x\n")
    done = run("a=b.log")
    assert b"| 1 | ERROR |" in done.stdout


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "Which log? Give --input PATH."),
        (["--input"], "--input needs a value."),
        (["none.log"], 'There is no file "none.log".'),
        (["--input", "assets"], '"assets" is not a regular file.'),
        (["assets/sample.log", "other"], "One log file at a time"),
        (["assets/sample.log", "--top", "many"], "--top must be a number"),
        (["assets/sample.log", "--top", "0"], "--top must be a number"),
        (["assets/sample.log", "--level", "bad"], "--level is one of TRACE DEBUG INFO WARN ERROR FATAL"),
        (["assets/sample.log", "--format", "xml"], "--format is markdown or tsv"),
        (["assets/sample.log", "--colour"], "There is no option --colour. Options: --input"),
        (["in.log", "--output", "in.log"], "--output is the log itself"),
        (["assets/sample.log", "--output", "no/where.md"], '"no/where.md" cannot be written.'),
    ],
)
def test_a_wrong_call_is_one_helpful_sentence(run, options, sentence):
    (run.work / "in.log").write_text("ERROR kept\n")
    done = run(*options)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().startswith(f"triage.sh: {sentence}")
    assert done.stderr.count(b"\n") == 1
    assert (run.work / "in.log").read_text() == "ERROR kept\n"


def test_help_is_printed(run):
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"Usage: triage.sh --input PATH")
