"""Updates: what the source has now, what is installed, and what it was; merged, or stopped where they cannot be.

Local edits are never overwritten: a file that only one side changed is that side's, a text that both changed is merged
by ``git merge-file``, and what remains is a conflict, which stops the update of that skill before anything is written.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from adk_skills_agent.errors import ConfigError, SkillsError, SourceError
from adk_skills_agent.sandbox import temporary_prefix
from adk_skills_agent.sources.fetch import FetchedSkill, addresses_of, fetch_skills, whole_source
from adk_skills_agent.sources.git import checkout, newest_commit
from adk_skills_agent.sources.lock_file import LockedSkill
from adk_skills_agent.sources.origin import Origin, OriginKind
from adk_skills_agent.sources.project import Project, compare
from adk_skills_agent.sources.tree import NOT_COMPARED, SkillTree, TreeFile, read_tree, tree_of

if TYPE_CHECKING:
    from adk_skills_agent.sources.signatures import SignaturePolicy

Preference = Literal["ours", "theirs"]
MAX_DIFF_LINES = 400
"""Of one file; what follows is counted."""
_MOST_COMPARED = 2_000  # lines of a change, half a second at most
_CONTEXT = 3
_HUNK = re.compile(r"([-+])(\d+)")


class UpdateState(StrEnum):
    """How an installed skill stands to its source."""

    CURRENT = "current"
    EDITED = "edited"
    UPDATE = "update"
    MERGE = "merge"
    CONFLICT = "conflict"
    GONE = "gone"
    UNAVAILABLE = "unavailable"
    UNREADABLE = "unreadable"
    RENAMED = "renamed"


@dataclass(frozen=True)
class SkillUpdate:
    """One installed skill, its source now, and what would come of both."""

    locked: LockedSkill
    base: SkillTree  # the tree the source had when it was locked
    ours: SkillTree
    theirs: FetchedSkill | None  # what the source has now; None when it has the skill no more
    merged: SkillTree | None  # what would be installed; None where that cannot be said
    conflicts: tuple[str, ...] = ()  # files that both sides changed, in ways that exclude one another
    problem: str = ""  # why its source could not be asked, or what it gave is refused; the trees are empty then
    kind: UpdateState = UpdateState.UNAVAILABLE  # of the problem

    @property
    def name(self) -> str:
        """The skill."""
        return self.locked.name

    @property
    def edited(self) -> tuple[str, ...]:
        """The files with local edits."""
        return changed_files(self.base, self.ours)

    @property
    def changed(self) -> tuple[str, ...]:
        """The files that the source changed."""
        return changed_files(self.base, self.theirs.tree) if self.theirs is not None else ()

    @property
    def state(self) -> UpdateState:
        """In one word."""
        if self.problem:
            return self.kind
        if self.theirs is None:
            return UpdateState.GONE
        if self.conflicts:
            return UpdateState.CONFLICT
        if not self.changed:
            return UpdateState.CURRENT if self.ours.digest == self.locked.tree else UpdateState.EDITED
        return UpdateState.MERGE if self.edited else UpdateState.UPDATE

    def diff(self) -> Iterator[str]:
        """What would change in the installed skill, for people: instructions first, then programs, then the rest."""
        after = self.merged or (self.theirs.tree if self.theirs is not None else self.ours)
        paths = changed_files(self.ours, after)
        for title, wanted in (("Instructions", _is_text), ("Scripts", _is_code), ("Other files", _is_other)):
            chosen = [path for path in paths if wanted(path)]
            if chosen:
                yield f"# {title} of {self.name}"
            for path in chosen:
                yield from _file_diff(path, self.ours.files.get(path), after.files.get(path))


def changed_files(before: SkillTree, after: SkillTree) -> tuple[str, ...]:
    """The files that differ in bytes or mode, sorted."""
    return tuple(
        path
        for path in sorted({*before.files, *after.files})
        if before.digests.get(path) != after.digests.get(path)
        or (path in before.executables) != (path in after.executables)
    )


def _is_text(path: str) -> bool:
    return path.lower().endswith((".md", ".txt", ".mdx", ".rst"))


def _is_code(path: str) -> bool:
    return not _is_text(path) and (path.startswith("scripts/") or path.lower().endswith((".py", ".sh", ".js", ".ts")))


def _is_other(path: str) -> bool:
    return not _is_text(path) and not _is_code(path)


def _file_diff(path: str, before: TreeFile | None, after: TreeFile | None) -> Iterator[str]:
    old, new = ((file.data if file is not None else b"") for file in (before, after))
    if b"\0" in old[:8192] or b"\0" in new[:8192]:
        yield f"{path}: binary, {f'{len(new):,} bytes' if after is not None else 'removed'}"
        return
    if before is not None and after is not None and before.executable != after.executable:
        yield f"{path}: {'may' if after.executable else 'may not'} be executed now"
    lines = unified_diff(path, *(data.decode("utf-8", "replace").splitlines() for data in (old, new)))
    yield from lines[:MAX_DIFF_LINES]
    if len(lines) > MAX_DIFF_LINES:
        yield f"... {len(lines) - MAX_DIFF_LINES:,} more lines of {path}"


def unified_diff(path: str, old: list[str], new: list[str]) -> list[str]:
    """A unified diff; of many changed lines all are told as replaced, since to compare them takes their square."""
    begin = _equal(old, new)
    end = _equal(old[begin:][::-1], new[begin:][::-1])
    removed, added = (lines[begin : len(lines) - end] for lines in (old, new))
    if max(len(removed), len(added)) > _MOST_COMPARED:
        told = [f"@@ -{begin + 1},{len(removed)} +{begin + 1},{len(added)} @@"]
        told += [f"-{line}" for line in removed] + [f"+{line}" for line in added]
        return [f"--- a/{path}", f"+++ b/{path}", *told]
    first = max(0, begin - _CONTEXT)
    before, after = (lines[first : len(lines) - end + _CONTEXT] for lines in (old, new))
    told = list(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm="", n=_CONTEXT))
    return [_HUNK.sub(lambda at: f"{at[1]}{int(at[2]) + first}", line) if line[:2] == "@@" else line for line in told]


def _equal(old: list[str], new: list[str]) -> int:
    """How many lines two texts begin with alike."""
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))
    return sum(1 for _ in alike)


# Merging.


def merge_trees(
    base: SkillTree, ours: SkillTree, theirs: SkillTree, prefer: Preference | None = None
) -> tuple[SkillTree | None, tuple[str, ...]]:
    """Three trees into one.

    The side ``prefer`` wins where both exclude one another; None makes that a conflict. Returns the merged tree and the
    files in conflict; None for the tree when there are any.
    """
    files: dict[str, TreeFile] = {}
    conflicts: list[str] = []
    for path in sorted({*base.files, *ours.files, *theirs.files}):
        old, mine, new = (tree.files.get(path) for tree in (base, ours, theirs))
        if mine in (old, new):
            chosen = new
        elif new == old:
            chosen = mine
        else:
            chosen = _merged_file(old, mine, new, prefer)
            if chosen is None and not (prefer == "ours" and mine is None) and not (prefer == "theirs" and new is None):
                conflicts.append(path)
        if chosen is not None:
            files[path] = chosen
    if conflicts:
        return None, tuple(conflicts)
    try:
        return tree_of(files, "The merged skill"), ()
    except SourceError:
        return None, tuple(sorted({*changed_files(base, ours), *changed_files(base, theirs)}))


def _merged_file(
    old: TreeFile | None, mine: TreeFile | None, new: TreeFile | None, prefer: Preference | None
) -> TreeFile | None:
    side = {"ours": mine, "theirs": new, None: None}[prefer]
    if mine is None or new is None or any(b"\0" in file.data[:8192] for file in (mine, new)):
        return side
    before = old.executable if old is not None else False
    executable = new.executable if mine.executable == before else mine.executable
    if mine.data == new.data:
        return TreeFile(mine.data, executable)
    data = _merge_text(old.data if old is not None else b"", mine.data, new.data, prefer)
    return None if data is None else TreeFile(data, executable)


def _merge_text(old: bytes, mine: bytes, new: bytes, prefer: Preference | None) -> bytes | None:
    if mine == old:
        return new
    if new == old:
        return mine
    with tempfile.TemporaryDirectory(prefix=temporary_prefix("merge")) as folder:
        names = []
        for name, data in (("ours", mine), ("base", old), ("theirs", new)):
            path = Path(folder, name)
            path.write_bytes(data)
            names.append(str(path))
        options = [f"--{prefer}"] if prefer else []
        try:
            done = subprocess.run(
                ["git", "merge-file", "-p", "-q", *options, *names],  # noqa: S607 - the user's own git, by PATH
                capture_output=True,
                timeout=60,
                check=False,
                cwd=folder,
                env={**os.environ, "GIT_CEILING_DIRECTORIES": str(Path(folder).parent)},  # row 476
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise SourceError(f"git merge-file cannot be run: {error}. Install git.") from error
    return done.stdout if done.returncode == 0 else None


# Updates of a project.


def plan_updates(
    project: Project,
    names: Sequence[str] = (),
    *,
    prefer: Preference | None = None,
    allow_private: bool = False,
    signatures: SignaturePolicy | None = None,
) -> list[SkillUpdate]:
    """What an update would do; nothing is written.

    Raises ``ConfigError`` when no such skill is installed, or ``SourceError`` when what it was installed from is gone.
    """
    lock = project.read_lock()
    for name in names:
        if name not in lock.skills:
            raise ConfigError(f"{name!r} is not installed here. See: adk-skills list --installed.")
    chosen = [lock.skills[name] for name in dict.fromkeys(names)] if names else list(lock.skills.values())
    groups: dict[Origin, list[LockedSkill]] = {}
    updates: list[SkillUpdate] = []
    for skill in chosen:
        try:
            groups.setdefault(whole_source(project.origin_of(skill)), []).append(skill)
        except SourceError as error:
            updates.append(_failed(skill, error))
    for origin, group in groups.items():
        try:
            refused: dict[str, str] = {}
            named_by = project.named_by(origin, allow_private=allow_private)
            found = _newest(
                origin, group, refused, allow_private=allow_private, signatures=signatures, named_by=named_by
            )
        except (SourceError, ConfigError) as error:  # the other sources go on
            updates += [_failed(skill, error) for skill in group]
            continue
        for skill in group:
            try:
                if skill.origin.subpath in refused:
                    raise SourceError(refused[skill.origin.subpath])
                updates.append(_planned(project, skill, found.get(skill.origin.subpath), prefer, allow_private))
            except SourceError as error:
                updates.append(_failed(skill, error))
    return sorted(updates, key=lambda update: update.name)


def _failed(skill: LockedSkill, error: SkillsError, kind: UpdateState = UpdateState.UNAVAILABLE) -> SkillUpdate:
    nothing = SkillTree({})
    return SkillUpdate(skill, nothing, nothing, None, None, problem=error.message, kind=kind)


def _newest(
    origin: Origin,
    group: Sequence[LockedSkill],
    refused: dict[str, str],
    *,
    allow_private: bool,
    signatures: SignaturePolicy | None,
    named_by: Sequence[Origin] | None,
) -> Mapping[str, FetchedSkill | None | Literal["same"]]:
    checked = ""
    if origin.kind is OriginKind.GIT:
        addresses = addresses_of(origin, allow_private=allow_private, named_by=named_by)
        commit = newest_commit(origin.location, origin.ref, allow_private=allow_private, addresses=addresses)
        if all(skill.commit == commit and (skill.signer or signatures is None) for skill in group):
            return {skill.origin.subpath: "same" for skill in group}
        if signatures is not None and signatures.required:
            checked = commit
            locked = {skill.commit for skill in group} - {"", commit}
            _refuse_older(origin, commit, locked, allow_private=allow_private, addresses=addresses)
    # A package keeps the version that was asked for, as a repository keeps the branch.
    found = fetch_skills(
        origin,
        folders=[skill.origin.subpath for skill in group],
        allow_private=allow_private,
        signatures=signatures,
        named_by=named_by,
        refused=refused,
    )
    if signatures is not None and signatures.required:
        _refuse_older_signature(origin, max((skill.signed for skill in group), default=""), found)
    if checked and any(skill.commit != checked for skill in found):
        raise SourceError(f"{origin} changed while it was looked at. Try again.")
    return {skill.origin.subpath: skill for skill in found}


def _refuse_older_signature(origin: Origin, signed: str, found: Sequence[FetchedSkill]) -> None:
    """As :func:`_refuse_older` for archives, by the time that the authority wrote into the signer's certificate."""
    if any(skill.signed < signed for skill in found):
        raise SourceError(
            f"{origin} gives an archive that was signed before the one that is installed ({signed}), so it is not "
            "taken. Ask its owner; to have the older one, remove the skill and add it again."
        )


