#!/usr/bin/env python3
"""Builds a release into dist/ and checks it. Nothing is uploaded: .github/workflows/release.yml does that, for a tag.

    tools/release.py                    rehearse: build and check; the notes may be those of "Unreleased"
    tools/release.py --final            as CI runs it: the tag, the changelog's section and every Python must be there
    tools/release.py --python 3.12      install on this Python only (repeatable)

The version is ``__version__`` in src/adk_skills_agent/__init__.py and nowhere else. dist/ then has the wheel, the
source archive, RELEASE_NOTES.md, an SBOM of what an installation brings (CycloneDX), and SHA256SUMS. dist/ is replaced
only when every check has passed. Needs uv (.venv/bin/uv) and PyPI.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Sequence
from email.parser import BytesParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "adk_skills_agent"
PYTHONS = ("3.11", "3.12", "3.13")
TWINE, CYCLONEDX = "twine>=6,<8", "cyclonedx-bom>=7,<8"
LARGEST_WHEEL = 5_000_000
"""Bytes. The wheel has 1.3 MB; more means that something came along that does not belong."""
LARGEST_INSTALLATION = 150_000_000
"""Bytes of site-packages without extras (issue 17)."""
NOT_IN_A_WHEEL = re.compile(
    r"(^|/)(__pycache__|tests?|\.git|\.venv|node_modules)(/|$)|\.(pyc|pyo|so|orig|rej|swp)$|(^|/)(\.env|id_rsa|\.pypirc)$"
)


class ReleaseError(Exception):
    """A check that did not pass: what, where, what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, check, and put the result into the folder of the release."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--final", action="store_true", help="demand the tag, the changelog's section, every Python")
    parser.add_argument("--python", action="append", choices=PYTHONS, help="install on this one only (repeatable)")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the release (default: dist)")
    options = parser.parse_args(arguments)
    out: Path = options.out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as name:
        folder = Path(name) / "release"
        try:
            release(folder, Path(name), options.python or PYTHONS, final=options.final)
            _replace(folder, out, Path(name))
        except ReleaseError as error:
            print(f"release: {error}", file=sys.stderr)
            return 1
        except subprocess.CalledProcessError as error:
            said = (error.stderr or error.stdout or "").strip()
            print(f"release: {' '.join(map(str, error.cmd))} ended with {error.returncode}\n{said}", file=sys.stderr)
            return 1
    print(f"release: {out} has {', '.join(sorted(path.name for path in out.iterdir()))}")
    return 0


def release(folder: Path, work: Path, pythons: Iterable[str], *, final: bool) -> None:
    """Make every file of the release in an empty folder, and check it.

    Args:
        folder: Is made; gets the files.
        work: For environments and the like.
        pythons: Versions of Python to install on, as ``3.12``.
        final: Whether what only a release has is demanded: tag, changelog section, all of the Pythons.

    Raises:
        ReleaseError: A check did not pass.
        subprocess.CalledProcessError: A program failed.
    """
    name = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    version = read_version(ROOT)
    notes, is_section = changelog_section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if final:
        _check_final(version, is_section=is_section)
    elif not is_section:
        _say(f'CHANGELOG.md has no section "## {version}" yet: the notes are those of "Unreleased"')
    folder.mkdir()
    uv = _uv()
    # The wheel is built from the source archive, so that an incomplete archive fails here and not at a distributor's.
    _run([uv, "build", "--quiet", "--out-dir", folder, ROOT], env={"SOURCE_DATE_EPOCH": _commit_time()})
    (folder / ".gitignore").unlink(missing_ok=True)  # uv writes one, so that dist/ is not committed
    wheel, archive = _only(folder.glob("*.whl"), "wheel"), _only(folder.glob("*.tar.gz"), "source archive")
    check_wheel(wheel, name, version, ROOT / "src" / PACKAGE)
    check_archive(archive)
    _say(f"built {wheel.name} ({wheel.stat().st_size:,} bytes) and {archive.name} ({archive.stat().st_size:,} bytes)")
    _run([uv, "tool", "run", "--from", TWINE, "twine", "check", "--strict", wheel, archive])
    _say("twine check: passed")
    sbom = folder / f"{name}-{version}.cdx.json"
    skipped = []
    for python in pythons:
        found = find_python(uv, python)
        if found is None:
            skipped.append(python)
            _say(f"Python {python}: skipped, it is not here (uv python install {python})")
            continue
        environment = _install(uv, found, wheel, work / f"environment-{python}")
        size = check_installation(environment, version, work)
        _say(f"Python {python}: installs, {size / 1e6:.0f} MB, and works")
        if not sbom.exists():
            write_sbom(uv, environment, sbom, name, version)
            _say(f"{sbom.name}: the software bill of materials, of Python {python}")
    if not sbom.exists():
        raise ReleaseError(f"None of the Pythons {', '.join(pythons)} is here. Install one: uv python install 3.12")
    if final and skipped:
        raise ReleaseError(f"--final: not installed on {', '.join(skipped)}. uv python install {' '.join(skipped)}")
    (folder / "RELEASE_NOTES.md").write_text(notes, encoding="utf-8")
    files = sorted(path for path in folder.iterdir())
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (folder / "SHA256SUMS").write_text(sums, encoding="utf-8")


