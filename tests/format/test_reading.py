"""Bounded, non-blocking reading of a SKILL.md."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from adk_skills_agent.errors import ParseError
from adk_skills_agent.format.reading import MAX_HEAD_BYTES, MAX_SKILL_BYTES, clean_text, read_head, read_text
from own_descriptors import open_below

HEAD = b"---\nname: x\ndescription: d\n---\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "SKILL.md"


@pytest.mark.requirement("S4-2")
def test_the_head_ends_with_the_closing_fence(file: Path) -> None:
    file.write_bytes(HEAD + b"body\n" * 3000)
    head = read_head(file)
    assert head.text == HEAD.decode()
    assert not head.complete
    assert head.size == len(HEAD) + 15000


def test_a_file_that_is_only_a_head_is_complete(file: Path) -> None:
    file.write_bytes(HEAD)
    assert read_head(file).complete


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("prefix", [b"", b"\xef\xbb\xbf", b"\n \n", b"\xef\xbb\xbf\n"])
@pytest.mark.parametrize("padding", [0, 4050, 4060, 4064, 4065, 4066, 4070, 9000])
def test_every_way_to_write_fences_is_found_across_chunk_borders(
    file: Path, newline: bytes, prefix: bytes, padding: int
) -> None:
    text = prefix + b"---\nname: x\nlicense: " + b"y" * padding + b"\n---\nbody\nmore\n"
    file.write_bytes(text.replace(b"\n", newline))
    head = read_head(file)
    assert head.text == (prefix + text[len(prefix) :].split(b"body")[0]).decode()
    assert "\r" not in head.text


def test_a_fence_at_the_end_of_the_file_needs_no_line_end(file: Path) -> None:
    file.write_bytes(b"---\r\nname: x\r\n---")
    head = read_head(file)
    assert (head.text, head.complete) == ("---\nname: x\n---", True)


def test_dashes_inside_a_line_do_not_end_the_head(file: Path) -> None:
    file.write_bytes(b"---\ndescription: a --- b\n---more: x\n----\n---\nbody" + b"x" * 9000)
    assert read_head(file).text == "---\ndescription: a --- b\n---more: x\n----\n---\n"


def test_without_a_closing_fence_reading_stops_at_the_bound(file: Path) -> None:
    file.write_bytes(b"---\n" + b"a: b\n" * 100_000)
    head = read_head(file)
    assert not head.complete
    assert len(head.text) <= MAX_HEAD_BYTES + 4096


def test_a_file_without_frontmatter_is_not_read_on(file: Path) -> None:
    file.write_bytes(b"# Title\n" + b"text\n" * 100_000)
    head = read_head(file)
    assert not head.complete
    assert len(head.text) == 4096


def test_a_character_cut_by_a_chunk_is_whole(file: Path) -> None:
    text = "---\nname: x\ndescription: " + "é" * 5000 + "\n---\nbody"
    file.write_text(text, encoding="utf-8")
    head = read_head(file)
    assert head.text == text[: -len("body")]
    assert head.diagnostics == ()


def test_invalid_utf8_is_replaced_and_marked_with_its_line(file: Path) -> None:
    file.write_bytes(b"---\nname: x\ndescription: caf\xe9\n---\n")
    read = read_text(file)
    assert "caf\ufffd" in read.text
    assert [(d.code, d.line, d.file) for d in read.diagnostics] == [("invalid-utf8", 3, str(file))]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_with_a_mark_is_read(file: Path, encoding: str) -> None:
    file.write_bytes("\ufeff---\nname: x\n---\n".encode(encoding))
    read = read_text(file)
    assert read.text == "---\nname: x\n---\n"
    assert [d.code for d in read.diagnostics] == ["utf-16"]


def test_nul_bytes_are_left_out_and_marked(file: Path) -> None:
    file.write_bytes(b"---\nname: x\0y\n---\n")
    read = read_text(file)
    assert read.text == "---\nname: xy\n---\n"
    assert [(d.code, d.line) for d in read.diagnostics] == [("nul-bytes", 2)]


def test_half_a_surrogate_pair_is_replaced_and_marked() -> None:
    text, diagnostics = clean_text("a\nb\ud800c \U0001f600", None)
    assert text == "a\nb\ufffdc \U0001f600"
    assert [(d.code, d.line) for d in diagnostics] == [("invalid-utf8", 2)]


@pytest.mark.parametrize("read", [read_head, read_text])
class TestWhatIsNotAFileToRead:
    def test_a_fifo_does_not_block(self, file: Path, read) -> None:
        os.mkfifo(file)
        with pytest.raises(ParseError, match=r"SKILL\.md is a named pipe; SKILL\.md must be a regular file"):
            read(file)

    def test_a_socket(self, tmp_path: Path, read, monkeypatch) -> None:
        monkeypatch.chdir(tmp_path)  # a socket's path is short
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("SKILL.md")
            with pytest.raises(ParseError, match=r"SKILL\.md"):
                read(Path("SKILL.md"))

    def test_a_folder(self, file: Path, read) -> None:
        file.mkdir()
        with pytest.raises(ParseError, match="is a folder"):
            read(file)

    def test_a_device(self, read) -> None:
        with pytest.raises(ParseError, match="is a character device"):
            read(Path("/dev/zero"))

    def test_a_missing_file(self, file: Path, read) -> None:
        with pytest.raises(ParseError, match=r"cannot be read: No such file"):
            read(file)

    def test_a_broken_link_and_a_loop(self, file: Path, read) -> None:
        file.symlink_to("nowhere")
        with pytest.raises(ParseError, match="No such file"):
            read(file)
        file.unlink()
        file.symlink_to(file)
        with pytest.raises(ParseError, match="symbolic links"):
            read(file)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_a_file_without_permission(self, file: Path, read) -> None:
        file.write_bytes(HEAD)
        file.chmod(0)
        with pytest.raises(ParseError, match="Permission denied"):
            read(file)

    def test_a_file_over_the_bound(self, file: Path, read) -> None:
        with file.open("wb") as handle:
            handle.write(HEAD)
            handle.truncate(100 << 20)
        with pytest.raises(ParseError, match=rf"has {100 << 20} bytes; a SKILL\.md of more than {MAX_SKILL_BYTES}"):
            read(file)

    def test_a_path_with_a_nul_character(self, read) -> None:
        with pytest.raises(ParseError, match="is not a path"):
            read(Path("a\0b"))


def test_no_descriptor_is_left_open(file: Path) -> None:
    file.write_bytes(HEAD)
    for _ in range(20):
        read_head(file)
        with pytest.raises(ParseError):
            read_text(file.parent)
    assert open_below(file.parent) == []


@pytest.mark.parametrize(
    "data", [b"\r\n" * 5000 + b"# T\r\n", b" \r\n" * 3000 + b"--", b"---\r\n" + b" \r\n\r\n" * 3000]
)
def test_many_blank_lines_without_a_fence_take_no_exponential_time(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    assert read_head(file).text.strip("\n -#T") == ""
