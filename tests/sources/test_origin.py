"""What a user may write for a source."""

from __future__ import annotations

from pathlib import Path

import pytest

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.sources.origin import OriginKind, read_origin

GITHUB = "https://github.com"


@pytest.mark.parametrize(
    ("text", "kind", "location", "ref", "subpath"),
    [
        ("anthropics/skills", "git", f"{GITHUB}/anthropics/skills", "", ""),
        ("anthropics/skills/skills/pdf@v1.2", "git", f"{GITHUB}/anthropics/skills", "v1.2", "skills/pdf"),
        (f"{GITHUB}/a/b/tree/main/skills/pdf", "git", f"{GITHUB}/a/b", "main", "skills/pdf"),
        (f"{GITHUB}/a/b/blob/main/skills/pdf/SKILL.md", "git", f"{GITHUB}/a/b", "main", "skills/pdf"),
        ("a/b/skills/pdf/SKILL.md@v1", "git", f"{GITHUB}/a/b", "v1", "skills/pdf"),
        ("https://gitlab.com/g/sub/r/-/tree/dev/x", "git", "https://gitlab.com/g/sub/r", "dev", "x"),
        ("https://git.example.com/team/skills.git@main", "git", "https://git.example.com/team/skills.git", "main", ""),
        ("git+https://h.example/r@v1#skills/x", "git", "https://h.example/r", "v1", "skills/x"),
        ("git@h.example:team/skills.git", "git", "git@h.example:team/skills.git", "", ""),
        ("git@h.example:team/skills.git@v2", "git", "git@h.example:team/skills.git", "v2", ""),
        ("git@github_work:team/skills.git", "git", "git@github_work:team/skills.git", "", ""),
        ("ssh://git@h.example:2222/r.git", "git", "ssh://git@h.example:2222/r.git", "", ""),
        ("file:///srv/skills.git", "git", "file:///srv/skills.git", "", ""),
        ("https://skills.example.com", "well-known", "https://skills.example.com", "", ""),
        ("https://example.com/a/pdf.skill", "archive", "https://example.com/a/pdf.skill", "", ""),
        ("pypi:FastAPI==0.1", "pypi", "fastapi", "0.1", ""),
        ("mcp:https://example.com/mcp", "mcp", "https://example.com/mcp", "", ""),
        ("mcp:python -m server", "mcp", "python -m server", "", ""),
    ],
)
def test_each_form_of_a_source_is_read(text: str, kind: str, location: str, ref: str, subpath: str, tmp_path: Path):
    origin = read_origin(text, base=tmp_path)
    assert (origin.kind.value, origin.location, origin.ref, origin.subpath) == (kind, location, ref, subpath)


def test_what_a_lock_shows_of_a_source_can_be_read_again(tmp_path: Path):
    for text in ("a/b/c@v1", "https://h.example/r.git", "pypi:x==1", "https://h.example", "mcp:srv --stdio"):
        origin = read_origin(text, base=tmp_path)
        assert read_origin(str(origin), base=tmp_path) == origin


def test_folders_archives_and_bare_repositories_are_told_apart(tmp_path: Path):
    (tmp_path / "skills").mkdir()
    (tmp_path / "x.zip").write_bytes(b"")
    (tmp_path / "r.git" / "objects").mkdir(parents=True)
    (tmp_path / "r.git" / "HEAD").write_text("ref: refs/heads/main\n")
    assert read_origin("./skills", base=tmp_path).kind is OriginKind.FOLDER
    assert read_origin("skills", base=tmp_path).location == str(tmp_path / "skills")
    assert read_origin("x.zip", base=tmp_path).kind is OriginKind.ARCHIVE
    assert read_origin("r.git", base=tmp_path).location == (tmp_path / "r.git").as_uri()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no source"),
        ("./nowhere", "does not exist"),
        ("https://user:secret@h.example/r.git", "credential helper"),
        ("https://ghp_token@h.example/r.git", "credential helper"),
        ("ext::sh -c evil", "no source"),
        ("git+ext://x", "not fetched from"),
        ("a/b@--upload-pack=evil", "no branch"),
        ("a/b/../../etc@main", "leaves the source"),
        ("pypi:../x", "names no package"),
        ("mcp:", "names no server"),
        *(
            (f"{scheme}://{host}:80/{path}", "names no server")  # row 458: git takes it for 127.0.0.1
            for host in ("127.0.0.%31", "%31%32%37.0.0.1", "l%6fcalhost", "[::1%25lo]", "127。0。0。1")
            for scheme, path in (
                ("git+https", "r.git"),
                ("ssh", "r.git"),
                ("https", "r"),
                ("https", "a.zip"),
                ("https", "r/tree/main/x"),
                ("https", ""),
            )
        ),
        ("git+ssh://a%40127.0.0.1%2Fx@h.example/r.git", "names no server"),  # git decodes the user as well
        ("git+ssh://127.0.0.1%2Fx@h.example/r.git", "names no server"),
        ("https://[::1", "Correct the address"),
        ("https://h.example:99999", "Correct the address"),
        ("git+https://h.example:port/r.git", "Correct the address"),
        ("mcp:https://[bad/mcp", "Correct the address"),
        ("mcp:python 'server.py", "Correct the address"),
        ("a/b\n", None),
    ],
)
def test_what_is_no_source_or_has_a_secret_is_refused_with_what_to_do(text: str, said: str | None, tmp_path: Path):
    if said is None:
        assert read_origin(text, base=tmp_path).location == f"{GITHUB}/a/b"
        return
    with pytest.raises(ConfigError, match=said) as refused:
        read_origin(text, base=tmp_path)
    assert "secret" not in str(refused.value)
    assert "ghp_token" not in str(refused.value)


def test_a_ref_is_refused_where_there_are_no_versions(tmp_path: Path):
    with pytest.raises(ConfigError, match="no versions"):
        read_origin(".", ref="main", base=tmp_path)