def read_version(root: Path) -> str:
    """The version: ``__version__`` of the package, which the build reads, too.

    Raises:
        ReleaseError: It is not there, or no version.
    """
    place = root / "src" / PACKAGE / "__init__.py"
    found = re.findall(r'^__version__ = "([^"]+)"$', place.read_text(encoding="utf-8"), re.MULTILINE)
    if len(found) != 1 or not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc|\.dev)\d+)?", found[0]):
        raise ReleaseError(f'{place}: write one line __version__ = "1.2.3" (now: {found})')
    return str(found[0])


def changelog_section(text: str, version: str) -> tuple[str, bool]:
    """The notes of a version, and whether they are its own section rather than "Unreleased".

    Raises:
        ReleaseError: There is neither, or it is empty.
    """
    sections: dict[str, str] = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        sections[title.split(" - ")[0].strip().strip("[]")] = body.strip()
    for title in (version, "Unreleased"):
        if sections.get(title):
            return sections[title] + "\n", title == version
    raise ReleaseError(f'CHANGELOG.md has no section "## {version}" or "## Unreleased" with text. Write what changed.')


def check_wheel(wheel: Path, name: str, version: str, source: Path) -> None:
    """Look into a wheel: metadata, every module of the source, the examples, and nothing else.

    Args:
        wheel: The file.
        name: The distribution's name.
        version: Its version.
        source: The folder of the package, whose modules must all be there.

    Raises:
        ReleaseError: Something is missing, too much, or wrong.
    """
    with zipfile.ZipFile(wheel) as archive:
        if (broken := archive.testzip()) is not None:
            raise ReleaseError(f"{wheel.name}: {broken} is damaged. Build again.")
        names = set(archive.namelist())
        _check_names(wheel, names)
        info = next((one.partition("/")[0] for one in names if one.endswith(".dist-info/METADATA")), "")
        if not info:
            raise ReleaseError(f"{wheel.name} has no METADATA.")
        metadata = BytesParser().parsebytes(archive.read(f"{info}/METADATA"))
        entry_points = archive.read(f"{info}/entry_points.txt").decode() if f"{info}/entry_points.txt" in names else ""
    said = {"Name": name, "Version": version, "License-Expression": "Apache-2.0", "Requires-Python": ">=3.11"}
    for field, wanted in said.items():
        if metadata[field] != wanted:
            raise ReleaseError(f"{wheel.name}: {field} is {metadata[field]!r}, not {wanted!r}. See pyproject.toml.")
    if metadata["Description-Content-Type"] is None or len(str(metadata.get_payload())) < 1_000:
        raise ReleaseError(f"{wheel.name} has no description for PyPI. See readme in pyproject.toml.")
    if f"adk-skills = {PACKAGE}.cli:program" not in entry_points:
        raise ReleaseError(
            f"{wheel.name} does not bring the command adk-skills. See project.scripts in pyproject.toml."
        )
    tracked = {f"{PACKAGE}/{path}" for path in _source_files(source)}
    brought = {f"{PACKAGE}/_examples/skills/csv-report/SKILL.md", f"{PACKAGE}/_images/adk-code-executor/Dockerfile"}
    wanted_files = tracked | brought | {f"{info}/licenses/LICENSE"}
    if missing := sorted(wanted_files - names):
        raise ReleaseError(f"{wheel.name} lacks {', '.join(missing[:5])} ({len(missing)} files).")
    places = (f"{PACKAGE}/_examples/", f"{PACKAGE}/_images/", f"{info}/")
    foreign = sorted(one for one in names - tracked if not one.startswith(places))
    if foreign:
        raise ReleaseError(f"{wheel.name} has files that are not in the source: {', '.join(foreign[:5])}.")
    if wheel.stat().st_size > LARGEST_WHEEL:
        raise ReleaseError(
            f"{wheel.name} has {wheel.stat().st_size:,} bytes, more than {LARGEST_WHEEL:,}. What came in?"
        )