def _refuse_older(
    origin: Origin, commit: str, locked: Set[str], *, allow_private: bool, addresses: Sequence[str] | None
) -> None:
    """Whoever has the server has every commit that was ever signed, those with a hole, too (row 461).

    Raises ``SourceError`` when what it gives was committed before what is installed, or nobody can tell.
    """
    times: dict[str, int] = {}
    older: list[str] = []
    try:
        for one in sorted(locked):
            with checkout(origin.location, one, allow_private=allow_private, addresses=addresses) as git:
                times[one] = git.committed
        if locked:
            with checkout(origin.location, commit, allow_private=allow_private, addresses=addresses) as git:
                # What was made after it is newer, whatever the clock said where it was made.
                older = [one for one in times if git.committed < times[one] and not git.follows(one)]
    except SourceError as error:
        raise SourceError(
            f"Whether the commit {commit[:12]} is newer than the one that is installed cannot be told: "
            f"{error.message} Signed skills are not updated without that; remove and add them if you know."
        ) from error
    for one in older:
        raise SourceError(
            f"{origin} gives {commit[:12]} now, which is older than {one[:12]}, which is installed, so it is not "
            "taken. Ask its owner; to have the older one, remove the skill and add it with --ref."
        )


def _planned(
    project: Project,
    locked: LockedSkill,
    found: FetchedSkill | Literal["same"] | None,
    prefer: Preference | None,
    allow_private: bool,
) -> SkillUpdate:
    folder = project.folder_of(locked)
    base = _base(project, locked, allow_private=allow_private)
    state = compare(locked, folder)
    if not state.is_same and not project.is_edited(state):
        ours = project.store.get(locked.tree) or base
    else:
        try:
            ours = read_tree(folder, f"The installed skill {locked.name!r}", skipped=NOT_COMPARED)
        except SourceError as error:
            return _failed(locked, error, UpdateState.UNREADABLE)
    if found is None:
        return SkillUpdate(locked, base, ours, None, None)
    if found != "same" and (renamed := _renamed(locked, base, found.tree)) is not None:
        return _failed(locked, renamed, UpdateState.RENAMED)
    theirs = _unchanged(project, locked, base) if found == "same" else replace(found, name=locked.name)
    merged, conflicts = merge_trees(base, ours, theirs.tree, prefer)
    return SkillUpdate(locked, base, ours, theirs, merged, conflicts)


