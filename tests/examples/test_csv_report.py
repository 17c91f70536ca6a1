"""The csv-report script as a sandbox runs it: isolated interpreter, links to the skill's files in its folder."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SKILL = Path(__file__).parents[2] / "examples" / "skills" / "csv-report"


@pytest.fixture
def work(tmp_path):
    for entry in SKILL.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    return tmp_path


def run(work, *options):
    return subprocess.run(
        [sys.executable, "-I", str(SKILL / "scripts" / "report.py"), *options],
        cwd=work,
        env={"PATH": "/usr/bin:/bin", "LANG": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def summary_of(work, text, *options, encoding="utf-8"):
    (work / "in.csv").write_bytes(text.encode(encoding))
    done = run(work, "--input", "in.csv", *options)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def problem_of(work, *options):
    done = run(work, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done.stderr


def test_the_sample_is_reported_by_region(work):
    done = run(work, "--input", "assets/sample.csv", "--group-by", "region", "--output", "report.md")
    assert (done.returncode, done.stderr) == (0, "")
    summary = json.loads(done.stdout)
    assert (summary["report"], summary["rows"], summary["warnings"]) == ("report.md", 48, [])
    assert summary["totals"]["revenue"] == {"sum": 109830.5, "mean": 2288.135417, "min": 79.8, "max": 8082}
    assert [(g["group"]["region"], g["share_percent"]) for g in summary["groups"]] == [
        ("South", 31.8),
        ("West", 26.8),
        ("North", 24.9),
        ("East", 16.5),
    ]
    report = (work / "report.md").read_text(encoding="utf-8")
    assert report.startswith("# Report on sample.csv\n\n48 rows from `assets/sample.csv`.\n")
    assert "| South | 12 | 34,966 | 207 | 31.8 % |" in report
    assert {p.name for p in work.iterdir() if not p.is_symlink()} == {"report.md"}


def test_the_groups_add_up_to_the_total_also_beyond_top(work):
    done = run(work, "--input", "assets/sample.csv", "--group-by", "region", "--group-by", "product", "--top", "3")
    summary = json.loads(done.stdout)
    assert len(summary["groups"]) == 4
    assert summary["groups"][-1]["group"] == {"region": "(other)", "product": ""}
    assert summary["groups_not_shown"] == 13
    assert sum(g["rows"] for g in summary["groups"]) == 48
    assert sum(g["values"]["revenue"]["sum"] for g in summary["groups"]) == pytest.approx(109830.5)


def test_without_a_group_it_describes_the_columns(work):
    summary = summary_of(work, "id,name,n\n1,a,2\n2,b,\n")
    assert summary["groups"] == []
    assert summary["totals"] == {"n": {"sum": 2, "mean": 2, "min": 2, "max": 2}}
    assert [(c["name"], c["kind"], c["filled"], c["distinct"]) for c in summary["columns"]] == [
        ("id", "number", 2, 2),
        ("name", "text", 2, 2),
        ("n", "number", 1, 1),
    ]


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1,234.50", 1234.5),
        ("$12", 12),
        ("-$12", -12),
        ("12 €", 12),
        ("7%", 7),
        ("(300)", -300),
        ("+5", 5),
        (".5", 0.5),
        ("5.", 5),
        ("1e3", 1000),
        ("0.1", 0.1),
    ],
)
def test_numbers_are_understood_as_people_write_them(work, cell, value):
    assert summary_of(work, f'k,n\na,"{cell}"\n')["totals"]["n"]["sum"] == value


@pytest.mark.parametrize(
    "cell", ["-+5", "--5", "e5", "1,23", "1.234,50", "12 000 km", "١٢", "nan", "inf", "0x1f", "(-", "1e999"]
)
def test_what_is_no_number_is_text(work, cell):
    assert summary_of(work, f'k,n\na,"{cell}"\n')["totals"] == {}


def test_cents_do_not_drift(work):
    assert summary_of(work, "n\n" + "0.1\n" * 30)["totals"]["n"]["sum"] == 3


def test_cells_left_out_of_a_numeric_column_are_counted_in_a_warning(work):
    summary = summary_of(work, "n,k\n" + "1,a\n" * 19 + "unknown,a\n")
    assert summary["totals"]["n"]["sum"] == 19
    assert '"n": 1 of 20 cells are not numbers and were left out of the sums.' in summary["warnings"]
    assert '- "n": 1 of 20 cells' in (work / "report.md").read_text(encoding="utf-8")


def test_ragged_rows_empty_cells_and_second_names_are_said(work):
    summary = summary_of(work, "k,n,k\na,1\n,2,x,y\n\n", "--group-by", "k")
    assert [g["group"]["k"] for g in summary["groups"]] == ["(empty)", "a"]
    assert summary["rows"] == 2
    assert summary["warnings"] == [
        'Column 3 is a second "k"; it is called "k_2" here.',
        "1 rows have fewer cells than the header; the missing ones count as empty.",
        "1 rows have more cells than the header; what is beyond it was left out.",
    ]


def test_a_share_of_negative_numbers_is_not_invented(work):
    summary = summary_of(work, "k,n\na,5\nb,-3\n", "--group-by", "k")
    assert [g["share_percent"] for g in summary["groups"]] == [None, None]


def test_without_a_numeric_column_groups_are_ranked_by_rows(work):
    summary = summary_of(work, "k\na\nb\nb\n", "--group-by", "k")
    assert [(g["group"]["k"], g["share_percent"]) for g in summary["groups"]] == [("b", 66.7), ("a", 33.3)]
    assert summary["ranked_by"] == "rows"


@pytest.mark.parametrize(("delimiter", "option"), [(";", ()), ("\t", ()), ("|", ()), ("\t", ("--delimiter", "tab"))])
def test_the_delimiter_is_found_or_given(work, delimiter, option):
    assert summary_of(work, f"k{delimiter}n\na{delimiter}1\n", *option)["totals"]["n"]["sum"] == 1


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings_and_quoted_line_breaks(work, encoding):
    options = () if encoding.startswith("utf-8") else ("--encoding", encoding)
    text = '"Stra\nße",n\r\n"é,\nè",1\r\n'
    summary = summary_of(work, text, "--group-by", "Stra ße", *options, encoding=encoding)
    assert summary["groups"][0]["group"] == {"Stra ße": "é,\nè"}
    assert "| é, è | 1 | 1 | 100.0 % |" in (work / "report.md").read_text(encoding="utf-8")


def test_cells_cannot_break_the_table_or_become_markup(work):
    summary_of(work, "k,n\n<b>|x\\|,1\n", "--group-by", "k", "--title", "a | <i>")
    report = (work / "report.md").read_text(encoding="utf-8")
    assert "# a \\| &lt;i>" in report
    assert "| &lt;b>\\|x\\\\\\| | 1 |" in report
    summary_of(work, "k,n\n<b>&,1\n", "--group-by", "k", "--output", "deep/er/page.HTML", "--title", "<i>")
    page = (work / "deep/er/page.HTML").read_text(encoding="utf-8")
    assert "<title>&lt;i&gt;</title>" in page
    assert "<td>&lt;b&gt;&amp;</td>" in page


def test_a_header_alone_is_a_report_with_a_warning(work):
    assert summary_of(work, "k,n\n", "--group-by", "k")["warnings"] == ["in.csv has a header and no rows."]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a program's memory is read from /proc")
def test_a_large_file_is_read_in_little_memory(work):
    with (work / "in.csv").open("w") as file:
        file.write("k,n,text\n")
        file.writelines(f"{i % 7},{i},{'x' * 400}{i}\n" for i in range(100_000))
    program = (
        "import runpy, sys\n"
        "sys.argv = ['report.py', '--input', 'in.csv', '--group-by', 'k']\n"
        f"try:\n    runpy.run_path({str(SKILL / 'scripts' / 'report.py')!r}, run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    peak = [line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')]\n"
        "    print(end.code, *peak, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=work, capture_output=True, text=True, check=False)
    code, peak_kib = done.stderr.split()
    assert code == "0"
    assert (work / "in.csv").stat().st_size > 38 << 20
    assert int(peak_kib) < 32 << 10
    assert json.loads(done.stdout)["totals"]["n"]["sum"] == sum(range(100_000))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--input", "assets/none.csv"],
            "there is no file assets/none.csv. CSV files here: assets/sample.csv, empty.csv",
        ),
        (["--input", "assets"], "assets is a folder"),
        (["--input", "empty.csv"], "empty.csv is empty"),
        (
            ["--input", "assets/sample.csv", "--group-by", "Regoin"],
            'no column "Regoin" in assets/sample.csv. Did you mean "region"?',
        ),
        (["--input", "assets/sample.csv", "--value", "region"], '"region" is not numeric: 48 of 48 cells'),
        (["--input", "assets/sample.csv", "--output", "assets/sample.csv/x"], "cannot be written"),
        (["--input", "latin.csv"], "is not valid utf-8"),
        (["--input", "latin.csv", "--encoding", "klingon"], "Python knows no encoding 'klingon'"),
        (["--input", "latin.csv", "--encoding", "cp1252", "--output", "latin.csv"], "this is the input file"),
        (["--input", "assets/sample.csv", "--top", "0"], "--top must be at least 1"),
        (["--input", "assets/sample.csv", "--group", "region"], "unrecognized arguments"),
        ([], "--input"),
    ],
)
def test_a_wrong_call_is_one_helpful_sentence(work, options, sentence):
    (work / "empty.csv").write_bytes(b"\n \n")
    (work / "latin.csv").write_bytes(b"k,n\n\xe9,1\n")
    assert sentence in problem_of(work, *options)
    assert (work / "latin.csv").read_bytes() == b"k,n\n\xe9,1\n"
