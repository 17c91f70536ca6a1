"""Signatures: real keys of ssh-keygen and gpg that git checks, and Sigstore bundles of an authority of our own."""

from __future__ import annotations

import logging
import shutil
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import pytest
from repositories import Repository, Run, make_tree

from adk_skills_agent.errors import ConfigError, IntegrityError, SourceError
from adk_skills_agent.sources.archives import pack_zip
from adk_skills_agent.sources.integrity import IntegrityCheck
from adk_skills_agent.sources.lock_file import manifest_path, read_wanted
from adk_skills_agent.sources.signatures import SignaturePolicy, bundle_signer, read_signature_policy

needs_ssh = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="ssh-keygen (openssh-client) is not installed"
)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The key of author@example.com."""
    return make_key(tmp_path / "key")


def make_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "author", "-f", str(path)], check=True)
    return path


def sign_tag(repository: Repository, key: Path, name: str) -> None:
    signed = ("-c", "gpg.format=ssh", "-c", f"user.signingkey={key}")
    repository.git(*signed, "tag", "-f", "-s", "-m", "signed", name)
    repository.git("push", "--quiet", "--force", "origin", f"refs/tags/{name}")


def sign_commit(repository: Repository, key: Path, files: dict[str, str]) -> None:
    repository.git("config", "gpg.format", "ssh")
    repository.git("config", "user.signingkey", str(key))
    repository.git("config", "commit.gpgsign", "true")
    repository.write(files)


def demand(project: Path, key: Path | None, principal: str = "author@example.com", more: str = "") -> None:
    """Write the policy of a project that trusts one key."""
    if key is not None:
        (project / "signers").write_text(f"# ours\n{principal} {key.with_suffix('.pub').read_text()}")
        more = f'ssh = "signers"\n{more}'
    (project / "adk-skills.toml").write_text(
        f"[tool.adk-skills]\nrequire-signature = true\n\n[tool.adk-skills.signers]\n{more}"
    )


@needs_ssh
def test_a_project_that_requires_signatures_takes_signed_commits_of_its_signers_only(
    repository: Repository, run: Run, tmp_path: Path, key: Path
) -> None:
    project = tmp_path / "project"
    demand(project, key)
    before = sorted(project.rglob("*"))
    source = (repository.bare, "--skill", "pdf", "--yes")
    plain = run("add", *source)
    assert plain.returncode == 1
    assert "is not signed, and a signature is required" in plain.stderr
    sign_commit(repository, make_key(tmp_path / "stranger"), {"skills/pdf/A.md": "one\n"})
    strange = run("add", *source)
    assert strange.returncode == 1
    assert "is signed with a key that is nobody's known" in strange.stderr
    assert sorted(project.rglob("*")) == before, "nothing is written"
    sign_commit(repository, key, {"skills/pdf/A.md": "two\n"})
    done = run("add", *source)
    assert done.returncode == 0, done.stderr
    assert "signed    author@example.com" in done.stdout
    assert run("sync", "--frozen").returncode == 0
    assert run("verify").returncode == 0


@needs_ssh
def test_a_signed_commit_that_was_changed_is_refused(
    repository: Repository, run: Run, tmp_path: Path, key: Path
) -> None:
    demand(tmp_path / "project", key)
    sign_commit(repository, key, {"skills/pdf/A.md": "good\n"})
    raw = repository.git("cat-file", "commit", "HEAD").replace("\n\nchange", "\n\nother words")
    forged = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin"],
        cwd=repository.work,
        input=raw + "\n",
        text=True,
        capture_output=True,
        check=True,
    ).stdout.strip()
    repository.git("push", "--quiet", "--force", "origin", f"{forged}:refs/heads/main")
    done = run("add", repository.bare, "--skill", "pdf", "--yes")
    assert done.returncode == 1
    assert "has a wrong signature" in done.stderr
    assert not (tmp_path / "project/adk-skills.lock").exists()


@needs_ssh
def test_what_a_signed_tag_locked_is_verified_again_when_it_is_fetched_again(
    repository: Repository, run: Run, tmp_path: Path, key: Path
) -> None:
    project = tmp_path / "project"
    demand(project, key)
    sign_tag(repository, key, "v1")
    assert run("add", repository.bare, "--skill", "pdf", "--yes", "--ref", "v1").returncode == 0
    shutil.rmtree(project / ".agents")
    shutil.rmtree(tmp_path / "home/.local/share/adk-skills/store")
    again = run("sync", "--frozen")
    assert again.returncode == 0, again.stderr
    shutil.rmtree(project / ".agents")
    shutil.rmtree(tmp_path / "home/.local/share/adk-skills/store")
    repository.write({"skills/pdf/B.md": "moved\n"})
    sign_tag(repository, key, "v1")
    moved = run("sync", "--frozen")
    assert moved.returncode == 1
    assert "is not what the tag 'v1' names now" in moved.stderr
    assert not (project / ".agents/skills/pdf").exists()


@needs_ssh
def test_row_461_an_older_signed_commit_is_no_update(
    repository: Repository, run: Run, tmp_path: Path, key: Path
) -> None:
    """Seen: who has the server but no key moved the branch back, and ``update`` took it as a newer version."""
    project = tmp_path / "project"
    demand(project, key)
    sign_commit(repository, key, {"skills/pdf/A.md": "with a hole\n"})
    time.sleep(1.1)
    sign_commit(repository, key, {"skills/pdf/A.md": "mended\n"})
    assert run("add", repository.bare, "--skill", "pdf", "--yes").returncode == 0
    subprocess.run(["git", "update-ref", "refs/heads/main", "main~1"], cwd=repository.bare, check=True)
    back = run("update", "--yes")
    assert back.returncode == 1
    assert "is older than" in back.stdout + back.stderr
    assert (project / ".agents/skills/pdf/A.md").read_text() == "mended\n"
    sign_commit(repository, key, {"skills/pdf/A.md": "newer\n"})
    forth = run("update", "--yes")
    assert forth.returncode == 0, forth.stderr
    assert (project / ".agents/skills/pdf/A.md").read_text() == "newer\n"


@needs_ssh
def test_a_commit_made_after_the_installed_one_is_newer_whatever_its_clock_said(
    repository: Repository, run: Run, tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: an author whose second machine is an hour behind was told that his own next version is older."""
    demand(tmp_path / "project", key)
    sign_commit(repository, key, {"skills/pdf/A.md": "one\n"})
    assert run("add", repository.bare, "--skill", "pdf", "--yes").returncode == 0
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2020-01-01T00:00:00Z")
    sign_commit(repository, key, {"skills/pdf/A.md": "two\n"})
    sign_commit(repository, key, {"skills/pdf/A.md": "three\n"})
    done = run("update", "--yes")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "project/.agents/skills/pdf/A.md").read_text() == "three\n"


