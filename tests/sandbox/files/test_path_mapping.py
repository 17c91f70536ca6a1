"""Paths to the host and back."""

from __future__ import annotations

import itertools
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adk_skills_agent.sandbox.output import PathMapping

VIEW = PathMapping(
    [
        (PurePosixPath("/skill"), "/srv/skills/pdf"),
        (PurePosixPath("/skill/extra"), "/opt/extra"),
        (PurePosixPath("/data"), "/work/data"),
        (PurePosixPath("/work"), "/tmp/run-1/work"),
        (PurePosixPath("/tmp"), "/tmp/run-1/tmp"),
    ],
    root="/tmp/run-1",
)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("/skill", "/srv/skills/pdf"),
        ("/skill/a/b", "/srv/skills/pdf/a/b"),
        ("/skill/extra/c", "/opt/extra/c"),
        ("/work/x", "/tmp/run-1/work/x"),
        *(
            (text, text)
            for text in ("/skills", "/skillful/x", "skill/x", "--in=/skill/x", "", "-", "/", "//", "/etc/passwd")
        ),
    ],
)
def test_arguments_that_are_or_start_with_a_sandbox_path_are_translated(argument, expected):
    assert VIEW.argument(argument) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"in /srv/skills/pdf/x.py, line 1", b"in /skill/x.py, line 1"),
        (b"/srv/skills/pdf-tools and /srv/skills/pdf.bak", b"/srv/skills/pdf-tools and /srv/skills/pdf.bak"),
        (b"see /srv/skills/pdf. Then", b"see /skill. Then"),
        (b"/srv/skills/pdf", b"/skill"),
        (b"-I/tmp/run-1/work:/opt/extra", b"-I/work:/skill/extra"),
        ("/srv/skills/pdfé".encode(), "/srv/skills/pdfé".encode()),
        (b"\xff/tmp/run-1/work\xff/tmp/run-1/work\0", b"\xff/work\xff/work\0"),
        ("/tmp/run-1/work。 /tmp/run-1/work-x".encode(), "/work。 /work-x".encode()),
        (b"/tmp/run-1 /tmp/run-1/ /tmp/run-1/other /tmp/run-1\xe3", b"/ / /other /\xe3"),
        (b"/tmp/run-1/work/data /work/data", b"/work/data /data"),
    ],
)
def test_host_paths_in_output_become_sandbox_paths(text, expected):
    assert VIEW.text(text) == expected


PIECES = st.sampled_from(
    [
        b"/srv/skills/pdf",
        b"/tmp/run-1/work",
        b"/tmp/run-1",
        b"/work",
        b"/work/data",
        b"/tmp",
        b"/",
        b"x",
        b".",
        b" ",
        b"\n",
        b"/srv/skills/pdf-x",
        b"\xff",
        b"/opt/extra",
    ]
)


@given(st.lists(PIECES, max_size=12), st.lists(st.integers(0, 150), max_size=8))
def test_a_stream_in_any_pieces_gives_what_the_whole_gives(pieces, cuts):
    data = b"".join(pieces)
    stream = VIEW.stream()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    parts = [stream.feed(data[a:b]) for a, b in itertools.pairwise(places)]
    assert b"".join([*parts, stream.close()]) == VIEW.text(data)


def test_folders_outside_are_refused():
    assert VIEW.directory(PurePosixPath("/work/a")) == "/tmp/run-1/work/a"
    for path in ("/etc", "/work/../x", "work"):
        with pytest.raises(ValueError, match="not inside the sandbox"):
            VIEW.directory(PurePosixPath(path))
