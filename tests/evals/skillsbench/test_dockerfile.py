from __future__ import annotations

import pytest

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.skillsbench.dockerfile import (
    bases_of,
    check_sizes,
    copied_skills,
    environment_pairs,
    expanded,
    for_engine,
    for_machine,
    parse_dockerfile,
    without_skills,
)


def test_a_continued_line_is_one_instruction_and_comments_inside_it_are_nothing() -> None:
    (instruction,) = parse_dockerfile("RUN apt-get update && \\\n# why\n\n    apt-get install -y curl\n")
    assert instruction.value == "apt-get update &&     apt-get install -y curl"
    assert (instruction.line, instruction.last_line) == (1, 4)


def test_the_escape_directive_changes_the_character_that_continues_a_line() -> None:
    (instruction,) = parse_dockerfile("# escape=`\nRUN echo C:\\ `\n  two\n")
    assert instruction.value == "echo C:\\   two"


def test_a_here_document_belongs_to_its_instruction() -> None:
    copy, run = parse_dockerfile("COPY <<'EOF' /a.txt\nFROM nowhere\n$HOME\nEOF\nRUN <<-END\n\techo a\n\tEND\n")
    assert copy.heredocs[0].text == "FROM nowhere\n$HOME\n"
    assert not copy.heredocs[0].expand
    assert run.heredocs[0].text == "echo a\n"
    assert run.heredocs[0].expand


def test_a_here_document_without_an_end_names_its_line() -> None:
    with pytest.raises(ConfigError, match=r"line 2: the here-document EOF does not end"):
        parse_dockerfile("FROM x\nRUN cat <<EOF\nhello\n")


def test_what_is_no_instruction_names_its_line() -> None:
    with pytest.raises(ConfigError, match=r"line 3: 'RUNN ls' is no instruction"):
        parse_dockerfile("FROM x\n\nRUNN ls\n")


def test_flags_are_apart_from_the_value() -> None:
    (instruction,) = parse_dockerfile("COPY --from=base --chown=1:1 --link a /b\n")
    assert instruction.flags == {"from": "base", "chown": "1:1", "link": ""}
    assert instruction.words == ("a", "/b")


def test_the_json_form_keeps_blanks_in_words() -> None:
    (instruction,) = parse_dockerfile('COPY ["a file", "/to here/"]\n')
    assert instruction.words == ("a file", "/to here/")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$A/b", "1/b"),
        ("${A}b", "1b"),
        ("${B:-two}", "two"),
        ("${A:+set}${B:+set}", "set"),
        (r"\$A", "$A"),
        ("$B", ""),
        ("${B:-$A}", "1"),
    ],
)
def test_variables_are_replaced_as_docker_does(text: str, result: str) -> None:
    assert expanded(text, {"A": "1"}) == result


def test_env_has_two_forms() -> None:
    pairs, old, quoted = parse_dockerfile("ENV A=1 B=$A\nENV PATH /x:$PATH\nENV C=\"two words\" D='3'\n")
    assert environment_pairs(pairs, {"A": "0"}) == {"A": "1", "B": "0"}  # of one line, as it was before the line
    assert environment_pairs(old, {"PATH": "/bin"}) == {"PATH": "/x:/bin"}
    assert environment_pairs(quoted, {}) == {"C": "two words", "D": "3"}


def test_an_env_without_a_value_names_its_line() -> None:
    with pytest.raises(ConfigError, match="line 1: ENV A has no value"):
        environment_pairs(parse_dockerfile("ENV A\n")[0], {})


@pytest.mark.parametrize(
    ("line", "skills"),
    [
        ("COPY skills /root/.claude/skills", True),
        ("COPY ./skills/ /x/", True),
        ("COPY skills/one skills/two /x/", True),
        ("COPY skill[s] /tmp/skills_src/", True),
        ("COPY skills data /x/", False),
        ("COPY data /root/skills", False),
        ("COPY --from=base skills /x", False),
        ("COPY . /app", False),
        ("RUN cp -r skills /x", False),
    ],
)
def test_only_copies_of_nothing_but_skills_count_as_such(line: str, skills: bool) -> None:
    assert copied_skills(parse_dockerfile(line)[0]) is skills


def test_the_arm_without_skills_loses_those_lines_and_no_other() -> None:
    text, removed = without_skills("FROM a\nCOPY skills \\\n  /root/.claude/skills\nCOPY data /d\nCOPY skills /x\n")
    assert text == "FROM a\nCOPY data /d\n"
    assert removed == (2, 3, 5)