@needs_ssh
def test_row_465_settings_in_pyproject_do_not_hide_what_the_manifest_demands(
    repository: Repository, run: Run, tmp_path: Path, key: Path
) -> None:
    """Seen: with limits of the sandbox in pyproject.toml nobody read ``require-signature`` of adk-skills.toml."""
    project = tmp_path / "project"
    demand(project, key)
    (project / "pyproject.toml").write_text("[tool.adk-skills.policy]\nmemory_bytes = 1000000000\n")
    refused = run("add", repository.bare, "--skill", "pdf", "--yes")
    assert refused.returncode == 1
    assert "is not signed, and a signature is required" in refused.stderr
    (project / "pyproject.toml").write_text("[tool.adk-skills.skills]\n")
    both = run("add", repository.bare, "--skill", "pdf", "--yes")
    assert both.returncode == 2
    assert "both say what is wanted (skills, require-signature, signers)" in both.stderr


@pytest.mark.parametrize(
    ("project", "said"),
    [
        ("[tool.adk-skills\n", "pyproject.toml"),
        ("[tool.adk-skills]\nrequire-signatures = true\n", "both say what is wanted"),
    ],
)
def test_row_465_what_is_wrong_in_pyproject_is_said_beside_a_manifest(tmp_path: Path, project: str, said: str) -> None:
    (tmp_path / "adk-skills.toml").write_text("[tool.adk-skills.skills]\n")
    (tmp_path / "pyproject.toml").write_text(project)
    with pytest.raises(ConfigError, match=said) as error:
        manifest_path(tmp_path)
    assert ("both say" in str(error.value)) == ("both say" in said)


@needs_ssh
def test_row_195_a_signed_tag_under_another_name_is_not_signed(
    repository: Repository, run: Run, tmp_path: Path, key: Path
) -> None:
    """Seen: who has the server but no key gave v1, with a hole that v2 mended, to all who asked for v2."""
    demand(tmp_path / "project", key)
    sign_tag(repository, key, "v1")
    repository.git("push", "--quiet", "origin", "refs/tags/v1:refs/tags/v2")
    done = run("add", repository.bare, "--skill", "pdf", "--yes", "--ref", "v2")
    assert done.returncode == 1
    assert "is signed as the tag 'v1', and not as 'v2'" in done.stderr
    assert run("add", repository.bare, "--skill", "pdf", "--yes", "--ref", "v1").returncode == 0