def _renamed(locked: LockedSkill, base: SkillTree, theirs: SkillTree) -> SourceError | None:
    """What to say when its SKILL.md has another name than before: agents go by it, and so do grants (row 400)."""
    name, before = (tree.parsed(locked.name).metadata.name for tree in (theirs, base))
    if name in {before, locked.name}:
        return None
    again = f"adk-skills remove {locked.name}, then adk-skills add"
    return SourceError(f"Its source calls it {name!r} now, so it is not updated. To have it under that name: {again}.")


def _unchanged(project: Project, locked: LockedSkill, base: SkillTree) -> FetchedSkill:
    origin = project.origin_of(locked)
    about = (locked.commit, locked.license, locked.requires, locked.signer, locked.signed)
    return FetchedSkill(locked.name, "", base, origin, *about)


def _base(project: Project, locked: LockedSkill, *, allow_private: bool) -> SkillTree:
    """The tree the source had: from the store, from the folder itself, or fetched again."""
    stored = project.store.get(locked.source_tree)
    if stored is not None:
        return stored
    folder = project.folder_of(locked)
    if not locked.base and compare(locked, folder).is_same:
        return read_tree(folder, f"The installed skill {locked.name!r}", skipped=NOT_COMPARED)
    origin = project.origin_of(locked)
    pinned = origin.at(locked.commit) if origin.kind in {OriginKind.GIT, OriginKind.PACKAGE} else origin
    for skill in fetch_skills(
        whole_source(pinned),
        folders=[origin.subpath],
        allow_private=allow_private,
        named_by=project.named_by(origin, allow_private=allow_private),
    ):
        if skill.tree.digest == locked.source_tree:
            return skill.tree
    raise SourceError(
        f"What {locked.name!r} was installed from is neither in the store nor at its source, so local edits cannot be "
        f"told from it. Save your edits, then: adk-skills add {shlex.quote(str(origin))} --force"
    )