def check_archive(archive: Path) -> None:
    """Look into a source archive.

    Raises:
        ReleaseError: Something is missing or does not belong.
    """
    with tarfile.open(archive) as content:
        names = {member.name.partition("/")[2] for member in content.getmembers() if member.isfile()}
    _check_names(archive, names)
    wanted = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", f"src/{PACKAGE}/py.typed", "PKG-INFO"}
    if missing := sorted(wanted - names):
        raise ReleaseError(f"{archive.name} lacks {', '.join(missing)}. See tool.hatch.build.targets.sdist.")


def _check_names(file: Path, names: Iterable[str]) -> None:
    wrong = sorted(name for name in names if NOT_IN_A_WHEEL.search(name))
    if wrong:
        raise ReleaseError(f"{file.name} has {', '.join(wrong[:5])}, which nobody should install. Remove it and build.")


def _source_files(source: Path) -> list[str]:
    return [
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    ]


def find_python(uv: str, version: str) -> Path | None:
    """An interpreter of this version, or None: one of uv, of PATH, or of pyenv."""
    found = subprocess.run(
        [uv, "python", "find", "--no-project", version], capture_output=True, text=True, check=False
    )  # fmt: skip
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [found.stdout.strip(), shutil.which(f"python{version}") or ""]
    candidates += [str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python{version}"))]
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, candidates):
        said = subprocess.run([candidate, "-c", asked], capture_output=True, text=True, check=False)
        if said.returncode == 0 and said.stdout.strip() == version:
            return Path(candidate)
    return None


def _install(uv: str, python: Path, wheel: Path, environment: Path) -> Path:
    _run([uv, "venv", "--quiet", "--python", python, environment])
    _run([uv, "pip", "install", "--quiet", "--python", environment / "bin" / "python", wheel])
    return environment


def check_installation(environment: Path, version: str, work: Path) -> int:
    """Use what was installed as a newcomer would, away from the checkout.

    Args:
        environment: A virtual environment with the wheel and nothing else.
        version: What it must say it is.
        work: A folder for files.

    Returns:
        The size of site-packages in bytes.

    Raises:
        ReleaseError: It does not do what it should.
    """
    place = work / f"user-of-{environment.name}"
    place.mkdir()
    program, python = environment / "bin" / "adk-skills", environment / "bin" / "python"
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(place)}

    def said(*command: object) -> str:
        return _run(command, cwd=place, env=clean, only_env=True)

    if (shown := said(program, "--version").strip()) != f"adk-skills {version}":
        raise ReleaseError(f"{environment.name}: adk-skills --version says {shown!r}, not {version!r}.")
    names = "import adk_skills_agent as a; [getattr(a, name) for name in a.__all__]; print(a.__file__)"
    if str(environment.resolve()) not in str(Path(said(python, "-c", names).strip()).resolve()):
        raise ReleaseError(f"{environment.name}: Python imports another {PACKAGE} than the one that was installed.")
    said(program, "new", "word-count")
    said(program, "validate", "word-count")
    said(program, "eval", "word-count", "--dry-run")
    counted = said(
        program, "run", "./word-count", "word_count.py", "-i", "word-count/evals/notes.txt",
        "--min-isolation", "process", "--", "notes.txt",
    )  # fmt: skip
    if '"apple": 3' not in counted:
        raise ReleaseError(f"{environment.name}: the script of a new skill printed {counted!r}.")
    said(program, "demo")
    packages = next((environment / "lib").glob("python*/site-packages"))
    # Bytecode is made as modules are used; what is downloaded and unpacked is what is measured.
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc")
    if size > LARGEST_INSTALLATION:
        raise ReleaseError(f"{environment.name}: {size:,} bytes, more than {LARGEST_INSTALLATION:,}. Which dependency?")
    return size


