"""Archives of strangers: odd ones are refused as a whole, with a sentence, before anything is written (row 46)."""

from __future__ import annotations

import gzip
import io
import stat
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable

import pytest
from repositories import make_tree, skill_text

from adk_skills_agent.errors import SourceError
from adk_skills_agent.sources.archives import pack_tar, pack_zip, read_archive, skills_of
from adk_skills_agent.sources.tree import TreeFile, tree_of

SKILL = skill_text("pdf").encode()


def zipped(*members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("SKILL.md", SKILL)
        for name, data in members:
            archive.writestr(name, data)
    return stream.getvalue()


def tarred(*members: tarfile.TarInfo | tuple[str, bytes], packed: bool = True) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for member in (("SKILL.md", SKILL), *members):
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            archive.addfile(info, io.BytesIO(member[1]))
    return gzip.compress(stream.getvalue()) if packed else stream.getvalue()


def entry(name: str, kind: bytes, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


def with_mode(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def overlapping() -> bytes:
    """Two entries of the directory that share one member's bytes."""
    data = bytearray(zipped(("a.txt", b"a" * 1000)))
    end = data.rindex(b"PK\x05\x06")
    count, size, start = struct.unpack("<HII", data[end + 10 : end + 20])
    directory = bytes(data[start : start + size])
    last = directory[directory.rindex(b"PK\x01\x02") :].replace(b"a.txt", b"b.txt")
    body = bytes(data[:start]) + directory + last
    trailer = bytearray(data[end:])
    trailer[8:20] = struct.pack("<HHII", count + 1, count + 1, size + len(last), start)
    return body + bytes(trailer)


def huge_header() -> bytes:
    info = tarfile.TarInfo("a.txt")
    info.pax_headers = {"comment": "x" * (40 << 20)}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info)
    return gzip.compress(stream.getvalue(), compresslevel=1)


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "zip ..": (lambda: zipped(("../../.bashrc", b"x")), "leaves the skill"),
    "zip absolute": (lambda: zipped(("/etc/cron.d/x", b"x")), "absolute"),
    "zip drive": (lambda: zipped(("C:/x", b"x")), "absolute"),
    "zip backslash": (lambda: zipped(("a\\..\\b", b"x")), "not plain"),
    "zip link": (lambda: zipped((with_mode("l", stat.S_IFLNK | 0o777), b"/etc/passwd")), "link or a device"),
    "zip device": (lambda: zipped((with_mode("d", stat.S_IFCHR | 0o666), b"")), "link or a device"),
    "zip setuid": (lambda: zipped((with_mode("s", stat.S_IFREG | 0o4755), b"x")), "set-id"),
    "zip case": (lambda: zipped(("a/Read.md", b"1"), ("a/read.MD", b"2")), "one on some systems"),
    "zip case of folders": (lambda: zipped(("a/x", b"1"), ("A/y", b"2")), "one on some systems"),
    "zip unicode": (lambda: zipped(("caf\u00e9.md", b"1"), ("cafe\u0301.md", b"2")), "one on some systems"),
    "zip git": (lambda: zipped((".Git/hooks/pre-commit", b"x")), "version control"),
    "zip file and folder": (lambda: zipped(("a", b"1"), ("a/b", b"2")), "as a file and as a folder"),
    "zip git repository": (
        lambda: zipped(("HEAD", b"1"), ("objects/a", b"2"), ("refs/a", b"3")),
        "git takes it for a repository",
    ),  # row 420
    "zip git worktree": (lambda: zipped(("a/HEAD", b"1"), ("a/commondir", b"2")), "git takes it for a repository"),
    "zip bomb": (lambda: zipped(("zero", bytes(30 << 20))), "far more than it is large"),
    "zip large": (lambda: zipped(*((f"{n}", bytes(100_000)) for n in range(3000))), "256 MiB|more than"),
    "zip overlap": (overlapping, "overlap"),
    "zip members": (lambda: zipped(*((f"{n}.md", b"") for n in range(20_001))), "20,000 members"),
    "zip control": (lambda: zipped(("a\x1b[2J.md", b"x")), "control characters"),
    "zip cut": (lambda: zipped(("a", b"x" * 5000))[:-30], "damaged|cannot be read"),
    "tar ..": (lambda: tarred(("../x", b"x")), "leaves the skill"),
    "tar absolute": (lambda: tarred(("/etc/x", b"x")), "absolute"),
    "tar link out": (lambda: tarred(entry("l", tarfile.SYMTYPE, "../../etc")), "link, a device"),
    "tar link in": (lambda: tarred(entry("l", tarfile.SYMTYPE, "SKILL.md")), "link, a device"),
    "tar hard link": (lambda: tarred(entry("l", tarfile.LNKTYPE, "/etc/passwd")), "link, a device"),
    "tar device": (lambda: tarred(entry("d", tarfile.CHRTYPE)), "link, a device"),
    "tar pipe": (lambda: tarred(entry("p", tarfile.FIFOTYPE)), "link, a device"),
    "tar setuid": (lambda: tarred(entry("s", tarfile.REGTYPE, mode=0o4755)), "set-id"),
    "tar twice": (lambda: tarred(("a", b"1"), ("a", b"2")), "one on some systems|twice"),
    "tar bomb": (lambda: tarred(("zero", bytes(40 << 20))), "far more than it is large"),
    "tar header": (huge_header, "far more than it is large"),
    "tar members": (lambda: tarred(*((f"{n}.md", b"") for n in range(20_001))), "20,000 members|far more"),
    "tar cut": (lambda: tarred(("a", b"x" * 5000))[:-20], "damaged|cannot be read"),
    "tar xz": (lambda: b"\xfd7zXZ\x00" + bytes(100), "xz or bzip2"),
    "nothing": (lambda: b"", "empty|no archive|damaged"),
    "noise": (lambda: bytes(range(256)) * 40, "no archive|damaged"),
}


@pytest.mark.parametrize(
    "case", [pytest.param(one, marks=[pytest.mark.slow] * (one in {"zip large", "tar members"})) for one in HOSTILE]
)
def test_a_hostile_archive_is_refused_with_a_sentence(case: str):
    make, said = HOSTILE[case]
    data = make()
    with pytest.raises(SourceError, match=said):
        skills_of(read_archive(data, "the archive x"), "the archive x")


@pytest.mark.slow
def test_a_bomb_costs_no_more_memory_than_the_bound():
    data = gzip.compress(bytes(64 << 20), compresslevel=1) * 32
    tracemalloc.start()
    with pytest.raises(SourceError, match="far more"):
        read_archive(data, "the archive x")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 320 << 20


def test_an_archive_with_many_skills_is_many_skills():
    data = zipped(
        ("skills/a/SKILL.md", skill_text("a").encode()),
        ("skills/a/assets/template/SKILL.md", SKILL),
        ("skills/b/SKILL.md", skill_text("b").encode()),
        ("skills/b/node_modules/x/SKILL.md", SKILL),
    )
    found = skills_of(read_archive(data, "x"), "x")
    assert {folder: sorted(tree.files) for folder, tree in found.items()} == {
        "": ["SKILL.md"],
        "skills/a": ["SKILL.md", "assets/template/SKILL.md"],
        "skills/b": ["SKILL.md"],
    }


def test_without_a_skill_file_there_is_no_skill():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("README.md", "x")
    with pytest.raises(SourceError, match=r"has no SKILL\.md"):
        skills_of(read_archive(stream.getvalue(), "the archive x"), "the archive x")


@pytest.mark.parametrize("pack", [pack_zip, pack_tar])
def test_what_is_packed_is_read_again_and_packs_to_the_same_bytes(pack: Callable[..., bytes]):
    made = make_tree("pdf", scripts__run="print(1)\n", references__guide="Größe\n")
    files = dict(made.files)
    files["scripts/run"] = TreeFile(files["scripts/run"].data, executable=True)
    tree = tree_of(files, "x")
    again = skills_of(read_archive(pack(tree), "x"), "x")[""]
    assert again.digest == tree.digest
    assert again.executables == {"scripts/run"}
    assert pack(again) == pack(tree)


def test_row_141_a_zip_of_a_million_members_is_refused_before_there_is_an_object_for_each():
    """Seen: 18 s and 600 MB for a zip of 60 MB."""
    members = 300_000
    entry = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, members * len(entry), 31, 0)
    data = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 0, 0, 0, 0, 0, 0, 1, 0) + b"a" + entry * members + end
    tracemalloc.start()
    with pytest.raises(SourceError, match="20,000 members"):
        read_archive(data, "it")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 8 << 20