def apply_updates(project: Project, updates: Sequence[SkillUpdate], *, link: bool = False) -> list[str]:
    """Install what :func:`plan_updates` found; conflicts and what is gone are left as they are.

    Of skills that were only edited the edits are pinned. Returns the names that were changed. Raises ``SourceError``
    when a skill was edited since it was planned, or the disk does not take it.
    """
    with project.changing() as change:
        entries = []
        for update in updates:
            if update.merged is None or update.theirs is None:
                continue
            entry = project.lock_entry(update.theirs, tree=update.merged)
            known = change.lock.skills.get(update.name)
            if known != update.locked:
                raise SourceError(f"{update.name!r} was changed by somebody else meanwhile. Start again.")
            if replace(entry, time=known.time) == known and update.ours.digest == known.tree:
                continue
            folder = project.folder_of(update.locked)
            if folder.is_dir():
                now = read_tree(folder, f"The installed skill {update.name!r}", skipped=NOT_COMPARED)
                if now.digest != update.ours.digest and now.digest not in project.store:
                    raise SourceError(f"{update.name!r} was edited meanwhile. Start again.")
                project.store.put(update.ours)  # after a kill its old folder is known, and replaced by the merged one
            project.store.put(update.theirs.tree)  # the base of the next merge
            entries.append((entry, update.merged))
        change.apply(entries, wanted=list(project.wanted()), link=link)
    return [entry.name for entry, _ in entries]
