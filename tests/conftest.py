"""Fixtures for every layer: real folders on disk, a corpus when it is there, nothing of the user's home."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import re
import shutil
import signal
import ssl
import sys
import tempfile
import weakref
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

import preloaded
from adk_skills_agent.sandbox.files.removal import temporary_prefix
from adk_skills_agent.sandbox.local.sandbox import LocalSandbox
from backend_matrix import Recorder

# A hook: prints at the end which isolation levels were tested.
from level_table import pytest_terminal_summary as pytest_terminal_summary
from level_table import skip_where_filters_hang

REPOSITORY = Path(__file__).resolve().parents[1]


SLOW_TEST_SECONDS = 3600

# What lands a change must not depend on luck: the same examples every time. make test-slow looks for new ones.
settings.register_profile("repeatable", derandomize=True, max_examples=30, deadline=None)
settings.register_profile("searching", max_examples=600, deadline=None)
settings.load_profile("repeatable")

_constants_of_modules = providers._get_local_constants


def _constants() -> providers.Constants:
    """Of no module: else the examples are others as soon as a test before has imported one more.

    To read them is also half a second of computing for each worker.
    """
    if settings.get_current_profile_name() == "repeatable":
        return providers._local_constants
    return _constants_of_modules()


providers._get_local_constants = _constants


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # nohup or "&": the tests of Ctrl-C would send it in vain
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.umask(0o022)  # an owner with 077 would shut the users that scripts run as out of what the tests make
    config.pluginmanager.register(Recorder())
    if not hasattr(config, "workerinput") and sys.platform == "linux":  # one server for all workers
        serving = preloaded.served()
        serving.__enter__()
        config.add_cleanup(lambda: serving.__exit__(None, None, None) and None)


@pytest.hookimpl(trylast=True)  # conftest.py of folders below mark slow tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_where_filters_hang(items)
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TEST_SECONDS))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """While tests are collected nothing becomes garbage, and to look for it is a fifth of that time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


_someone_else = LocalSandbox()


@pytest.fixture(autouse=True)
def nothing_waits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No sandbox is started for a second run that never comes, and what makes them is not made anew for each test.

    Tests marked ``warm_pool`` are about those.
    """
    in_use: weakref.WeakSet[LocalSandbox] = weakref.WeakSet()
    monkeypatch.setattr("adk_skills_agent.sandbox.local.sandbox._in_use", in_use)
    if not any(request.node.get_closest_marker(name) for name in ("slow", "warm_pool")):
        no_pool = SimpleNamespace(take=lambda *_: None, refill=lambda: None)
        monkeypatch.setattr("adk_skills_agent.sandbox.local.levels.namespaces.warm_pool", lambda: no_pool)
        in_use.add(_someone_else)


@pytest.fixture
def make_skill(tmp_path: Path) -> Callable[..., Path]:
    """Write a skill folder: ``make_skill("csv", files={"scripts/run.py": "..."})`` returns its path."""

    def write(
        name: str = "sample",
        *,
        description: str = "Does a thing. Use it for tests.",
        body: str = "# Sample\n\nDo the thing.\n",
        files: dict[str, str | bytes] | None = None,
        root: Path | None = None,
    ) -> Path:
        folder = (root or tmp_path / "skills") / name
        folder.mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: {description}\n---\n\n{body}"
        (folder / "SKILL.md").write_text(text, encoding="utf-8")
        for path, content in (files or {}).items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)
        return folder

    return write


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real skills; tests that need it skip without it."""
    folder = Path(os.environ.get("ADK_SKILLS_CORPUS", REPOSITORY.parent / "shared" / "corpus"))
    if not (folder / "layout.jsonl").is_file():
        pytest.skip(f"no corpus of real skills at {folder}")
    return folder


@pytest.fixture(autouse=True)
def only_new_objects() -> Iterator[None]:
    """What the garbage collector looks at is this test's own.

    Many tests collect, so that a forgotten descriptor or folder is found in the test that forgot it; google-adk's
    modules are half a second of looking each time.
    """
    gc.freeze()
    yield
    gc.unfreeze()


_numbers = itertools.count()


def _new_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """As ``mktemp``, which looks at the folders of all tests before it for a number, and links to the newest."""
    folder = factory.getbasetemp() / f"{name}-{next(_numbers)}"
    folder.mkdir(0o700)
    return folder


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In place of pytest's: a folder of its own for every test."""
    return _new_folder(tmp_path_factory, re.sub(r"\W", "_", request.node.name)[:30])


@pytest.fixture(autouse=True)
def private_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own for every test: caches, trust lists and user skills never touch the real one."""
    home = _new_folder(tmp_path_factory, "home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def signals_by_default() -> Iterator[None]:
    """Programs that a test starts end at SIGHUP, also where the tests run under ``nohup``."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="session")
def one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import certifi

    path = tmp_path_factory.mktemp("certificates") / "one.pem"
    first, end, _ = Path(certifi.where()).read_text(encoding="utf-8").partition("-----END CERTIFICATE-----\n")
    path.write_text(first[first.index("-----BEGIN") :] + end)
    return path


@pytest.fixture(autouse=True)
def few_certificates(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of google-genai reads all trusted certificates three times: 80 ms, and it calls a loopback server.

    Slow tests reach real servers, and keep them.
    """
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setenv("SSL_CERT_FILE", str(request.getfixturevalue("one_certificate")))


@pytest.fixture(scope="session", autouse=True)
def one_context_for_each_certificate() -> Iterator[None]:
    """A client of google-genai makes three contexts, which take 10 ms with one certificate: all clients share them."""
    client = sys.modules.get("google.genai._api_client")  # which the tests that have one imported
    with pytest.MonkeyPatch.context() as patch:
        if client is not None:
            shared = SimpleNamespace(**vars(ssl))
            shared.create_default_context = functools.cache(ssl.create_default_context)
            patch.setattr(client, "ssl", shared)
        yield


@pytest.fixture(scope="session", autouse=True)
def sandbox_cache() -> Iterator[Path]:
    """A cache of skill copies for this test process alone, where also a run with another user id can reach it."""
    folder = Path(tempfile.mkdtemp(prefix=temporary_prefix("test-cache")))
    folder.chmod(0o711)
    before = os.environ.get("ADK_SKILLS_SANDBOX_CACHE")
    os.environ["ADK_SKILLS_SANDBOX_CACHE"] = str(folder / "skills")
    yield folder / "skills"
    if before is None:
        del os.environ["ADK_SKILLS_SANDBOX_CACHE"]
    else:
        os.environ["ADK_SKILLS_SANDBOX_CACHE"] = before
    for path in folder.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(folder)
