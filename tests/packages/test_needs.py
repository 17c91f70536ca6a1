"""What a skill needs is read from its files: declared or inferred, present or missing, never run."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import preloaded
from adk_skills_agent.catalog import Skill
from adk_skills_agent.catalog.registry import skills_below
from adk_skills_agent.cli.sources import open_skill
from adk_skills_agent.packages import Need, NeedKind, Needs, read_needs
from adk_skills_agent.packages.declarations import node_manifest, python_project, requirements_file
from adk_skills_agent.packages.findings import MAX_FINDINGS, MAX_PROBLEMS, Findings, SkillText
from adk_skills_agent.packages.inference import parsed_python, programs_called, shell_code
from adk_skills_agent.packages.needs import find_needs
from adk_skills_agent.settings import parsed_toml

MakeSkill = Callable[..., Path]
PROGRAM = preloaded.program("adk-skills")


def opened(folder: Path) -> Skill:
    return open_skill(str(folder), ())


def needs_of(make_skill: MakeSkill, body: str = "Do it.\n", **files: str | bytes) -> Needs:
    return read_needs(opened(make_skill(body=body, files=dict(files.items()))))


def named(needs: Needs, kind: NeedKind) -> dict[str, Need]:
    return {need.name: need for need in needs.needs if need.kind is kind}


def test_an_import_becomes_the_distribution_that_brings_it(make_skill: MakeSkill) -> None:
    code = "import yaml, os, json\nfrom PIL import Image\nimport skimage.io\nfrom google.cloud import storage\n"
    packages = named(needs_of(make_skill, **{"scripts/run.py": code}), NeedKind.PYTHON_PACKAGE)
    assert set(packages) == {"PyYAML", "pillow", "scikit-image", "google-cloud-storage"}
    assert packages["pillow"].places == ("scripts/run.py:2",)
    assert packages["PyYAML"].present is True
    assert not packages["PyYAML"].supply
    assert re.fullmatch(r"adk-skills prepare .*/sample'?", packages["scikit-image"].supply)


def test_a_name_that_the_table_does_not_know_is_no_package(make_skill: MakeSkill) -> None:
    needs = needs_of(make_skill, **{"scripts/run.py": "import colourful_squatted_name\n"})
    assert needs.requirements() == ()
    (module,) = needs.of(NeedKind.PYTHON_MODULE)
    assert module.missing
    assert "requirements.txt" in module.supply


def test_what_the_skill_has_itself_is_no_need(make_skill: MakeSkill) -> None:
    files = {
        "scripts/run.py": "import helpers\nfrom shared.tables import rows\nfrom . import near\nimport office.pack\n",
        "scripts/helpers.py": "",
        "shared/tables.py": "",
        "scripts/office/pack.py": "",
    }
    assert needs_of(make_skill, **files).needs == ()


def test_a_guarded_import_is_optional_unless_the_handler_gives_up(make_skill: MakeSkill) -> None:
    code = (
        "try:\n    import pandas\nexcept ImportError:\n    pandas = None\n"
        "try:\n    import openpyxl\nexcept ModuleNotFoundError:\n    print('pip install openpyxl')\n    raise SystemExit(1)\n"  # noqa: E501
        "import sys\ntry:\n    import docx\nexcept ImportError:\n    sys.exit('no docx')\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n"
        "def later():\n    import reportlab\n"
    )
    needs = needs_of(make_skill, **{"scripts/run.py": code})
    packages = named(needs, NeedKind.PYTHON_PACKAGE)
    assert {name: need.optional for name, need in packages.items()} == {
        "pandas": True,
        "openpyxl": False,
        "python-docx": False,
        "reportlab": False,
    }
    assert needs.requirements() == ("openpyxl", "python-docx", "reportlab")
    assert "pandas" in needs.requirements(optional=True)


def test_every_form_of_declaration_is_read(make_skill: MakeSkill) -> None:
    files = {
        "scripts/run.py": '# /// script\n# requires-python = ">=3.9"\n# dependencies = [\n#   "rich>=13",\n# ]\n# ///\nimport rich\n',  # noqa: E501
        "requirements.txt": "# tables\npandas>=2,<3  # of ours\nopenpyxl==3.1.5 \\\n  --hash=sha256:00\n-r more.txt\n",
        "pyproject.toml": '[project]\ndependencies = ["httpx[http2]"]\n[tool.poetry.dependencies]\npython = "^3.9"\nlxml = "^5.1"\n',  # noqa: E501
        "package.json": '{"dependencies": {"docx": "^9.0.0"}, "devDependencies": {"jest": "1"}, "engines": {"node": ">=18"}}',  # noqa: E501
    }
    body = "Run:\n\n```bash\npip install xlsxwriter seaborn==0.13.2 -r requirements.txt\nuv run --with plotly scripts/run.py\n```\n"  # noqa: E501
    body += "\nOr `pip install tabulate`; pip install not-this-prose.\n"
    needs = needs_of(make_skill, body, **files)
    declared = {need.name: need.spec for need in needs.of(NeedKind.PYTHON_PACKAGE) if need.declared}
    assert declared == {
        "rich": ">=13",
        "pandas": "<3,>=2",
        "openpyxl": "==3.1.5",
        "httpx[http2]": "",
        "lxml": "<6,>=5.1",
        "xlsxwriter": "",
        "seaborn": "==0.13.2",
        "plotly": "",
        "tabulate": "",
    }
    assert named(needs, NeedKind.NODE_PACKAGE)["docx"].spec == "^9.0.0"
    interpreters = named(needs, NeedKind.INTERPRETER)
    assert interpreters["node"].spec == ">=18"
    assert needs.python_spec == ">=3.9"
    assert named(needs, NeedKind.PYTHON_PACKAGE)["seaborn"].places == ("SKILL.md:9",)


def test_requirements_that_another_file_includes_are_read_and_a_missing_one_is_said(make_skill: MakeSkill) -> None:
    files = {
        "requirements.txt": "-r requirements/base.txt\n--requirement=gone.txt\n-c limits.txt\n",
        "requirements/base.txt": "openpyxl\n-r ../requirements.txt\n-r more.txt\n",
        "requirements/more.txt": "lxml>=5\n",
        "requirements/dev.txt": "seaborn\n",
    }
    needs = needs_of(make_skill, **files)
    assert needs.requirements() == ("lxml>=5", "openpyxl")
    assert [(one.code, one.file, one.line) for one in needs.problems] == [
        ("requirements-missing", "requirements.txt", 2)
    ]


def test_a_script_without_a_suffix_is_read_to_its_end(make_skill: MakeSkill) -> None:
    text = f'"""{"A long text. " * 40}"""\n'
    block = "# /// script\n# dependencies = ['lxml']\n# ///\n"
    files = {
        "scripts/tool": f"#!/usr/bin/env python3\n{text}import openpyxl\n",
        "scripts/inline": f"#!/usr/bin/env -S uv run --script\n#{'-' * 300}\n{block}",
        "bin/cut": f"#!/bin/bash\n#{'-' * 300}\nffmpeg -i in.mp4 out.gif\n",
        "notes": f"{'-' * 300}\nimport seaborn\n",
    }
    needs = needs_of(make_skill, **files)
    assert needs.requirements() == ("lxml", "openpyxl")
    assert set(named(needs, NeedKind.PROGRAM)) == {"ffmpeg"}
    assert needs.problems == ()


@pytest.mark.parametrize("host", ["openclaw", "clawdbot"])
@pytest.mark.parametrize("as_json", [True, False])
def test_the_requirements_in_the_metadata_of_registries_are_read(tmp_path: Path, host: str, as_json: bool) -> None:
    requires = {
        host: {
            "requires": {"bins": ["gog-no-such"], "anyBins": ["nobody-has-this", "sh"], "env": ["SPOTIFY_KEY"]},
            "install": [{"id": "b", "kind": "brew", "formula": "steipete/tap/gog", "bins": ["gog-no-such"]}],
        }
    }
    folder = tmp_path / "sample"
    folder.mkdir()
    metadata = f"'{json.dumps(requires)}'" if as_json else json.dumps(requires)
    (folder / "SKILL.md").write_text(
        f"---\nname: sample\ndescription: Plays. Use it.\nmetadata: {metadata}\n---\nGo.\n"
    )
    needs = read_needs(opened(folder))
    programs = named(needs, NeedKind.PROGRAM)
    assert programs["gog-no-such"].supply == "brew install steipete/tap/gog"
    assert programs["gog-no-such"].missing
    assert programs["nobody-has-this"].present is True  # one of two is enough
    (key,) = needs.of(NeedKind.ENVIRONMENT_KEY)
    assert (key.name, key.declared, key.supply) == (
        "SPOTIFY_KEY",
        True,
        'grants={"sample": Grant(env={"SPOTIFY_KEY": Secret(...)})}',
    )


def test_programs_hosts_and_keys_are_inferred_from_shell_python_and_javascript(make_skill: MakeSkill) -> None:
    files = {
        "scripts/get.sh": '#!/bin/bash\ncurl -H "Auth: ${MY_API_KEY}" https://api.acme.io/v1 | jqq .x\nX_TOKEN=1; echo $X_TOKEN\n',  # noqa: E501
        "scripts/ask.py": (
            '"""See https://docs-only.acme.org."""\nimport os, subprocess\nk = os.environ["ACME_KEY"]\n'
            'o = os.getenv("ACME_REGION", "eu")\nsubprocess.run(["pandoc-no-such", "x"])\nu = "https://data.acme.io/x"\n'
        ),
        "scripts/go.mjs": 'import fs from "fs";\nimport { x } from "@acme/sdk/y";\nconst k = process.env.NODE_ACME_KEY;\n',  # noqa: E501
    }
    needs = needs_of(make_skill, **files)
    assert set(named(needs, NeedKind.HOST)) == {"api.acme.io", "data.acme.io"}
    keys = {need.name: need.optional for need in needs.of(NeedKind.ENVIRONMENT_KEY)}
    assert keys == {"MY_API_KEY": False, "ACME_KEY": False, "ACME_REGION": True, "NODE_ACME_KEY": False}
    assert {need.name for need in needs.of(NeedKind.PROGRAM) if need.missing} == {"jqq", "pandoc-no-such"}
    assert set(named(needs, NeedKind.NODE_PACKAGE)) == {"@acme/sdk"}
    assert "node" in named(needs, NeedKind.INTERPRETER)