@needs_ssh
def test_a_lock_without_a_signer_fails_sync_verify_and_loading_when_one_is_required(
    repository: Repository, run: Run, tmp_path: Path, key: Path, caplog: pytest.LogCaptureFixture
) -> None:
    project = tmp_path / "project"
    assert run("add", repository.bare, "--skill", "pdf", "--yes").returncode == 0
    assert run("verify").returncode == 0
    strict = run("verify", "--require-signature")
    assert strict.returncode == 1
    assert "pdf: signature: pdf is not signed, or was locked without looking" in strict.stdout
    assert run("sync", "--require-signature").returncode == 1
    folder = project / ".agents/skills/pdf"
    checks = IntegrityCheck("require")
    checks.check("pdf", folder, lambda: "1")  # nothing is required yet
    wanted = (project / "adk-skills.toml").read_text()
    demand(project, key)
    (project / "adk-skills.toml").write_text((project / "adk-skills.toml").read_text() + "\n" + wanted)
    synced = run("sync")
    assert synced.returncode == 1
    assert "A signature is required: pdf is not signed" in synced.stderr
    with pytest.raises(IntegrityError, match="is not what its lock says") as refused:
        checks.check("pdf", folder, lambda: "1")
    assert "signature: pdf is not signed" in " ".join(refused.value.__notes__)
    assert str(project) not in refused.value.message
    with caplog.at_level(logging.WARNING):
        IntegrityCheck("warn").check("pdf", folder, lambda: "1")
    assert "locked without looking" in caplog.text


@needs_ssh
def test_a_signer_who_is_taken_off_the_list_is_trusted_no_more(
    repository: Repository, run: Run, tmp_path: Path, key: Path
) -> None:
    project = tmp_path / "project"
    demand(project, key)
    sign_tag(repository, key, "v1")
    assert run("add", repository.bare, "--skill", "pdf", "--yes", "--ref", "v1").returncode == 0
    (project / "signers").write_text(f"other@example.com {key.with_suffix('.pub').read_text()}")
    gone = run("verify")
    assert gone.returncode == 1
    assert "was signed by author@example.com, who is not among the signers" in gone.stdout


@needs_ssh
def test_needed_skills_must_be_signed_too(repository: Repository, run: Run, tmp_path: Path, key: Path) -> None:
    other = Repository(tmp_path / "other")
    other.write({"skills/base/SKILL.md": "---\nname: base\ndescription: Is needed. Use it for tests.\n---\nx\n"})
    demand(tmp_path / "project", key)
    text = (
        "---\nname: top\ndescription: Needs. Use it for tests.\n"
        f"metadata:\n  requires-skills: 'base @ {other.url}'\n---\nx\n"
    )
    sign_commit(repository, key, {"skills/top/SKILL.md": text})
    done = run("add", repository.bare, "--skill", "top", "--yes")
    assert done.returncode == 1
    assert "is not signed, and a signature is required" in done.stderr
    assert not (tmp_path / "project/.agents").exists()


@pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg (gnupg) is not installed")
def test_openpgp_counts_by_the_fingerprints_of_the_project(
    repository: Repository, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = tmp_path / "g"
    ring.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(ring))
    author = "Author <author@example.com>"
    made = ["gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", author, "ed25519", "sign", "never"]
    subprocess.run(made, check=True, capture_output=True)
    listed = subprocess.run(["gpg", "--list-keys", "--with-colons"], capture_output=True, text=True, check=True)
    fingerprint = next(line.split(":")[9] for line in listed.stdout.splitlines() if line.startswith("fpr"))
    try:
        repository.git("config", "user.signingkey", fingerprint)
        repository.git("tag", "-s", "-m", "signed", "v1")
        repository.git("push", "--quiet", "--tags", "origin")
        source = ("add", repository.bare, "--skill", "pdf", "--yes", "--ref", "v1")
        demand(tmp_path / "project", None, more=f'gpg = ["{"A" * 40}"]\n')
        ours = {"GNUPGHOME": str(ring)}
        other = run(*source, env=ours)
        assert other.returncode == 1
        assert "which is nobody's who is trusted" in other.stderr
        demand(tmp_path / "project", None, more=f'gpg = ["{fingerprint}"]\n')
        assert "a key that is nobody's known" in run(*source).stderr, "the keyring of another user"
        done = run(*source, env=ours)
        assert done.returncode == 0, done.stderr
        assert f"signed    {author} {fingerprint}" in done.stdout
        assert run("verify").returncode == 0
    finally:
        subprocess.run(["gpgconf", "--kill", "all"], check=False, capture_output=True)


