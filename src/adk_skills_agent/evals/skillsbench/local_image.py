"""Building a task's environment without an engine: a simple Dockerfile, interpreted layer by layer in the sandbox.

Each RUN and COPY makes one layer, a folder of what it changed. A layer's name is made of everything it depends on, so
that tasks share what begins alike, and an unchanged task is built once. What pip installed is written down beside the
layer; when the layer has to be made again, pip gets those versions and no others.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import posixpath
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from adk_skills_agent.errors import ConfigError
from adk_skills_agent.evals.skillsbench import base_root
from adk_skills_agent.evals.skillsbench.dockerfile import (
    Instruction,
    Source,
    check_sizes,
    digest_of,
    environment_pairs,
    expanded,
    find_sources,
    parse_dockerfile,
    without_mounts,
    without_skills,
    write_tar,
)
from adk_skills_agent.evals.skillsbench.environment import BuildError, BuiltImage, NotInterpretable
from adk_skills_agent.evals.skillsbench.local_run import PATH, Command, Layers, Limits, run_in_layers
from adk_skills_agent.evals.skillsbench.task import Task, text_of
from adk_skills_agent.evals.skillsbench.user_range import OPEN_TO_PASS, UserRange, make_owned, remove_tree
from adk_skills_agent.evals.skillsbench.verifier_tools import uv_programs

_SHELL = ("/bin/sh", "-c")
_LOCK_FILE = "/run/adk-skills/locked.txt"
_NOTHING_TO_DO = frozenset(
    ("CMD", "ENTRYPOINT", "EXPOSE", "LABEL", "MAINTAINER", "STOPSIGNAL", "HEALTHCHECK", "VOLUME")
)
_ROOT_USERS = frozenset(("root", "0", "root:root", "0:0"))
_LAST_CHARACTERS = 3000
_UV_IMAGE = "ghcr.io/astral-sh/uv"


_PLACE = """set -e
packed=$(mktemp -d)
tar -x -C "$packed" -f -
if [ -n "$3" ]; then find "$packed" -mindepth 1 ! -type l -exec chmod "$3" {} +; fi
if [ "$2" = file ] && [ ! -d "$1" ]; then
  mkdir -p "$(dirname "$1")"
  mv "$packed"/* "$1"
else
  mkdir -p "$1"
  find "$packed" -mindepth 1 -maxdepth 1 -exec cp -a -t "$1" -- {} +
fi
rm -rf "$packed"
"""
"""Only what is copied gets owner and mode; a folder that is there already, like /tmp or /usr/bin, keeps its own."""


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image of local mode: layers below a store, the topmost first."""

    layers: tuple[str, ...]


@dataclass(slots=True)
class _State:
    layers: tuple[str, ...]
    key: str
    env: dict[str, str]
    arguments: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    shell: tuple[str, ...] = _SHELL
    notes: list[str] = field(default_factory=list)
    cached: bool = True

    @property
    def variables(self) -> dict[str, str]:
        """What may be used in an instruction; a variable wins over an argument of its name."""
        return {**self.arguments, **self.env}


async def build_local(
    task: Task,
    store: Path,
    users: UserRange,
    *,
    with_skills: bool,
    rebuild: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> BuiltImage:
    """Interpret a task's Dockerfile.

    Without ``with_skills`` the copies of skills are left out, and their folder is missing from what else is copied.
    ``rebuild`` makes the task's layers anew; others of the same beginning keep theirs.

    Raises:
        NotInterpretable: The Dockerfile needs an engine; says which line and why.
        BuildError: A step failed, or the task's build time was over.
    """
    started = time.monotonic()
    instructions = await asyncio.to_thread(_read, task, with_skills=with_skills)
    own = await asyncio.to_thread(_prepared, store, task.name, rebuild=rebuild)
    builder = _Builder(task, store, users, started + task.limits.build_seconds, with_skills, say)
    state = await builder.base(instructions)
    if own:
        state.key = layer_key(state.key, own)
    for number, instruction in enumerate(instructions, 1):
        say(f"{task.name}: step {number}/{len(instructions)} {instruction.keyword} {instruction.value[:60]}")
        await builder.step(state, instruction)
    return BuiltImage(
        name=f"{task.name}:{state.key[:12]}",
        env=state.env,
        workdir=state.workdir,
        seconds=time.monotonic() - started,
        notes=tuple(state.notes),
        handle=LocalImage(state.layers),
        cached=state.cached,
    )


def not_interpretable(task: Task) -> str | None:
    """Why local mode cannot build a task, as its Dockerfile tells; None when it can try."""
    try:
        instructions = _read(task, with_skills=True)
        base_root.base_of(_image_of(task, instructions))
    except NotInterpretable as error:
        return error.message.removeprefix(f"{task.name}: ")
    return None


def _read(task: Task, *, with_skills: bool) -> tuple[Instruction, ...]:
    """The instructions, checked before anything is made."""
    file = task.environment / "Dockerfile"
    # A task without one is its image as it is.
    text = text_of(file) if file.is_file() else f"FROM {task.settings.image}\n"
    try:
        for one in dict.fromkeys((text, without_mounts(text))):  # what is wrong in both has its own line number
            check_sizes(one)
            instructions = parse_dockerfile(one if with_skills else without_skills(one)[0])
            _check(task, instructions, mounts_are_left=one == without_mounts(text))
    except ConfigError as error:
        raise NotInterpretable(f"{task.name}: {error.message}") from error
    return instructions


def _image_of(task: Task, instructions: tuple[Instruction, ...]) -> str:
    """The image of FROM; arguments before it count for its line alone."""
    arguments: dict[str, str] = {}
    for instruction in instructions:
        if instruction.keyword == "ARG":
            arguments.update(environment_pairs(instruction, arguments))
        if instruction.keyword == "FROM":
            break
    image = expanded(instruction.value, arguments).split()[:1]
    if not image:
        raise NotInterpretable(f"{task.name}: line {instruction.line} names no image.")
    return image[0]


def _prepared(store: Path, name: str, *, rebuild: bool) -> str:
    """Make the store's folders; return what sets a task's layers apart once it was built anew, else nothing."""
    (store / "layers").mkdir(parents=True, exist_ok=True)
    for name_below in ("rebuilt", "roots"):
        (store / name_below).mkdir(exist_ok=True)
    for folder in (store, store / "layers", store / "roots"):
        folder.chmod(OPEN_TO_PASS)
    mark = store / "rebuilt" / name
    if rebuild:
        mark.write_text(uuid.uuid4().hex)
    return mark.read_text() if mark.is_file() else ""


def _check(task: Task, instructions: tuple[Instruction, ...], *, mounts_are_left: bool) -> None:
    """Say what cannot be done before anything is made."""
    if task.unsupported:
        raise NotInterpretable(f"{task.name}: {' '.join(task.unsupported)}")
    bases = [instruction for instruction in instructions if instruction.keyword == "FROM"]
    if not bases:
        raise NotInterpretable(f"{task.name}: the Dockerfile has no FROM.")
    if len(bases) > 1:
        raise NotInterpretable(
            f"{task.name}: line {bases[1].line} begins a second stage, which local mode cannot build."
        )
    for instruction in instructions:
        where = f"{task.name}: line {instruction.line}"
        if instruction.keyword == "ONBUILD":
            raise NotInterpretable(f"{where}: local mode cannot do ONBUILD.")
        if instruction.keyword == "USER" and instruction.value not in _ROOT_USERS:
            raise NotInterpretable(f"{where}: local mode runs as root, not as {instruction.value!r}.")
        if instruction.keyword in {"ENV", "ARG"}:
            environment_pairs(instruction, {})  # says what is wrong
        if instruction.keyword in {"COPY", "ADD"}:
            if "from" in instruction.flags and not _copies_uv(instruction):
                raise NotInterpretable(f"{where}: local mode cannot copy from another image.")
            if any("://" in word or word.startswith("git@") for word in instruction.words):
                raise NotInterpretable(f"{where}: local mode adds no files from the network.")
        mounts = instruction.flags.get("mount", "").split()
        if any(mount.startswith(("type=secret", "type=ssh")) for mount in mounts):
            raise NotInterpretable(f"{where}: local mode has no secrets for a build.")
        for mount in mounts if mounts_are_left else ():
            if "type=cache" in mount or "type=tmpfs" in mount:
                continue
            raise NotInterpretable(f"{where}: local mode cannot mount {mount}. Write COPY for it.")


@dataclass(frozen=True, slots=True)
class _Builder:
    task: Task
    store: Path
    users: UserRange
    deadline: float
    with_skills: bool
    say: Callable[[str], None]

    async def base(self, instructions: tuple[Instruction, ...]) -> _State:
        image = _image_of(self.task, instructions)
        base = base_root.base_of(image)
        notes = [base.note] if base.note else []
        roots = self.store / "roots"
        there = set(roots.iterdir())
        try:
            await base_root.make_root(base, roots, self.users, self._left())
        except BuildError as error:
            instead = base_root.substitute(base)
            if instead is None:
                raise
            notes = [f"{image} is Debian {instead.release} here: {error.message}"]
            base = instead
            await base_root.make_root(base, roots, self.users, self._left())
        state = _State((f"roots/{base.key}",), layer_key(base.key, str(self.users.first)), {"PATH": PATH}, notes=notes)
        state.cached = roots / base.key in there
        if base.python:
            await self._shell_layer(state, base_root.PREPARE_PYTHON, cwd="/")
        return state

    async def step(self, state: _State, instruction: Instruction) -> None:
        keyword = instruction.keyword
        if keyword in {"FROM", "USER"} or keyword in _NOTHING_TO_DO:
            return
        if keyword == "ENV":
            state.env.update(environment_pairs(instruction, state.variables))
        elif keyword == "ARG":
            state.arguments.update(environment_pairs(instruction, state.variables))
        elif keyword == "SHELL":
            state.shell = instruction.json_form or state.shell
        elif keyword == "WORKDIR":
            state.workdir = posixpath.normpath(
                posixpath.join(state.workdir, expanded(instruction.value, state.variables))
            )
            await self._shell_layer(state, f'mkdir -p "{state.workdir}"', cwd="/")
        elif keyword == "RUN":
            await self._run(state, instruction)
        else:
            await self._copy(state, instruction)

    async def _run(self, state: _State, instruction: Instruction) -> None:
        if instruction.heredocs and not instruction.value.split("<<")[0].strip():
            argv = (*state.shell, instruction.heredocs[0].text)
        elif instruction.heredocs:
            documents = "".join(f"{document.text}{document.name}\n" for document in instruction.heredocs)
            argv = (*state.shell, f"{instruction.value}\n{documents}")
        else:
            argv = instruction.json_form or (*state.shell, instruction.value)
        await self._layer(state, argv, f"line {instruction.line}: {instruction.value[:120]}")

    async def _shell_layer(self, state: _State, script: str, cwd: str) -> None:
        await self._layer(state, (*_SHELL, script), script, cwd)

    async def _layer(self, state: _State, argv: tuple[str, ...], what: str, cwd: str = "") -> None:
        cwd = cwd or state.workdir
        key = layer_key(state.key, repr(argv), cwd, repr(sorted(state.variables.items())))
        if not has_layer(self.store, key):
            async with new_layer(self.store, self.users) as new:
                locks = self.store / "locks" / f"{key}.txt"
                files = {_LOCK_FILE: locks.read_bytes()} if locks.is_file() else {}
                env = {"DEBIAN_FRONTEND": "noninteractive", **state.variables}
                if files:
                    env.setdefault("PIP_CONSTRAINT", _LOCK_FILE)
                ran = await run_in_layers(
                    Command(argv, cwd, env, network=True, files=files),
                    Layers(self.store, state.layers, new.top, new.scratch),
                    self.users,
                    Limits(self._left(), max(self.task.limits.memory_bytes, 2 << 30)),
                )
                if ran.timed_out:
                    raise BuildError(
                        f"{self.task.name}: the build took longer than {self.task.limits.build_seconds:g} seconds, "
                        f"at {what}",
                        ran.text[-_LAST_CHARACTERS:],
                    )
                if ran.exit_code != 0:
                    raise BuildError(
                        f"{self.task.name}: a step of the build ended with code {ran.exit_code}: {what}",
                        ran.text[-_LAST_CHARACTERS:],
                    )
                if "pip" in repr(argv) and not locks.is_file():
                    await self._lock(state, new, locks)
                new.keep(key)
            state.cached = False
        state.key = key
        state.layers = (f"layers/{key}/top", *state.layers)

    async def _lock(self, state: _State, new: NewLayer, locks: Path) -> None:
        """Write down what is installed now."""
        async with new_layer(self.store, self.users) as scratch:
            ran = await run_in_layers(
                Command(
                    (*_SHELL, "python3 -m pip freeze --all 2>/dev/null || true"), "/", state.variables, network=False
                ),
                Layers(self.store, (new.top, *state.layers), scratch.top, scratch.scratch),
                self.users,
                Limits(60.0),
            )
        versions = [line for line in ran.text.splitlines() if "==" in line and " @ " not in line]
        if versions:
            locks.parent.mkdir(exist_ok=True)
            aside = locks.with_suffix(f".{uuid.uuid4().hex[:8]}")
            aside.write_text("\n".join(versions) + "\n")
            aside.rename(locks)

    async def _copy(self, state: _State, instruction: Instruction) -> None:
        words = [expanded(word, state.variables) for word in instruction.words]
        if len(words) + len(instruction.heredocs) < 2:
            raise NotInterpretable(f"{self.task.name}: line {instruction.line}: nothing is copied.")
        *sources, target = words
        sources = [source for source in sources if not source.startswith("<<")]
        into = str(PurePosixPath(state.workdir, target)) + (
            "/" if target.endswith("/") or target in {".", "./"} else ""
        )
        if "from" in instruction.flags:
            programs = await uv_programs(self.store)
            found = [Source(programs / source.lstrip("/"), folder=False) for source in sources]
            state.notes.append(f"uv is that of PyPI here, not that of {instruction.flags['from']}.")
        else:
            found = await asyncio.to_thread(
                find_sources, self.task.environment, sources, with_skills=self.with_skills, line=instruction.line
            )
        documents = {
            document.name: expanded(document.text, state.variables) if document.expand else document.text
            for document in instruction.heredocs
        }
        contents = await asyncio.to_thread(digest_of, found)
        single = len(found) + len(documents) == 1 and not into.endswith("/") and not any(one.folder for one in found)
        key = layer_key(state.key, _PLACE, into, str(single), repr(instruction.flags), repr(documents), contents)
        if not has_layer(self.store, key):
            async with new_layer(self.store, self.users) as new:
                packed = await asyncio.to_thread(_packed, found, documents)
                await self._place(state, new, packed, into, single=single, instruction=instruction)
                new.keep(key)
            state.cached = False
        state.key = key
        state.layers = (f"layers/{key}/top", *state.layers)

    async def _place(
        self, state: _State, new: NewLayer, packed: bytes, into: str, *, single: bool, instruction: Instruction
    ) -> None:
        """Unpack inside the environment, so that links of the image lead where they do in it."""
        kind, mode = "file" if single else "folder", instruction.flags.get("chmod", "")
        ran = await run_in_layers(
            Command((*_SHELL, _PLACE, "copy", into, kind, mode), "/", {}, network=False, stdin=packed),
            Layers(self.store, state.layers, new.top, new.scratch),
            self.users,
            Limits(self._left()),
        )
        if ran.exit_code != 0:
            raise BuildError(
                f"{self.task.name}: what line {instruction.line} copies could not be put there.",
                ran.text[-_LAST_CHARACTERS:],
            )

    def _left(self) -> float:
        return max(1.0, self.deadline - time.monotonic())


def _copies_uv(instruction: Instruction) -> bool:
    """The one image that is known by what it holds: nothing but these two programs."""
    image = instruction.flags["from"].partition("@")[0].partition(":")[0]
    return image == _UV_IMAGE and set(instruction.words[:-1]) <= {"/uv", "/uvx"}


def _packed(sources: Sequence[Source], documents: Mapping[str, str]) -> bytes:
    with tempfile.TemporaryFile() as file:
        write_tar(file, sources, documents)
        file.seek(0)
        return file.read()


@dataclass(slots=True)
class NewLayer:
    """A layer in the making; ``top`` and ``scratch`` are names below the store."""

    store: Path
    name: str
    kept: bool = False

    @property
    def top(self) -> str:
        """The folder that takes what is written."""
        return f"{self.name}/top"

    @property
    def scratch(self) -> str:
        """The kernel's folder beside it."""
        return f"{self.name}/scratch"

    def keep(self, key: str) -> None:
        """Give it its lasting name; when another runner was faster, theirs stays."""
        with contextlib.suppress(OSError):
            (self.store / self.name / "done").touch()
            (self.store / self.name).rename(layer_folder(self.store, key))
            self.kept = True


@contextlib.asynccontextmanager
async def new_layer(store: Path, users: UserRange, below: str = "layers") -> AsyncIterator[NewLayer]:
    """An empty layer; it is removed at the end unless it was kept."""
    layer = NewLayer(store, f"{below}/new-{os.getpid()}-{uuid.uuid4().hex[:12]}")
    folder = store / layer.name
    await asyncio.to_thread(_make_open, folder)
    try:
        await make_owned(folder, ["top", "scratch"], users)
        yield layer
    finally:
        if not layer.kept:
            await asyncio.shield(remove_tree(folder, users))


def _make_open(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.parent.chmod(OPEN_TO_PASS)


def layer_folder(store: Path, key: str) -> Path:
    """Where the layer of that key is, or would be."""
    return store / "layers" / key


def has_layer(store: Path, key: str) -> bool:
    """Whether it is complete."""
    return (layer_folder(store, key) / "done").is_file()


def layer_key(*parts: str) -> str:
    """A name made of everything the layer depends on."""
    total = hashlib.sha256()
    for part in parts:
        total.update(f"{len(part)}:{part}".encode())
    return total.hexdigest()[:40]
