"""Lines of pieces, and usual lines that were changed, in a real bash: none that may run starts what a rule denies."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

import pytest

from adk_skills_agent import ExecutionRequest, InputFile, Permissions, SandboxPolicy, local_sandbox
from adk_skills_agent.adk.shell.command_rules import decide_command

_MARKS = "' \" ` $( ) ( { } ; ;; & && | || > < <<EOF EOF \\ ${X} $(( )) = # * ? ~ 2>&1 <( $' <<<"
_WORDS = "if then fi for in do done case esac function f() ! [[ ]] [ ] env sudo eval xargs time exec é x A=1 -c -x"
# Where pieces are put, beside a command that is denied: what the grammar takes for another thing than bash hides it.
AROUND = """\
{a}⏎{a}{b}marker x⏎{a}; marker x⏎{a}↵marker x⏎{a} | marker x⏎marker x {a}⏎{a} marker x⏎if {a}; then marker x; fi
echo {a} marker x⏎cat <<A↵{a}↵A↵marker x⏎cat <<A↵{a}marker x↵A↵{b}⏎f() {{ {a}; }}; f marker x
case {a} in a) marker x;; esac⏎echo "{a}" ; marker x⏎echo "{a}marker x⏎echo '{a}marker x⏎echo ${{b:-{a}}}; marker x
echo $(( {a} )); marker x⏎[[ {a} ]]; marker x⏎(( {a} )); marker x⏎a=({a}); marker x⏎a={a} marker x
echo {a} # {b}↵marker x⏎$({a}); marker x⏎for i in {a}; do marker x; done⏎marker x <{a}⏎>{a} marker x
cat <<{a}↵marker x↵{b}⏎cat <<'{a}'↵marker x↵⏎echo `{a}`; marker x""".replace("\n", "⏎").split("⏎")
# fmt: off
MORE = (
    "marker", "'marker x'", "$(marker x)", "`marker x`", "b='marker x'", "x=marker", "m''arker", "{marker,x}", "a",
    "b=1", "read v", "export", "local", "select", "until", "coproc", "elif", "else", ";&", ";;&", "\n\tA\n", "A\n",
    "<<A", "<<-A", "<<'A'", ">>", ">&", "<&", ">|", "<>", "&>", ">(", '$"', "${b:-", "${!b}", "$b", "$((", "$[", "]",
    "@", "\\`", "\\\\", "'\\''", "^", "%", "+", "--", "+=", "/", "b[", "b[0]=", "a=(", "))", "1>", "3<", "{v}<", "..",
    "\\x7a", "-", "y", "$(<", '"$(', "if true; then", "a)", "function f {", "|", "$", "$ ", "a=$ ", "\n A\n", "\nA ",
)
# fmt: on
# fmt: off
# Usual lines, into which the next pieces are put.
USUAL = (
    "cat <<A\nx $y\nA\nmarker x", "cat <<-A\n\tx\n\tA\nmarker x", "cat <<'A' | wc -l\nmarker x\nA\nls",
    "if [ -f a ]; then marker x; else ls; fi", "for i in 1 2 3; do marker x; done",
    "while read -r l; do marker x; done < /etc/hostname", "case $a in a|b) marker x;; *) ls;; esac",
    "f() { marker x; }; f", "function f { marker x; }; f a", "a=$(marker x); echo $a", "a=`marker x`; echo $a",
    'echo "a $(marker x) b"', 'echo "${a:-$(marker x)}"', "echo ${a#b}; marker x", "echo ${a//b/c} && marker x",
    "echo $((1+2)); marker x", "((a=1)); marker x", "[[ $a == b* ]] && marker x || marker x",
    "[[ $a =~ ^b.*c$ ]] || marker x", "a=(1 2 3); echo ${a[@]}; marker x", "echo {a,b,c}; marker x",
    "echo 'a' 'b'''c'; marker x", "echo $'a\\nb'; marker x", 'echo "a\\"b"; marker x', "ls > f 2>&1; marker x",
    "ls &> f; marker x", "ls 2>/dev/null | marker x", "marker x &\nwait", "(marker x) | cat", "{ marker x; } 2>&1",
    "! marker x", "time marker x", "diff <(marker x) <(ls)", "marker x <<< a", "echo a # marker\nmarker x",
    "echo a\\\n b; marker x", "export A=1; marker x", "A=1 B=2 marker x", "declare -a a; marker x",
    "trap 'marker x' EXIT", "eval 'marker x'", "bash -c 'marker x'", 'sh -c "marker x"', "env A=1 marker x",
    "xargs marker < /etc/hostname", "find . -maxdepth 0 -exec marker x \\;", "exec marker x", "command marker x",
    "nohup marker x", "timeout 5 marker x", "coproc marker x",
    "select i in a; do marker x; break; done < /etc/hostname", "until marker x; do break; done",
    "echo ${!a}; marker x", "echo $1 $@ $# $$ $! $?; marker x", "echo \"$@\" '$b' $\"c\"; marker x",
    "echo ~ ~root; marker x", "echo a;marker x;echo b", "echo a&&marker x||echo b", "echo a|marker x|cat",
    "cat <<A && marker x\ny\nA", "cat <<A; marker x\ny\nA", "cat << 'E' > f\n$(marker x)\nE\nmarker x",
    "echo $(cat <<A\nb\nA\n); marker x", 'echo "`echo a`"; marker x', 'test -n "$a" && marker x', "let a=1; marker x",
    "printf '%s\\n' a; marker x", "read a <<< b; marker x", "set -- a b; marker x", "unset a; marker x",
    "a+=b; marker x", "a[0]=b; marker x", "echo ${#a} ${a:0:1} ${a^^} ${a@Q}; marker x",
    "if ((1)); then marker x; fi", "for ((i=0;i<1;i++)); do marker x; done", "f() ( marker x ); f",
    "f() { ls; }\nmarker x", "{ ls\n}\nmarker x", "( ls\n)\nmarker x", "case a in\n (a) marker x ;;\nesac",
    "case a in a) ls ;& b) marker x ;; esac", "echo !$; marker x", "echo a >&2; marker x", "exec 3>&1; marker x >&3",
    "cat 0<&3; marker x", "ls >| f; marker x", "echo \\; marker x", "echo a\t;marker x", "alias a=b; marker x",
    "echo $[1+1]; marker x", "echo `marker x`", "echo \\`marker x\\`", 'echo "\\$(marker x)"',
    "echo '$(marker x)'; marker x",
)
PUT_IN = (
    "$(", "${", "$((", "<<", "<<-", "<<<", "&&", "||", "\nA\n", "marker", "marker x", "''", '""', "$'", '$"', ">&",
    "<&", "&>", "2>", "\\\n", "[[", "]]", "((", "))", " # ", ";;", "esac", "fi", "done", "then", "do", "in", "b=",
    "f()",
)
# fmt: on
DRIVER = """\
import json, os, subprocess
started = []
for line in json.load(open("lines.json")):
    subprocess.run(["timeout", "1", "bash", "-c", line], stdin=subprocess.DEVNULL, capture_output=True)
    if os.path.exists("/work/it-ran"):
        os.unlink("/work/it-ran")
        started.append(line)