@pytest.mark.parametrize(
    "text",
    [
        "ARG A=0123456789\n" + "ARG A=$A$A$A$A$A$A$A$A\n" * 12 + "FROM debian:12\n",
        "FROM debian:12\nENV A=0123456789\n" + "ENV A=${A:-x}${A:+$A$A}$A\n" * 30,
        "FROM debian:12\nENV A=0123456789\n" + 'ENV A="\\"$A$A$A$A"\n' * 30,  # not read here as an engine reads it
        f"FROM debian:12\nENV A={'0' * 9999}\nCOPY {'$A' * 100_000} /\n",
        f"FROM debian:12\nENV A={'0' * 99_999}\n" + "".join(f"ENV A{number}=$A\n" for number in range(1000)),
        "FROM debian:12\n" + "RUN true\n" * 100_000,
        "FROM debian:12\n#" + "0" * (1 << 20),
    ],
)
def test_variables_that_grow_with_each_line_do_not_fill_the_memory(text: str) -> None:  # row 280
    with pytest.raises(ConfigError, match="more than"):
        check_sizes(text)


def test_variables_that_grow_as_in_real_files_are_not_too_long() -> None:
    lines = "".join(f"ENV PATH=/opt/{number}/bin:$PATH\nENV HOME_{number}=$PATH$PATH\n" for number in range(50))
    check_sizes(f'ARG V=1\nFROM debian:$V\n{lines}LABEL a=b c=\'d e\'\nENV A="say \\"hi"\n')


@pytest.mark.parametrize("value", ["--a " * 200_000, "$" + "{a:-" * 100_000, "[" * 100_000])
def test_a_line_that_looks_like_many_flags_or_variables_is_read_at_once(value: str) -> None:
    (_, instruction) = parse_dockerfile(f"FROM debian:12\nCOPY {value} /\n")
    assert instruction.json_form is None
    assert expanded(instruction.value, {})


@pytest.mark.parametrize(
    "lines",
    [
        "ADD http://127.0.0.1:8500/x /x",
        "add --chown=a:b https://example.com/x a /x/",
        'ADD ["http://127.0.0.1/x", "/x"]',
        "ARG A=http\nADD $A://127.0.0.1/x /x",
        "ADD ${FROM_THE_BASE} /x",
        "ADD git@127.0.0.1:x /x",
        "ADD github.com/a/b /x",
        "ADD \\\n  # why\n\n  http://127.0.0.1/x /x",
        "ONBUILD ADD http://127.0.0.1/x /x",
        'ONBUILD add ["http://127.0.0.1/x", "/x"]',
        'ADD [ "http://127.0.0.1/x","/x"]',
        'ADD ["a", "http://127.0.0.1/x","/x/"]',
        'ADD ["http:\\u002f\\u002f127.0.0.1/x", "/x"]',
        "ADD http:\\/\\/127.0.0.1/x /x",
        'ADD http:"//"127.0.0.1/x /x',
        "ADD 'http:'//127.0.0.1/x /x",
        "ADD --chown=$A http://127.0.0.1/x /x",
        "RUN a \\\n\nADD http://127.0.0.1/x /x",
        "RUN <<EOF\nADD http://127.0.0.1/x /x\nEOF",
        "ADD \rUSER http://127.0.0.1/x /x",
    ],
)
def test_row_467_the_engine_fetches_no_address_for_a_task(lines: str) -> None:
    """Seen: it did in the network of its machine, and a service of its loopback answered."""
    with pytest.raises(ConfigError, match="ADD takes files here"):
        for_engine(f"FROM debian\n{lines}\n")


@pytest.mark.parametrize(
    "lines",
    [
        "RUN --mount=type=bind,source=d/link,target=/m,rw cat /m/x",
        "RUN --mount=type=cache,target=/a --mount=type=secret,id=x cat /m/x",
        "RUN --mount=type=$T,target=/m cat /m/x",
        'RUN --mo"un"t=type=bind,target=/m,rw cat /m/x',
        "RUN --mo\\\nunt=type=bind,target=/m,rw cat /m/x",
        "RUN \\\n# why\n\n  --mount=type=bind,target=/m,rw cat /m/x",
        "# escape=`\nRUN `\n  --mount=type=bind,target=/m,rw cat /m/x",
        "RUN echo `\nRUN --mount=type=bind,target=/m,rw cat /m/x",
        "RUN echo \\\nRUN --mount=type=bind,target=/m,rw cat /m/x",
        "RUN echo a \\\u00a0\nRUN \\\n--mount=id=../..,type=cache,target=/m cat /m/x",
        "RUN echo a \\\\\nRUN \\\n--mount=id=../..,type=cache,target=/m cat /m/x",
        "RUN <<EOF\nRUN --mount=type=bind,target=/m,rw cat /m/x\nEOF",
        "run\t--mount=type=bind,target=/m,rw cat /m/x",
        "RUN --network=host curl http://127.0.0.1/x",
        "RUN --security=insecure id",
        "RUN --mount=type=bind,source=../x,target=/m cat /m/x",
        "RUN --mount=type=bind,from=$X,target=/m cat /m/x",
        "RUN --mount=type=ssh --mount=type=bind,source=a,target=/m cat /m/x",
        "ONBUILD RUN --mount=type=cache,id=../../..,target=/m cat /m/x",
        'RUN --mount=type=cache,id="../..",target=/m cat /m/x',
    ],
)
def test_row_472_no_mount_of_a_task_leads_out_of_its_build(lines: str) -> None:
    """Seen: by three ways a build read and wrote any file of the machine, as root."""
    with pytest.raises(ConfigError, match=r"RUN has no flags here but caches|no blanks here but spaces and tabs"):
        for_engine(f"FROM debian\n{lines}\n")