def header(name: str, size: int, kind: bytes) -> bytes:
    """Of a member, with any size, also one below zero."""
    info = tarfile.TarInfo(name)
    info.type = kind
    raw = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    raw[124:136] = b"%011o\0" % size if size >= 0 else b"\xff" + (256**11 + size).to_bytes(11, "big")
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


def tar_of(header_data: bytes, kind: bytes, times: int = 1) -> bytes:
    one = header("x", len(header_data), kind) + header_data + bytes(-len(header_data) % 512)
    return one * times + header("SKILL.md", 0, tarfile.REGTYPE) + bytes(1024)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(tar_of(b"1" * 500_000, tarfile.XHDTYPE), id="row 318: digits, hours"),
        pytest.param(tar_of(b"1" * 8_000, tarfile.XHDTYPE), id="row 318: digits, many headers"),
        pytest.param(tar_of(b"1" * 500_000, tarfile.XGLTYPE), id="row 318: digits, about all members"),
        pytest.param(header("x", -512, tarfile.REGTYPE) + bytes(1024), id="row 318: a size below zero"),
        pytest.param(tar_of(b"4 a\n" * 20_000 + b"=", tarfile.XHDTYPE), id="row 320: records that overlap"),
        pytest.param(tar_of(b"4 a\n" * 2_000 + b"=", tarfile.XHDTYPE), id="row 320: records that overlap, shorter"),
        pytest.param(tar_of(b"a" * 500_000, tarfile.GNUTYPE_LONGNAME), id="a long name"),
        pytest.param(tar_of(b"2000 k=" + b"v" * 1992 + b"\n", tarfile.XGLTYPE), id="row 320: much about all members"),
        pytest.param(tar_of(b"8 k=vvv\n", tarfile.XGLTYPE, 2), id="row 320: something about all members, again"),
    ],
)
def test_a_tar_whose_headers_nobody_makes_is_refused(data: bytes):
    """Seen: 4 KB held Python's lock for hours, and no deadline of a source helped; 290 bytes took a gigabyte."""
    tracemalloc.start()
    with pytest.raises(SourceError, match=r"a header|says more about all|a size that nothing has"):
        read_archive(data, "it")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 8 << 20


def test_headers_that_git_and_python_make_are_read():
    stream = io.BytesIO()
    about_all = {"comment": "0123456789abcdef0123456789abcdef01234567"}
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT, pax_headers=about_all) as archive:
        for name in ("SKILL.md", "references/" + "long" * 60 + "/ü.md"):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = 1, 1.5  # type: ignore[assignment]
            archive.addfile(info, io.BytesIO(b"x"))
    assert len(read_archive(stream.getvalue(), "it")) == 2


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_row_321_a_zip_is_stored_or_deflated(kind: int):
    """Seen: 996 bytes took 930 MB at once, and 4 KB would have taken four gigabytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", kind) as archive:
        archive.writestr("SKILL.md", skill_text("x"))
    with pytest.raises(SourceError, match="packed with bzip2 or LZMA"):
        read_archive(stream.getvalue(), "it")