def test_a_source_that_cannot_be_signed_is_refused_before_it_is_read(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "skill"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: local\ndescription: Is local. Use it for tests.\n---\nx\n")
    done = run("add", folder, "--yes", "--require-signature")
    assert done.returncode == 1
    assert "cannot be signed (a git repository and an archive can)" in done.stderr
    assert not (tmp_path / "project/adk-skills.lock").exists()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('require-signature = "yes"', "Write true or false"),
        ("require_signature = true", "Did you mean 'require-signature'"),
        ("signatures = true", "there is no 'signatures'"),
        ("signers = 3", "must be a table"),
        ('signers.shh = "x"', "Did you mean 'ssh'"),
        ('signers.ssh = "nowhere"', "there is no such file"),
        ('signers.gpg = ["1234"]', "whole fingerprints"),
        ("signers.sigstore = [3]", "sigstore must be a list"),
    ],
)
def test_a_wrong_policy_is_named_with_its_file(tmp_path: Path, table: str, said: str) -> None:
    file = tmp_path / "adk-skills.toml"
    file.write_text(f"[tool.adk-skills]\n{table}\n")
    with pytest.raises(ConfigError, match=said) as refused:
        read_signature_policy(file)
    assert str(file) in refused.value.message


@pytest.mark.parametrize("head", ["", "[adk-skills]\n", "[tool]\n", "[tool.adk_skills]\n"])
def test_a_demand_in_the_wrong_place_is_not_ignored(tmp_path: Path, head: str) -> None:
    """Seen: at the top of an adk-skills.toml it demanded nothing, and unsigned skills were installed."""
    file = tmp_path / "adk-skills.toml"
    file.write_text(f"{head}require-signature = true\n")
    with pytest.raises(ConfigError, match=r"must stand under \[tool.adk-skills\]"):
        read_signature_policy(file)


# Sigstore.


@pytest.fixture(scope="module")
def authority():
    pytest.importorskip("sigstore", reason="the extra sigstore is not installed")
    from sigstore_authority import Authority

    return Authority()


def policy_of(authority, folder: Path, *identities: tuple[str, str]) -> SignaturePolicy:
    (folder / "root.json").write_text(authority.root())
    chosen = identities or (("release@example.com", "https://issuer.example.com"),)
    return SignaturePolicy(True, sigstore=chosen, trust_root=folder / "root.json")


@pytest.mark.parametrize("form", ["sign", "attest"])
def test_a_bundle_holds_for_its_bytes_and_its_signer_only(authority, tmp_path: Path, form: str) -> None:
    from sigstore_authority import Authority

    data = pack_zip(make_tree())
    bundle = getattr(authority, form)(data).encode()
    good = policy_of(authority, tmp_path)
    assert bundle_signer(data, bundle, good) == ("release@example.com", "2026-02-28T23:55:00Z")
    others = (("x@example.com", ""), ("release@example.com", ""))
    assert bundle_signer(data, bundle, policy_of(authority, tmp_path, *others))[0] == "release@example.com"
    with pytest.raises(SourceError, match="does not hold for these bytes"):
        bundle_signer(data + b"\n", bundle, good)
    for wrong in (("else@example.com", ""), ("release@example.com", "https://other.example.com")):
        with pytest.raises(SourceError, match="does not hold"):
            bundle_signer(data, bundle, policy_of(authority, tmp_path, wrong))
    with pytest.raises(SourceError, match="does not hold"):
        bundle_signer(data, bundle, policy_of(Authority(), tmp_path))
    with pytest.raises(SourceError, match="no Sigstore bundle"):
        bundle_signer(data, b"{}", policy_of(authority, tmp_path))
    with pytest.raises(ConfigError, match="Name who may sign"):
        bundle_signer(data, bundle, SignaturePolicy(True))


def test_the_public_root_of_trust_needs_no_network(authority) -> None:
    bundle = authority.sign(b"data").encode()
    with pytest.raises(SourceError, match="does not hold"):
        bundle_signer(b"data", bundle, SignaturePolicy(True, sigstore=(("release@example.com", ""),)))