@pytest.mark.parametrize(
    "words",
    [
        "--from=tarball:/var/backup.tar.gz / /x/",
        "--from=oci:/var/images:latest /etc/secret /x",
        "--from=oci:images /etc/secret /x",
        "--chown=a:b --from=docker-archive:/var/x.tar / /x",
        "--from=dir:/var/x / /x",
        "--from=containers-storage:[overlay@/var/lib]x / /x",
        '--fr"om"=dir:/var/x / /x',
        "--from=$X / /x",
        "--from='dir:/var/x' / /x",
    ],
)
@pytest.mark.parametrize("keyword", ["COPY", "ADD", "ONBUILD COPY"])
def test_row_484_nothing_of_the_engines_machine_is_copied(keyword: str, words: str) -> None:
    """Seen: Podman took an archive of the machine for an image, and the task had its files."""
    with pytest.raises(ConfigError, match="--from names a stage or an image here"):
        for_engine(f"FROM debian\n{keyword} {words}\n")


@pytest.mark.parametrize(
    "name",
    ["one", "0", "debian:12", "ghcr.io/astral-sh/uv:0.4.1", "localhost:5000/a/b", f"a/b@sha256:{'0' * 64}"],
)
def test_images_and_stages_are_copied_from(name: str) -> None:
    text = f"FROM debian AS one\nFROM debian\nCOPY --from={name} --chown=a:b /x /y\n"
    assert for_engine(text) == text


@pytest.mark.parametrize(
    ("written", "built"),
    [
        ("RUN --mount=type=cache,id=../../..,target=/m cat /m/x", "RUN cat /m/x"),
        (
            "  run --mount=type=cache,target=/a --mount=type=tmpfs,target=/b \\\n  pip install x",
            "  run \\\n  pip install x",
        ),
        (
            "RUN --mount=type=cache,target=/a,sharing=locked \\\n    --mount=type=cache,target=/b \\\n  a && b",
            "RUN \\\n  a && b",
        ),
        ("RUN \\\n --mount=type=cache,target=/b pip install --mount=x", "RUN pip install --mount=x"),
        ("RUN --network=none --network=default --mount=type=cache,target=/b x", "RUN x"),
        (
            "RUN --mount=type=cache,target=/c \\\n  # why\n  --mount=type=bind,source=uv.lock,target=uv.lock \\\n"
            "  --mount=target=/b,src=/src/,readonly \\\n  uv sync",
            "COPY uv.lock uv.lock\nCOPY src/ /b\nRUN \\\n  uv sync",
        ),
        (
            "RUN --mount=type=bind,target=. --mount=from=uv:0.4,source=/uv,dst=/uv a",
            "COPY . .\nCOPY --from=uv:0.4 /uv /uv\nRUN a",
        ),
        ("RUN --mount=target=/a,type=cache --mount=type=cache,id=x-$ARCH,target=${HOME}/a pip", "RUN pip"),
        *(
            (line, line)
            for line in (
                "ADD a.tar.gz data.github /x/$DIR",
                'ADD --chown=$USER:$USER --link "a b" \\\n    c.txt /x/$DIR',
                'ADD ["a b", "/x/"]',
                "RUN curl -O http://x && docker run --mount=type=bind,source=/ x",
                "COPY --from=one --chown=a:b x /x",
                "ONBUILD RUN curl http://x",
                "# RUN --mount=type=bind x",
                'RUN uv \\\n  add "$X" && git \\\n# why\n  add "$Y"',
            )
        ),
    ],
)
def test_row_472_caches_are_left_out_and_other_lines_stay(written: str, built: str) -> None:
    """Seen: a cache is everybody's who builds on the engine, and one task put a file there for the next one."""
    assert for_engine(f"FROM debian\n{written}\nCMD x\n") == f"FROM debian\n{built}\nCMD x\n"