def test_the_first_line_decides_before_the_suffix(make_skill: MakeSkill) -> None:
    files = {"scripts/a.sh": "#!/usr/bin/env python3\nimport lxml\n", "bin/tool": "#!/usr/bin/env ruby\nputs 1\n"}
    needs = needs_of(make_skill, **files)
    assert set(named(needs, NeedKind.PYTHON_PACKAGE)) == {"lxml"}
    assert "ruby" in named(needs, NeedKind.INTERPRETER)


def test_functions_of_a_sourced_script_are_no_programs(make_skill: MakeSkill) -> None:
    files = {
        "scripts/a.sh": ". ./lib.sh\ndie-loudly x\nno-such-thing\n",
        "scripts/lib.sh": "die-loudly() { exit 1; }\n",
    }
    assert [need.name for need in needs_of(make_skill, **files).missing] == ["no-such-thing"]


def test_a_shell_scan_follows_quotes_here_documents_substitutions_and_case() -> None:
    text = """
# comment; curl
X=$(date +%s) ; Y="$(jq -r '.a | grep' <<< "$Z")"
cat <<'EOF' | tee out
not-a-program here
EOF
if ! command -v ffmpeg >/dev/null; then echo "no; wget"; fi
case "$1" in
  start) systemctl start x ;;
  stop|halt) pkill y ;;
esac
for f in *.txt; do sort "$f" && uniq -c; done
arr=(one two three)
python3 -c 'import os
print("rm")'
sudo -n apt-get update | xargs -I{} sed s/x/y/
[[ -f a && -d b ]] || exit 1
awk '{ print $1 }' f > out.txt 2>&1
"""
    assert [program for program, _ in programs_called(text)] == (
        [
            "date",
            "jq",
            "cat",
            "tee",
            "ffmpeg",
            "echo",
            "systemctl",
            "pkill",
            "sort",
            "uniq",
            "python3",
            "sudo",
            "apt-get",
            "xargs",
            "sed",
            "exit",
            "awk",
        ]
    )


