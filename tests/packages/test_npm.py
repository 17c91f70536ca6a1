"""npm packages: exact versions with hashes, nothing of them runs while they are installed, no network afterwards."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import preloaded
from adk_skills_agent.catalog import Skill
from adk_skills_agent.cli.sources import open_skill
from adk_skills_agent.errors import ConfigError, PackageError
from adk_skills_agent.packages import Dependencies, PackagesNotApproved, SkillEnvironments
from adk_skills_agent.packages.environments import Environment, find_environment, prepare
from adk_skills_agent.packages.lock import Lock, parse_lock, resolve
from adk_skills_agent.packages.npm import (
    NODE_DIR,
    checked_lock,
    has_hooks,
    link_commands,
    node_requirement,
    node_version,
)
from adk_skills_agent.packages.uv import Index
from certificates import Authority
from local_index import serving

MakeSkill = Callable[..., Path]
pytestmark = pytest.mark.skipif(
    not (shutil.which("npm") and shutil.which("node")), reason="needs Node and npm: apt-get install nodejs npm"
)
WHAT = "the packages of skill 'x'"


@dataclass
class LocalRegistry:
    """An npm registry on loopback, of packages made on the spot."""

    url: str = ""
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    hangs: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)
    requests: list[str] = field(default_factory=list)

    def add(self, name: str, version: str = "1.0.0", code: str | None = None, **manifest: Any) -> None:
        """A package of both kinds of modules; its default export is its name and version."""
        text = code or f"module.exports = '{name} {version}';\n"
        about = {"name": name, "version": version, "main": "index.js", **manifest}
        data = tarball({"package.json": json.dumps(about), "index.js": text, "run.js": f"#!/usr/bin/env node\n{text}"})
        file = f"/files/{name.replace('/', '-')}-{version}.tgz"
        self.files[file] = data
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        document = self.documents.setdefault(name, {"name": name, "versions": {}, "dist-tags": {}})
        document["versions"][version] = {**about, "dist": {"tarball": self.url + file, "integrity": integrity}}
        document["dist-tags"]["latest"] = version

    def located(self, address: str) -> None:
        self.url = address

    def answer(self, path: str) -> tuple[str, bytes | None]:
        if path in self.files:
            return "application/octet-stream", self.files[path]
        document = self.documents.get(path.strip("/").replace("%2f", "/"))
        return "application/json", json.dumps(document).encode() if document is not None else None


def tarball(files: Mapping[str, str]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(text.encode()), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    return stream.getvalue()


@pytest.fixture
def registry() -> Iterator[LocalRegistry]:
    with serving(LocalRegistry()) as made:
        yield made


def at(registry: LocalRegistry, *, offline: bool = False) -> Index:
    return Index(npm_registry=registry.url, offline=offline)


def locked(registry: LocalRegistry, cache: Path, *requirements: str, node_lock: bytes | None = None) -> Lock:
    return resolve(requirements, cache=cache / "uv", index=at(registry), what=WHAT, node_lock=node_lock)


def prepared(lock: Lock, registry: LocalRegistry, cache: Path, *, offline: bool = False) -> Environment:
    return prepare(lock, cache=cache, index=at(registry, offline=offline), what=WHAT)


def run(environment: Environment, folder: Path, name: str, code: str) -> str:
    """What a script prints that lies where no package is near."""
    (folder / name).write_text(code)
    done = subprocess.run(
        [environment.bin / "node", folder / name], capture_output=True, text=True, check=False, cwd="/"
    )
    return done.stdout + done.stderr


def test_exact_versions_become_packages_that_both_kinds_of_modules_find(
    registry: LocalRegistry, cache: Path, tmp_path: Path
) -> None:
    registry.add("beta", "1.0.0")
    registry.add("beta", "2.5.0")
    registry.add("alpha", dependencies={"beta": "^1.0.0"}, code="module.exports = 'alpha with ' + require('beta');\n")
    registry.add("@team/tool", bin={"tool": "run.js"})
    lock = locked(registry, cache, "npm:alpha@^1", "npm:beta@>=2", "npm:@team/tool")
    names = [(one.name, one.version) for one in lock.packages]
    assert names == [
        ("npm:@team/tool", "1.0.0"),
        ("npm:alpha", "1.0.0"),
        ("npm:beta", "1.0.0"),
        ("npm:beta", "2.5.0"),
    ]
    assert str(lock.packages[1]).startswith("npm:alpha==1.0.0 (sha512 ")
    environment = prepared(lock, registry, cache)
    asked = len(registry.requests)
    registry.hangs.set()
    code = "console.log(require('alpha'), require('beta'));"
    assert run(environment, tmp_path, "a.cjs", code) == "alpha with beta 1.0.0 beta 2.5.0\n"
    if has_hooks(node_version()):
        code = "import alpha from 'alpha';\nimport beta from 'beta';\nconsole.log(alpha, beta);"
        assert run(environment, tmp_path, "a.mjs", code) == "alpha with beta 1.0.0 beta 2.5.0\n"
    assert "ERR_MODULE_NOT_FOUND" in run(environment, tmp_path, "b.mjs", "import 'no-such-package';")
    assert (environment.bin / "tool").resolve().is_relative_to(environment.folder)
    read = parse_lock(lock.text().encode(), "a test")
    assert (read.digest, read.packages) == (lock.digest, lock.packages)
    assert prepared(read, registry, cache) == environment
    assert len(registry.requests) == asked


def test_row_101_nothing_of_a_package_runs_when_it_is_installed(
    registry: LocalRegistry, cache: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "it-ran"
    scripts = dict.fromkeys(("preinstall", "install", "postinstall", "prepare"), f"touch {trace}")
    registry.add("eager", scripts=scripts)
    environment = prepared(locked(registry, cache, "npm:eager"), registry, cache)
    assert run(environment, tmp_path, "a.cjs", "console.log(require('eager'));") == "eager 1.0.0\n"
    assert not trace.exists()


def test_no_command_of_a_package_is_what_python_reads_at_its_start(tmp_path: Path) -> None:
    commands = tmp_path / NODE_DIR / "node_modules" / ".bin"
    commands.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for name in ("python._pth", "Python3", "pyvenv.cfg", "pybuilddir.txt", "a-tool-of-its-own"):
        (commands / name).write_text("")
    notes = link_commands(tmp_path, ())
    assert [path.name for path in (tmp_path / "bin").iterdir()] == ["a-tool-of-its-own"]
    assert len(notes) == 4


@pytest.mark.slow
def test_a_command_of_a_package_replaces_none_of_the_system(registry: LocalRegistry, cache: Path) -> None:
    registry.add("odd", bin=dict.fromkeys(("sh", "node", "python3", "npm", "odd"), "run.js"))
    environment = prepared(locked(registry, cache, "npm:odd"), registry, cache)
    assert "exec" in (environment.bin / "node").read_text()
    assert not (environment.bin / "sh").exists()
    assert (environment.bin / "python3").resolve().name.startswith("python")
    assert (environment.bin / "odd").exists()
    left_out = " ".join(environment.notes)
    assert all(f"The command {name} of an npm package was left out" in left_out for name in ("sh", "node", "npm"))


@pytest.mark.slow
def test_packages_for_development_are_left_out_and_the_authors_versions_stay(
    registry: LocalRegistry, cache: Path, make_skill: MakeSkill
) -> None:
    registry.add("alpha", "1.0.0")
    known = locked(registry, cache, "npm:alpha@^1").node
    registry.add("alpha", "1.1.0")
    registry.add("tester")
    manifest = {"dependencies": {"alpha": "^1"}, "devDependencies": {"tester": "*"}}
    skill = opened(make_skill(files={"package.json": json.dumps(manifest), "package-lock.json": known}))
    lock = asked(registry, cache, skill).lock
    assert [(one.name, one.version) for one in lock.packages] == [("npm:alpha", "1.0.0")]
    assert locked(registry, cache, "npm:alpha@^1").packages[0].version == "1.1.0"


def opened(folder: Path) -> Skill:
    return open_skill(str(folder), ())


def asked(registry: LocalRegistry, cache: Path, skill: Skill, script: str | None = None) -> PackagesNotApproved:
    environments = SkillEnvironments(Dependencies("ask", npm_registry=registry.url, cache=cache))
    with pytest.raises(PackagesNotApproved) as error:
        environments.environment_for(skill, script=script)
    return error.value


@pytest.mark.slow
def test_only_scripts_that_need_them_ask_for_them(registry: LocalRegistry, cache: Path, make_skill: MakeSkill) -> None:
    registry.add("alpha")
    files = {
        "scripts/a.mjs": "import alpha from 'alpha';\nconsole.log(alpha);\n",
        "scripts/run.sh": "node scripts/a.mjs\n",
        "scripts/other.sh": "echo\n",
        "scripts/plain.py": "print()\n",
    }
    skill = opened(make_skill(files=files))
    for script in (None, "scripts/a.mjs", "scripts/run.sh"):
        assert [one.name for one in asked(registry, cache, skill, script).lock.packages] == ["npm:alpha"]
    environments = SkillEnvironments(Dependencies("ask", npm_registry=registry.url, cache=cache))
    assert environments.environment_for(skill, script="scripts/plain.py") is None
    assert environments.environment_for(skill, script="scripts/other.sh") is None
    digest = asked(registry, cache, skill).lock.digest
    made = environments.environment_for(skill, script="scripts/a.mjs", approved={digest})
    assert made is not None
    assert made == SkillEnvironments(Dependencies("locked", cache=cache)).environment_for(skill, script="scripts/a.mjs")


def test_the_command_prepares_them_and_a_script_finds_them(
    registry: LocalRegistry, make_skill: MakeSkill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.add("alpha")
    code = "console.log(require('alpha'), process.cwd());\n"
    package = '{"dependencies": {"elsewhere": "git+https://example.com/e.git"}}'
    folder = make_skill(files={"scripts/a.cjs": code, "package.json": package})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", registry.url)
    program = preloaded.program("adk-skills")
    needs = subprocess.run([program, "needs", folder], capture_output=True, text=True, check=False)
    assert "-> adk-skills prepare" in needs.stdout
    before = ("prepare", str(folder), "--exclude-newer", "2100-01-01")
    done = subprocess.run([program, *before], capture_output=True, text=True, check=False)
    assert (done.returncode, "npm:alpha==1.0.0" in done.stdout) == (0, True), done.stderr
    assert "note: elsewhere: 'git+https://example.com/e.git' names a place of its own" in done.stderr
    ran = subprocess.run([program, "run", folder, "scripts/a.cjs"], capture_output=True, text=True, check=False)
    assert ran.stdout.startswith("alpha 1.0.0 "), ran.stderr


def whole_folders(cache: Path) -> list[str]:
    root = cache / "environments"
    return [one.name for one in root.iterdir() if one.is_dir()] if root.is_dir() else []


def sentences(error: PackageError) -> tuple[str, str]:
    message = str(error)
    assert "/" not in message
    assert "127.0.0.1" not in message
    return message, " ".join(error.__notes__)


def test_what_is_not_what_was_locked_is_refused_and_nothing_is_half_made(registry: LocalRegistry, cache: Path) -> None:
    registry.add("alpha")
    lock = locked(registry, cache, "npm:alpha")
    for file in registry.files:
        registry.files[file] = tarball({"package.json": '{"name": "alpha", "version": "1.0.0"}'})
    shutil.rmtree(cache / "npm")
    with pytest.raises(PackageError) as error:
        prepared(lock, registry, cache)
    for_model, for_owner = sentences(error.value)
    assert "what the registry sent is not what was locked" in for_model
    assert "EINTEGRITY" in for_owner
    assert whole_folders(cache) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("requirement", "said"), [("npm:nowhere", "does not exist"), ("npm:alpha@^7", "does not exist")]
)
def test_a_package_that_is_not_there_is_said(registry: LocalRegistry, cache: Path, requirement: str, said: str) -> None:
    registry.add("alpha")
    with pytest.raises(PackageError, match=said):
        locked(registry, cache, requirement)


@pytest.mark.slow
def test_offline_says_so_and_a_dead_registry_too(registry: LocalRegistry, cache: Path) -> None:
    registry.add("alpha")
    lock = locked(registry, cache, "npm:alpha")
    shutil.rmtree(cache / "npm")
    with pytest.raises(PackageError, match="nothing may be fetched"):
        prepared(lock, registry, cache, offline=True)
    with pytest.raises(PackageError, match="does not answer"):
        resolve(["npm:alpha"], cache=cache / "uv", index=Index(npm_registry="http://127.0.0.1:9"), what=WHAT)
    assert find_environment(lock, cache=cache) is None


@pytest.mark.slow
def test_a_registry_with_a_certificate_of_a_companys_own_authority_says_what_to_set(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Authority(tmp_path).give_to_both("127.0.0.1")
    monkeypatch.delenv("NODE_EXTRA_CA_CERTS", raising=False)
    with serving(LocalRegistry(), tmp_path / "server") as registry:
        registry.add("alpha")
        with pytest.raises(PackageError, match="is not trusted here") as caught:
            locked(registry, cache, "npm:alpha")
        assert "set NODE_EXTRA_CA_CERTS" in " ".join(caught.value.__notes__)
        # An npm that is configured with a cafile, as some machines are, does not look at NODE_EXTRA_CA_CERTS.
        monkeypatch.setenv("npm_config_cafile", str(tmp_path / "server" / "ca.pem"))
        assert [one.name for one in locked(registry, cache, "npm:alpha").packages]


GOOD = {"version": "1.0.0", "integrity": "sha512-" + base64.b64encode(bytes(64)).decode()}


@pytest.mark.parametrize(
    ("place", "entry", "why"),
    [
        ("node_modules/a", {**GOOD, "link": True}, "not a package of the registry"),
        ("../a", GOOD, "not a package of the registry"),
        ("node_modules/../../a", GOOD, "not a package of the registry"),
        ("node_modules/a/../b", GOOD, "not a package of the registry"),
        ("/node_modules/a", GOOD, "not a package of the registry"),
        ("packages/a", GOOD, "not a package of the registry"),
        ("node_modules/a", {"version": "1.0.0"}, "no SHA-512"),
        ("node_modules/a", {"version": "1.0.0", "integrity": "sha1-AAAA"}, "no SHA-512"),
        ("node_modules/a", {**GOOD, "version": "file:../a"}, "no version"),
        ("node_modules/a", {**GOOD, "resolved": "git+ssh://git@host/a.git#1"}, "elsewhere than a registry"),
        ("node_modules/a", {**GOOD, "resolved": "file:../a.tgz"}, "elsewhere than a registry"),
        ("node_modules/a", {**GOOD, "resolved": "https://[bad", "version": ""}, "no version"),
        ("node_modules/a", {**GOOD, "name": "../b"}, "no proper name"),
        ("node_modules/a", {"version": "1.0.0", "inBundle": True}, "none brings it"),
        ("node_modules/a/node_modules/b", {"version": "1.0.0", "inBundle": True}, "none brings it"),
        ("node_modules/a", "text", "not a package of the registry"),
    ],
)
def test_row_101_a_package_lock_of_a_stranger_names_only_packages_of_the_registry(
    place: str, entry: object, why: str
) -> None:
    table = {"lockfileVersion": 3, "packages": {"": {"dependencies": {"a": "1"}}, place: entry}}
    with pytest.raises(PackageError) as error:
        checked_lock(table, WHAT)
    assert why in " ".join(error.value.__notes__)
    if "configured" not in why:
        lock = {"format": 1, "python": "3.11", "platform": "", "made": "", "requirements": [], "packages": []}
        with pytest.raises(ConfigError, match="not a lock of packages"):
            parse_lock(json.dumps({**lock, "node": table}).encode(), "a test")


@pytest.mark.parametrize("table", [None, [], {}, {"packages": []}, {"packages": {}}, {"packages": {"": 1}}])
def test_what_is_no_package_lock_is_refused(table: object) -> None:
    with pytest.raises(PackageError):
        checked_lock(table, WHAT)


def test_requirements_that_name_a_place_of_their_own_are_none() -> None:
    assert node_requirement("docx", "^9.0.0") == "npm:docx@^9.0.0"
    assert node_requirement("@scope/a", "") == "npm:@scope/a"
    assert node_requirement("a", "*") == "npm:a"
    for name, spec in [("a", "git+https://x"), ("a", "file:../a"), ("a", "npm:b@1"), ("../a", "1"), ("a b", "1")]:
        assert node_requirement(name, spec) is None


@pytest.mark.slow
def test_where_a_lock_says_a_package_was_is_not_asked(registry: LocalRegistry, cache: Path, tmp_path: Path) -> None:
    """Seen: a stranger's package-lock named another host, or another package's file with its hash."""
    registry.add("alpha")
    registry.add("evil")
    lock = json.loads(locked(registry, cache, "npm:alpha").node)
    evil = registry.documents["evil"]["versions"]["1.0.0"]["dist"]
    entry = lock["packages"]["node_modules/alpha"]
    with serving(LocalRegistry()) as other:
        entry |= {"resolved": f"{other.url}/files/evil-1.0.0.tgz", "integrity": evil["integrity"]}
        known = json.dumps(lock).encode()
        with pytest.raises(PackageError, match="what the registry sent is not what was locked"):
            prepared(locked(registry, cache, "npm:alpha", node_lock=known), registry, cache)
        assert other.requests == []


@pytest.mark.slow
def test_the_lock_of_one_skill_is_not_for_another_one(
    registry: LocalRegistry, cache: Path, make_skill: MakeSkill
) -> None:
    """Seen: what one skill's package-lock chose was kept for every skill with the same requirements."""
    registry.add("alpha", "1.0.0")
    old = locked(registry, cache, "npm:alpha@^1").node
    registry.add("alpha", "1.1.0")
    manifest = json.dumps({"dependencies": {"alpha": "^1"}})
    first = opened(make_skill("first", files={"package.json": manifest, "package-lock.json": old}))
    honest = opened(make_skill("honest", files={"package.json": manifest}))
    assert asked(registry, cache, first).lock.packages[0].version == "1.0.0"
    install = SkillEnvironments(Dependencies("install", npm_registry=registry.url, cache=cache))
    assert install.environment_for(first) is not None
    assert asked(registry, cache, honest).lock.packages[0].version == "1.1.0"