def test_an_archive_is_added_with_the_bundle_beside_it(authority, run: Run, tmp_path: Path) -> None:
    project, archive = tmp_path / "project", tmp_path / "pdf.skill"
    archive.write_bytes(pack_zip(make_tree()))
    (project / "root.json").write_text(authority.root())
    signer = '[{ identity = "release@example.com", issuer = "https://issuer.example.com" }]'
    demand(project, None, more=f'sigstore = {signer}\ntrust-root = "root.json"\n')
    source = ("add", archive, "--yes")
    plain = run(*source)
    assert plain.returncode == 1
    assert "has no Sigstore bundle beside it" in plain.stderr
    beside = tmp_path / "pdf.skill.sigstore.json"
    beside.write_text(authority.sign(b"other bytes"))
    wrong = run(*source)
    assert wrong.returncode == 1
    assert "does not hold for these bytes" in wrong.stderr
    assert not (project / ".agents").exists()
    assert not (project / "adk-skills.lock").exists()
    elsewhere = tmp_path / "bundle.json"
    elsewhere.write_text(authority.sign(archive.read_bytes()))
    beside.unlink()
    named = run(*source, "--bundle", elsewhere)
    assert named.returncode == 0, named.stderr
    elsewhere.rename(beside)
    done = run(*source)
    assert done.returncode == 0, done.stderr
    assert "signed    release@example.com" in done.stdout
    assert 'signer = "release@example.com"' in (project / "adk-skills.lock").read_text()
    assert run("verify").returncode == 0
    folder = run("add", "./x", "--bundle", beside)
    assert folder.returncode == 2


def test_row_461_an_older_signed_archive_is_no_update(
    authority, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: who has the server but no key put the archive with the hole there again, with its bundle."""
    import sigstore_authority

    project, archive = tmp_path / "project", tmp_path / "pdf.skill"
    (project / "adk-skills.toml").write_text(
        "[tool.adk-skills]\nrequire-signature = true\n[tool.adk-skills.signers]\n"
        'sigstore = [{ identity = "release@example.com" }]\ntrust-root = "root.json"\n'
    )
    (project / "root.json").write_text(authority.root())
    began, releases = sigstore_authority.NOW, []
    for hour in range(3):
        monkeypatch.setattr(sigstore_authority, "NOW", began + timedelta(hours=hour))
        skill = make_tree("pdf", release=str(hour))
        releases.append((pack_zip(skill), authority.sign(pack_zip(skill))))
    for number, is_taken in ((1, True), (0, False), (2, True)):
        archive.write_bytes(releases[number][0])
        (tmp_path / "pdf.skill.sigstore.json").write_text(releases[number][1])
        done = run("add", archive, "--yes") if number == 1 else run("update", "--yes")
        assert done.returncode == (0 if is_taken else 1), done.stderr
        assert ("was signed before the one that is installed (2026-03-01T00:55:00Z)" in done.stderr) is not is_taken
        assert (project / ".agents/skills/pdf/release").read_text() == str(number if is_taken else 1)


@pytest.mark.parametrize("table", ["skills", "adk-skills.skills", "tool.adk_skills.skills"])
def test_what_stands_in_the_wrong_table_of_the_manifest_is_said(table: str, tmp_path: Path) -> None:
    """Seen: ``sync`` told that there is nothing to do."""
    manifest = tmp_path / "adk-skills.toml"
    manifest.write_text(f"[{table}]\npdf = 'owner/repo'\n[tool.other]\nx = 1\n")
    with pytest.raises(ConfigError, match=r"counts for nothing. Write it under \[tool.adk-skills\]"):
        read_wanted(manifest)
    other = tmp_path / "pyproject.toml"
    other.write_text("[project]\nname = 'x'\n[skills]\nx = 1\n")
    assert read_wanted(other) == {}


def test_a_manifest_keeps_its_line_ends(run: Run, repository: Repository, tmp_path: Path) -> None:
    """Seen: what was added to a pyproject.toml of Windows had other line ends than the rest."""
    manifest = tmp_path / "project/pyproject.toml"
    manifest.write_bytes(b"[project]\r\nname = 'x'\r\n")
    assert run("add", repository.url, "--skill", "pdf", "--yes").returncode == 0
    written = manifest.read_bytes()
    assert b"pdf = {" in written
    assert written.count(b"\n") == written.count(b"\r\n")
    assert read_wanted(manifest)