@pytest.mark.parametrize(
    "text",
    [
        "$(" * 50_000,
        "(" * 100_000,
        '"' * 100_001,
        "<<" * 50_000,
        "a=(" * 30_000,
        "case x in " * 20_000,
        "${" * 50_000,
        "`" * 99_999,
        "'" * 100_001,
        "<<x\n" * 30_000,
        "[[ " * 40_000,
        "((" * 50_000,
    ],
)
def test_hostile_shell_code_is_passed_over_quickly(text: str) -> None:
    began = time.thread_time()
    shell_code(SkillText("x.sh", text), Findings())
    assert time.thread_time() - began < 5


@pytest.mark.parametrize(
    "code",
    [
        "x = " + "-" * 200_000 + "1",
        "(" * 100_000,
        "x = '''",
        "import " + "a." * 50_000 + "b",
        "import " + "a.\\\n" * 50_000 + "b",
        "f'''" + "{x}\n" * 100_000 + "'''",
        "x = 0" + " ." * 100_000,
        "\0import os",
        "if 1:\n" * 1000,
    ],
    ids=["unary", "parentheses", "string", "dots", "continued dots", "f-string", "spaced dots", "nul", "nested"],
)
def test_hostile_python_is_a_diagnostic_at_worst(make_skill: MakeSkill, code: str) -> None:
    began = time.process_time()
    needs = needs_of(make_skill, **{"scripts/run.py": code, "scripts/ok.py": "import lxml\n"})
    assert "lxml" in named(needs, NeedKind.PYTHON_PACKAGE)
    assert time.process_time() - began < 5