@pytest.mark.slow
def test_an_alias_and_what_a_package_brings_along_are_installed(registry: LocalRegistry, cache: Path) -> None:
    registry.add("beta")
    registry.add("alpha", dependencies={"beta-cjs": "npm:beta@^1.0.0"}, code="module.exports = require('beta-cjs');\n")
    lock = locked(registry, cache, "npm:alpha")
    assert [one.name for one in lock.packages] == ["npm:alpha", "npm:beta"]
    assert prepared(lock, registry, cache) is not None


def bundling(registry: LocalRegistry, cache: Path, *bundled: str) -> Lock:
    """A stranger's lock: alpha, and inside of it evil, which it says to come in alpha's own archive."""
    for name in {"evil", "alpha"} - registry.documents.keys():
        registry.add(name)
    lock = locked(registry, cache, "npm:alpha")
    table = json.loads(lock.node)
    table["packages"]["node_modules/alpha"] |= {"bundleDependencies": list(bundled), "dependencies": {"evil": "1.0.0"}}
    table["packages"]["node_modules/alpha/node_modules/evil"] = {"version": "1.0.0", "inBundle": True}
    return replace(lock, node=json.dumps(table))


def test_row_491_nothing_is_fetched_without_a_hash_that_no_package_brings(registry: LocalRegistry, cache: Path) -> None:
    """Seen: the question showed alpha alone, and evil came from the registry with whatever bytes that had."""
    lock = bundling(registry, cache, "other")
    with pytest.raises(PackageError) as error:
        prepared(lock, registry, cache)
    assert "it says that it comes in a package, and none brings it" in " ".join(error.value.__notes__)
    assert whole_folders(cache) == []
    assert prepared(bundling(registry, cache, "evil"), registry, cache) is not None  # npm leaves that to the archive
    assert registry.requests.count("/files/evil-1.0.0.tgz") == 1