@pytest.mark.parametrize(
    "text",
    [
        "FROM debian\nRUN <<EOF\nFROM evil/one\nCMD x \\\nEOF\n",
        "FROM debian\nRUN <<EOF\nFROM evil/one\nCMD x \\\n# why\n\nEOF\n",
        "FROM debian\nRUN <<CMD\nFROM evil/one\nCMD\n",
        "FROM debian\nRUN <<'CMD x\\'\nCMD x\\\nADD http://127.0.0.1/x /x\n",
        "FROM debian\nRUN <<'#x'\nCMD y \\\n#x\nFROM evil/one\n",
        "FROM debian\nCOPY a <<' ' /x/\nCMD y \\\n \nFROM evil/one\n",
        "# x=y\n# escape=`\nFROM debian\nRUN echo `\nFROM evil/one\n",
        "FROM debian\nRUN echo \\\u00a0\nFROM evil/one\n",
        "FROM debian\nRUN echo \\\f\nFROM evil/one\n",
        "FROM debian\nRUN echo \\\n\u00a0# why\nFROM evil/one\n",
        "FROM debian AS EVIL/ONE\nFROM evil/one\n",
        "ARG A=evil/one\nFROM debian AS $A\nFROM evil/one\n",
        "FROM ${TARGETARCH:+evil/one}\n",
        "ARG TARGETARCH=debian\nARG A=evil/$TARGETARCH\nFROM $A\n",
    ],
)
def test_row_472_no_base_is_hidden_from_who_looks_at_its_instructions(text: str) -> None:
    """Seen: with Podman 4.3 such a base's ONBUILD wrote a file of the machine, as root."""
    with pytest.raises(ConfigError, match=r"Dockerfile line \d"):
        for_engine(text)


@pytest.mark.parametrize(
    "inside",
    [
        "FROM evil/one",
        "\tfrom --platform=linux/amd64 evil/one AS x",
        "FROM \\\nevil/one",
        "FR\\\nOM evil/one",
        "FROM \\\n\nevil/one",
        "FROM tarball:/var/backup.tar.gz AS s",
        "FROM debian AS other",
        "FROM --platform=linux/amd64 import",
    ],
)
def test_row_487_a_here_document_has_no_base_for_engines_that_do_not_know_it(inside: str) -> None:
    """Seen: Podman 4.3 ran the ONBUILD of a base that stood in one, which nobody had looked at."""
    for before in ("RUN <<EOF", "COPY <<'EOF' /x", "RUN <<EOF\nimport sys\nEOF\nRUN <<EOF"):
        with pytest.raises(ConfigError, match="begins with FROM"):
            for_engine(f"FROM \\\n debian\n{before}\n{inside}\nEOF\nRUN true\n")


@pytest.mark.parametrize(
    "text",
    [
        "ARG V=12\nARG IMAGE=debian:$V\nFROM --platform=linux/amd64 ${IMAGE} AS Build_1\nFROM scratch\n",
        "FROM debian\nRUN echo $((1<<2)) \"a << b\" && cat <<< 'x # y' && python - <<'EOF'\n1 << 3\nEOF\n",
        "FROM debian\nRUN sqlite3 a.db 'select x \\\n  from t' && cat \\\n# why\n  /x\n",
        "FROM debian\nRUN a && \\\n  # why\u3000\n\n  b\nCOPY <<EOF /x.py\nfrom x import y\nprint('\\\\')\nEOF\n",
    ],
)
def test_row_472_bases_of_real_files_are_seen(text: str) -> None:
    assert for_engine(text) == text


@pytest.mark.parametrize(
    ("flag", "built"),
    [
        ("linux/amd64", ""),
        ("linux/x86_64", ""),
        ("amd64", ""),
        ("linux", ""),
        ("$BUILDPLATFORM", ""),
        ("${TARGETPLATFORM:-linux/arm64}", ""),
        ("$BUILDOS/${TARGETARCH}", ""),
        ("${P}", ""),
        ("linux/aarch64", "--platform=linux/arm64 "),
        ("$OTHER", "--platform=linux/arm/v7 "),
    ],
)
def test_a_platform_is_written_as_every_engine_reads_it(flag: str, built: str) -> None:
    start = "ARG P=linux/amd64\nARG OTHER=linux/arm/v7\n"
    text = for_engine(f"{start}FROM --platform={flag} debian:12 AS one\nRUN a\n")
    found = for_machine(text, {}, "x86_64")
    assert found == f"{start}FROM {built}debian:12 AS one\nRUN a\n"
    assert bases_of(found, {}) == (("debian:12", built.strip().removeprefix("--platform=")),)


@pytest.mark.parametrize("flag", ["windows/amd64", "$NOBODY", "linux/amd64/v8/x", "linux/../x"])
def test_what_is_no_platform_is_said(flag: str) -> None:
    with pytest.raises(ConfigError, match=r"Dockerfile line 1|--platform"):
        for_machine(for_engine(f"FROM --platform={flag} debian\n"), {}, "amd64")