def test_manifests_that_cannot_be_parsed_are_diagnostics_with_their_place(make_skill: MakeSkill) -> None:
    files = {
        "package.json": "{" * 100_000,
        "pyproject.toml": "[project\n",
        "requirements.txt": "ok==1\n???\n",
        "scripts/a.py": "# /// script\n# dependencies = [\nimport os\n",
    }
    needs = needs_of(make_skill, **files)
    places = {(problem.code, problem.file, problem.line) for problem in needs.problems}
    assert ("json-unreadable", "package.json", 1) in places
    assert ("toml-unreadable", "pyproject.toml", 1) in places
    assert ("requirement-unreadable", "requirements.txt", 2) in places
    assert ("script-block-open", "scripts/a.py", 1) in places
    assert needs.requirements() == ("ok==1",)


def test_an_escape_that_python_warns_of_is_no_error(make_skill: MakeSkill) -> None:
    code = "import re\nimport lxml\nx = re.compile('\\d+\\.\\s')\ny = r'\\d'\nz = '\\\n'\n"
    needs = needs_of(make_skill, **{"scripts/run.py": code})
    assert needs.problems == ()
    assert set(named(needs, NeedKind.PYTHON_PACKAGE)) == {"lxml"}


def test_the_command_shows_needs_and_fails_where_one_is_missing(make_skill: MakeSkill) -> None:
    folder = make_skill(files={"scripts/run.py": "import skimage\nimport yaml\n"})
    run = subprocess.run([PROGRAM, "needs", str(folder)], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert re.search(
        r"MISSING +scikit-image +inferred +scripts/run.py:1\n +-> adk-skills prepare .*/sample'?\n", run.stdout
    )
    assert re.search(r"ok +PyYAML", run.stdout)
    run = subprocess.run([PROGRAM, "needs", str(folder), "--json"], capture_output=True, text=True, check=False)
    assert json.loads(run.stdout)["missing"] == ["scikit-image"]
    info = subprocess.run([PROGRAM, "info", str(folder)], capture_output=True, text=True, check=True)
    assert "needs:         2 found, 1 missing: scikit-image" in info.stdout
    valid = subprocess.run([PROGRAM, "validate", str(folder)], capture_output=True, text=True, check=True)
    assert "1 missing: scikit-image. Details: adk-skills needs" in valid.stderr


def test_no_skill_of_the_corpus_makes_it_fail(corpus: Path) -> None:
    folders = skills_below(corpus).skills
    found = 0
    for folder in folders[:: max(1, len(folders) // 300)]:
        found += len(read_needs(opened(folder)).needs)
    assert found > 100


@pytest.mark.slow
def test_threads_may_parse_at_the_same_time() -> None:
    """CPython 3.11 counts the depth of all parsers in one place: threads that parse together got a SystemError."""
    deep = "x = " + "(" * 50 + "1" + ")" * 50 + "\n" + "[" * 40 + "]" * 40
    flat = "\n".join(f"name_{i} = [{i}, {{'a': ({i},)}}]" for i in range(300))
    with ThreadPoolExecutor(8) as threads:
        trees = list(threads.map(parsed_python, [deep, flat.encode()] * 60))
    assert {len(tree.body) for tree in trees} == {2, 300}
    with pytest.raises(ValueError, match="deeply"):
        parsed_python("-" * 100_000 + "1")


@pytest.mark.slow
def test_row_143_a_skill_of_much_python_does_not_hold_up_the_agent_while_it_is_parsed(make_skill: MakeSkill) -> None:
    """Seen: 32 files of 512 KiB kept the parser busy for minutes, five seconds at a time with nothing else running."""
    dull = "import bm25s\n" + "a()\n" * 40_000
    light = "import bm25s\n" + f"# {'x' * 76}\n" * 1_500
    files = {"scripts/large.py": dull} | {f"scripts/part_{number}.py": dull[: 120 << 10] for number in range(4)}
    files |= {f"scripts/some_{number}.py": light for number in range(20)}
    skill = opened(make_skill("large", files=files))
    began = time.process_time()
    parsed_python(dull[: 120 << 10])
    one_file = time.process_time() - began
    gaps: list[float] = []
    over = threading.Event()

    def beat() -> None:
        last = time.process_time()  # of all threads: what this one waits for other programs does not count
        while not over.wait(0.01):
            gaps.append(time.process_time() - last)
            last = time.process_time()

    other = threading.Thread(target=beat)
    other.start()
    found = find_needs(skill)
    over.set()
    other.join()
    assert {one.name for one in found.found if one.kind is NeedKind.PYTHON_PACKAGE} == {"bm25s"}
    assert any("larger than 128 KiB" in problem.message for problem in found.problems)
    assert any("more than 2 MiB of Python" in problem.message for problem in found.problems)
    assert max(gaps) < 4 * one_file


@pytest.mark.parametrize(
    "key", [".".join("a" * 6_000), ". ".join(['"\\"a"'] * 6_000), "[" + ".".join("a" * 6_000) + "]\nx"]
)
def test_row_144_a_key_of_thousands_of_parts_does_not_take_all_memory(make_skill: MakeSkill, key: str) -> None:
    """Seen: a ``pyproject.toml`` of 120 KB in a skill took all memory there was, and the agent was killed."""
    script = f"# /// script\n# {key} = 1\n# ///\n"
    skill = opened(make_skill("keys", files={"pyproject.toml": f"{key} = 1\n", "scripts/run.py": script}))
    tracemalloc.start()
    found = find_needs(skill)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert any("a key of more than 20 parts" in problem.message for problem in found.problems)
    assert most < 20 << 20


def test_ordinary_keys_and_texts_with_dots_are_read_as_ever() -> None:
    dots = "a.b.c.d.e.f.g.h.i.j.k.l = 1\nx = 'it goes on ... and on ............................'\ny = '1.2.3.4'\n"
    assert parsed_toml(dots)["y"] == "1.2.3.4"


PIECES = [
    *((name, piece) for name in ("a.sh", "a.py", "a.js", "a.rb") for piece in ("\n", " ", "a ", "a", "a[", "(")),
    *[("a.sh", "function "), ("a.sh", "read -a "), ("a.js", "import "), ("a.js", "from ")],
    *[("a.py", "# a\n"), ("requirements.txt", "a;")],
]


@pytest.mark.parametrize(("name", "piece"), PIECES)
def test_row_105_the_time_to_read_a_file_grows_with_its_length_and_not_its_square(
    make_skill: MakeSkill, name: str, piece: str
) -> None:
    """A hostile file held up the whole agent for half a minute: ``re`` does not let other threads run."""

    def seconds(count: int) -> float:
        skill = opened(make_skill(f"of-{count}", files={name: piece * count}))
        began = time.process_time()
        read_needs(skill)
        return time.process_time() - began

    few = max(seconds(2_000), seconds(2_001))
    assert seconds(16_000) < 30 * max(few, 0.003)


@pytest.mark.slow
def test_row_380_line_ends_in_a_shell_fence_do_not_take_the_square_of_their_number(make_skill: MakeSkill) -> None:
    """Seen: 43 s for 60,000, in which nothing else of the agent ran."""
    skill = make_skill("of-line-ends")
    text = (skill / "SKILL.md").read_text(encoding="utf-8")
    session = "```bash\n  $ pip install typed\nnot typed: pip install shown\n```\n"
    (skill / "SKILL.md").write_text(f"{text}\n{session}```sh\n" + "\n" * 400_000 + "```\n", encoding="utf-8")
    assert "typed" in str(read_needs(opened(skill)))
    assert "shown" not in str(read_needs(opened(skill)))


def test_what_code_tells_its_user_to_install_says_which_package_an_import_is(make_skill: MakeSkill) -> None:
    """The name alone would be a guess; the author's own install line in the code is none."""
    code = (
        "import sys\ntry:\n    import rare_words\nexcept ImportError:\n"
        "    print('Run: uv pip install --system rare-words', file=sys.stderr)\n    sys.exit(2)\nimport unsaid_words\n"
    )
    needs = needs_of(make_skill, **{"scripts/run.py": code})
    assert needs.requirements() == ("rare-words",)
    assert [need.name for need in needs.of(NeedKind.PYTHON_MODULE)] == ["unsaid_words"]


def test_what_code_installs_itself_is_needed(make_skill: MakeSkill) -> None:
    code = (
        "import subprocess, sys\ntry:\n    import docx\nexcept ImportError:\n"
        "    subprocess.check_call([sys.executable, '-m', 'pip', 'install', '-q', 'python-docx>=1'])\n    import docx\n"
    )
    needs = needs_of(make_skill, **{"scripts/run.py": code})
    assert needs.requirements() == ("python-docx>=1",)


@pytest.mark.parametrize(
    ("line", "packages"),
    [
        ("uv tool install pyright", ("pyright",)),
        ("uv tool run --with rich ruff check .", ("rich", "ruff")),
        ("uvx ruff@0.5.0 check .", ("ruff",)),
        ("uvx --from 'markitdown[pdf]' markitdown x.pdf", ("markitdown[pdf]",)),
        ("pipx run black .", ("black",)),
        ("pipx install --python 3.12 black", ("black",)),
        ("uv tool list", ()),
        ("pipx list", ()),
    ],
)
def test_a_tool_of_uv_or_pipx_is_a_package(make_skill: MakeSkill, line: str, packages: tuple[str, ...]) -> None:
    assert needs_of(make_skill, body=f"```bash\n{line}\n```\n").requirements() == packages


def test_words_that_are_no_commands_are_no_programs() -> None:
    assert [name for name, _ in programs_called("for ((i = 0; i < n - 1; i++)); do jq . $i; done\n")] == ["jq"]
    assert [name for name, _ in programs_called("env -u http_proxy -u https_proxy curl x\n")] == ["curl"]
    assert [name for name, _ in programs_called("sudo -u postgres psql\n")] == ["sudo", "psql"]


def test_npm_packages_that_a_skill_brings_are_no_need(make_skill: MakeSkill) -> None:
    """Seen: the user was asked to install them, and names of private ones were looked up in the public registry."""
    files = {
        "package.json": '{"dependencies": {"docx": "^9.0.0", "@acme/sdk": "1", "..": "1", "left": "1"}}',
        "node_modules/docx/package.json": "{}",
        "scripts/node_modules/@acme/sdk/package.json": "{}",
        "node_modules/left/index.js": "",
    }
    assert set(named(needs_of(make_skill, **files), NeedKind.NODE_PACKAGE)) == {"..", "left"}


@pytest.mark.parametrize("name", ["package.json", "pyproject.toml"])
def test_row_493_the_lines_of_endless_dependencies_are_not_looked_for(name: str) -> None:
    """Seen: 500 KB took ten minutes of a thread, at the first call, in the default settings."""
    names = [f"p{number:05}" for number in range(5_000)]
    listed = {"dependencies": dict.fromkeys(names, "1")}
    text = "\n" * 100_000 + (json.dumps(listed) if name == "package.json" else f"project.dependencies = {names}")
    findings = Findings()
    began = time.thread_time()
    (node_manifest if name == "package.json" else python_project)(SkillText(name, text), findings)
    assert time.thread_time() - began < 10
    assert len(findings.found) == MAX_FINDINGS
    assert [one.place for one in (findings.found[0], findings.found[-1])] == [f"{name}:100001", f"{name}:1"]


def test_row_493_what_cannot_be_read_is_bounded() -> None:
    """Seen: 16 MB of options were 8 million diagnostics, which stayed."""
    findings = Findings()
    requirements_file(SkillText("requirements.txt", "--no-such\n" * 10_000), findings)
    assert len(findings.problems) == MAX_PROBLEMS + 1
    assert findings.problems[-1].code == "too-many-problems"