def write_sbom(uv: str, environment: Path, sbom: Path, name: str, version: str) -> None:
    """The software bill of materials of an installation, as CycloneDX JSON whose root is the distribution.

    Raises:
        ReleaseError: It does not describe this release.
    """
    # The tool takes the root from a pyproject.toml with a version in it; ours is in the package.
    described = sbom.parent.parent / "pyproject-of-the-sbom.toml"
    described.write_text(f'[project]\nname = "{name}"\nversion = "{version}"\n', encoding="utf-8")
    command = [
        uv, "tool", "run", "--from", CYCLONEDX, "cyclonedx-py", "environment", environment / "bin" / "python",
        "--pyproject", described, "--mc-type", "library", "--output-reproducible", "--of", "JSON", "-o", sbom,
    ]  # fmt: skip
    _run(command)
    content = json.loads(sbom.read_text(encoding="utf-8"))
    root = content.get("metadata", {}).get("component", {})
    names = {one["name"] for one in content.get("components", ())}
    if (root.get("name"), root.get("version")) != (name, version) or "google-adk" not in names:
        raise ReleaseError(
            f"{sbom.name} is about {root.get('name')} {root.get('version')} with {len(names)} components."
        )


def _check_final(version: str, *, is_section: bool) -> None:
    if not is_section:
        raise ReleaseError(f'--final: CHANGELOG.md has no section "## {version}". Rename "Unreleased" and date it.')
    tag = os.environ.get("GITHUB_REF_NAME") or _git("describe", "--exact-match", "--tags", "HEAD")
    if tag != f"v{version}":
        raise ReleaseError(f"--final: the tag is {tag or 'missing'}, the version {version}. Tag the commit v{version}.")
    if changed := _git("status", "--porcelain"):
        raise ReleaseError(f"--final: not committed: {', '.join(changed.split()[1::2][:5])}. Commit it or put it away.")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False, cwd=ROOT)  # noqa: S607
    return done.stdout.strip() if done.returncode == 0 else ""


def _commit_time() -> str:
    """Seconds since 1970 of the commit: the same source gives the same bytes."""
    return _git("log", "-1", "--format=%ct") or "1700000000"


def _uv() -> str:
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise ReleaseError("uv is not here. make setup installs it into .venv.")
    return found


def _only(found: Iterable[Path], what: str) -> Path:
    paths = list(found)
    if len(paths) != 1:
        raise ReleaseError(f"The build made {len(paths)} files of the kind {what}, not one.")
    return paths[0]


def _run(
    command: Sequence[object], *, cwd: Path = ROOT, env: dict[str, str] | None = None, only_env: bool = False
) -> str:
    # A company's proxy has a certificate that the system trusts and uv's own list does not.
    base = {} if only_env else {"UV_SYSTEM_CERTS": "1", **os.environ}
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=True, cwd=cwd, env=base | (env or {})
    )
    return done.stdout


def _replace(new: Path, out: Path, aside: Path) -> None:
    """Put the finished folder in its place; the old one is moved away first and removed with the work folder."""
    if out.exists():
        out.rename(aside / "before")
    new.rename(out)


def _say(text: str) -> None:
    print(f"release: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