print("started", json.dumps(started))
"""


def _changed(line: str, draw: random.Random) -> str:
    pieces = [*"$`\\\"'(){}[]<>|&;#!*?~=+-@%^:,./ \n\t0a", *PUT_IN]
    for _ in range(draw.randint(1, 4)):
        at, way = draw.randrange(len(line) + 1), draw.random()
        other = draw.choice(USUAL)
        begin = draw.randrange(len(other))
        new = draw.choice(pieces) if way < 0.6 else "" if way < 0.8 else other[begin : begin + draw.randint(1, 8)]
        line = line[:at] + new + line[at + (draw.randint(1, 3) if not new else 0) :]
    return line


@pytest.mark.slow
async def test_row_322_no_line_that_may_run_starts_what_a_rule_denies(tmp_path: Path) -> None:
    """Lines of pieces, in a sandbox where the denied program leaves a file when it runs."""

    async def started(lines: list[str]) -> list[str]:
        request = ExecutionRequest(
            (sys.executable, "-c", DRIVER),
            SandboxPolicy(extra_ro=(str(folder),), wall_seconds=300),
            env={"PATH": f"{folder}:/usr/bin:/bin"},
            input_files=(InputFile("lines.json", json.dumps(lines).encode()),),
        )
        result = await sandbox.run(request)
        said = result.stdout.decode().rpartition("started ")[2]
        return list(json.loads(said or "null"))

    folder = tmp_path / "bin"
    folder.mkdir()
    # Not a file of shell commands, which 'bash marker' may run: a file is a program like any other.
    (folder / "marker").write_text('#!/usr/bin/awk -f\nBEGIN { ran = "/work/it-ran"; print > ran }\n')
    (folder / "marker").chmod(0o755)
    sandbox = local_sandbox()
    try:
        assert await started(["marker x", "echo marker x"]) == ["marker x"]
        draw = random.Random(int(os.environ.get("ADK_SKILLS_SEED", "16")))
        pieces = [*_MARKS.split(), *_WORDS.split(), *MORE, *["marker"] * 25, "m\\arker", "bash -c", "\n", *[" "] * 20]
        lines: list[str] = []
        for _ in range(int(os.environ.get("ADK_SKILLS_LINES", "20_000"))):
            if draw.random() < 0.5:
                some = ["".join(draw.choice(pieces) for _ in range(draw.randint(1, 8))) for _ in "ab"]
                line = draw.choice(AROUND).format(a=some[0], b=some[1]).replace("↵", "\n")
            else:
                line = _changed(draw.choice(USUAL), draw)
            if decide_command(Permissions(commands={"marker *": "deny"}), line).verdict == "allow":
                lines.append(line)
        assert sum("marker" in line for line in lines) > 100
        for begin in range(0, len(lines), 200):
            assert await started(lines[begin : begin + 200]) == []
    finally:
        await sandbox.close()