def test_row_492_a_long_path_in_a_lock_takes_no_time() -> None:
    """Seen: 4 million characters took a thread five minutes, at each call."""
    place = "node_modules/a/" * 30_000 + "node_modules/b"
    table = {"packages": {"": {}, "node_modules/a": GOOD, place: {"version": "1.0.0", "inBundle": True}}}
    began = time.thread_time()
    with pytest.raises(PackageError):
        checked_lock(table, WHAT)
    assert time.thread_time() - began < 1


@pytest.mark.slow
def test_row_494_without_a_question_no_lock_of_a_stranger_gets_past_the_delay(
    registry: LocalRegistry, cache: Path, make_skill: MakeSkill, tmp_path: Path
) -> None:
    """Seen: a release of a minute ago was installed, because the skill's own lock names it."""
    registry.add("alpha", "1.0.0")
    registry.add("alpha", "1.1.0")
    registry.documents["alpha"]["time"] = {"1.0.0": "2020-01-01T00:00:00Z", "1.1.0": "2026-01-01T00:00:00Z"}
    new = locked(registry, cache, "npm:alpha@^1")
    manifest = json.dumps({"dependencies": {"alpha": "^1"}})
    settings = Dependencies(
        "install", npm_registry=registry.url, cache=cache, exclude_newer=datetime(2025, 1, 1, tzinfo=UTC)
    )
    for number, files in enumerate(({}, {"package-lock.json": new.node}, {"adk-skills.lock": new.text()})):
        skill = opened(make_skill(f"s{number}", files={"package.json": manifest, "run.js": "", **files}))
        environment = SkillEnvironments(settings).environment_for(skill)
        assert environment is not None
        assert run(environment, tmp_path, "a.js", "console.log(require('alpha'))") == "alpha 1.0.0\n"


@pytest.mark.slow
def test_no_other_folder_and_no_address_of_a_dependency_is_used(
    registry: LocalRegistry, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: npm took the temporary folder's package.json for a workspace, and fetched what a dependency named."""
    registry.add("alpha")
    with serving(LocalRegistry()) as other:
        (tmp_path / "shared").mkdir()
        (tmp_path / "shared" / "package.json").write_text('{"workspaces": ["adk-skills-npm-*"]}')
        (tmp_path / "shared" / ".npmrc").write_text(f"registry={other.url}/\n")
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "shared"))
        lock = locked(registry, cache, "npm:alpha")
        assert [one.name for one in lock.packages] == ["npm:alpha"]
        for address in (f"{other.url}/x.tgz", f"git+{other.url}/x.git"):
            registry.add("far", dependencies={"x": address})
            with pytest.raises(PackageError):
                locked(registry, cache, "npm:far")
        assert other.requests == []
