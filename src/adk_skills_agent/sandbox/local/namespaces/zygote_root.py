"""The file system of a sandbox that :mod:`.zygote_program` makes: mounts put together from a description.

It is not imported: the host compiles this file, too, and its functions are among those of the zygote.
"""

import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from adk_skills_agent.sandbox.local.init.payload import _Library

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # the same on every architecture
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE, _CLONE_TREE, _CLOSE_ON_EXEC = -100, 0x1000, 0x8000, 1, 0o2000000
_MOVE_EMPTY_PATH = 0x4
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXEC = 0x1, 0x2, 0x4, 0x8
_MS_NO_SUID, _MS_NO_DEVICES, _MS_NO_EXEC, _MS_RECURSIVE, _MS_PRIVATE = 2, 4, 8, 1 << 14, 1 << 18
_DETACH = 2
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"))
_MORE_LINKS = (("stderr", "/proc/self/fd/2"), ("core", "/proc/kcore"), ("ptmx", "pts/ptmx"))
_SETTINGS_OF_KERNEL = ("sys", "sysrq-trigger", "irq", "bus")
_HIDDEN_OF_KERNEL = ("locks", "keys", "key-users")
_ESTALE = 116
_PLACE = "/tmp"  # noqa: S108  # where the new root is put together; hidden in this mount namespace only
_FOLDER_MODE, _FILE_MODE = 0o755, 0o444


def _new_root(
    library: "_Library",
    pivot_root: int,
    steps: "list[tuple[Any, ...]]",
    shown: "dict[bytes, tuple[int, int]]",
) -> None:
    """Put a root together from its steps (see ``description.Step``), and leave nothing else in reach."""
    trees = [_tree(library, step[1]) if step[0] == "bind" else -1 for step in steps]
    for step, tree in zip(steps, trees, strict=True):
        if tree >= 0 and step[1] in shown:
            info = posix.fstat(tree)
            if (info.st_dev, info.st_ino) != shown[step[1]]:
                raise OSError(_ESTALE, "find what the agent sees")  # it was mounted after this process was started
    devices = [(name, _tree(library, f"/dev/{name}".encode(), device=True)) for name in _DEVICES]
    flags = _MS_NO_SUID | _MS_NO_DEVICES
    library.call("mount", b"tmpfs", _PLACE.encode(), b"tmpfs", flags, b"mode=0755", step="make a file system")
    posix.chdir(_PLACE)
    posix.mkdir("old", 0o700)
    library.call("syscall", pivot_root, b".", b"old", step="change the root")
    posix.chdir("/")
    for step, tree in zip(steps, trees, strict=True):
        kind, path = step[0], step[-1]
        if kind == "bind":
            _place(library, tree, path)
        elif kind == "tmpfs":
            _folders(path)
            size = b"" if step[1] is None else b",size=%d" % step[1]
            library.call(
                "mount", b"tmpfs", path, b"tmpfs", flags, b"mode=%o" % step[2] + size, step="make a file system"
            )
        elif kind == "dir":
            _folders(path)
        elif kind == "link":
            _folders(_parent(path))
            posix.symlink(step[1], path)
        elif kind == "file":
            _folders(_parent(path))
            descriptor = posix.open(path, posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC, _FILE_MODE)
            posix.write(descriptor, step[1])
            posix.close(descriptor)
        elif kind == "proc":
            _folders(path)
            library.call("mount", b"proc", path, b"proc", flags | _MS_NO_EXEC, None, step="show processes")
            for name in (*_SETTINGS_OF_KERNEL, *_HIDDEN_OF_KERNEL):
                where = b"%s/%s" % (path, name.encode())
                if _exists(where):
                    _place(library, _tree(library, b"/old/dev/null" if name in _HIDDEN_OF_KERNEL else where), where)
        elif kind == "dev":
            _devices(library, path, devices)
        elif kind == "seal" and path != b"/":
            _set_attributes(library, _AT_FDCWD, path, 0, _READ_ONLY)
    library.call("mount", None, b"/old", None, _MS_RECURSIVE | _MS_PRIVATE, None)
    library.call("umount2", b"/old", _DETACH, step="leave the host's files")
    posix.rmdir("/old")
    _set_attributes(library, _AT_FDCWD, b"/", 0, _READ_ONLY)


def _devices(library: "_Library", path: bytes, devices: "list[tuple[str, int]]") -> None:
    _folders(path)
    flags = _MS_NO_SUID | _MS_NO_DEVICES
    library.call("mount", b"tmpfs", path, b"tmpfs", flags, b"mode=0755", step="make a file system")
    place = path.decode()
    for name, tree in devices:
        posix.close(posix.open(f"{place}/{name}", posix.O_WRONLY | posix.O_CREAT | posix.O_CLOEXEC, _FILE_MODE))
        _move(library, tree, f"{place}/{name}".encode())
    for name in ("pts", "shm"):
        posix.mkdir(f"{place}/{name}", _FOLDER_MODE)
    # Else a run can use up the host's (row 76); and what is typed into one is the work of a thread of the kernel, which
    # no limit counts (row 383).
    options = b"newinstance,ptmxmode=0666,mode=620,max=8"
    flags = _MS_NO_SUID | _MS_NO_EXEC
    library.call("mount", b"devpts", path + b"/pts", b"devpts", flags, options, step="make terminals")
    for name, target in (*_DEVICE_LINKS, *_MORE_LINKS):
        posix.symlink(target, f"{place}/{name}")


def _tree(library: "_Library", source: bytes, *, device: bool = False) -> int:
    """A read-only copy of the mounts at and below a path, not attached to anything yet."""
    flags = _CLONE_TREE | _CLOSE_ON_EXEC | _AT_RECURSIVE
    tree = library.call("syscall", _OPEN_TREE, _AT_FDCWD, source, flags, step="open what is shown")
    attributes = _READ_ONLY | _NO_SUID | (_NO_EXEC if device else _NO_DEVICES)
    _set_attributes(library, tree, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, attributes)
    return tree


def _set_attributes(library: "_Library", folder: int, path: bytes, flags: int, attributes: int) -> None:
    wanted = attributes.to_bytes(8, sys.byteorder) + bytes(8) + _MS_PRIVATE.to_bytes(8, sys.byteorder) + bytes(8)
    library.call("syscall", _MOUNT_SETATTR, folder, path, flags, wanted, len(wanted), step="protect what is shown")


def _place(library: "_Library", tree: int, path: bytes) -> None:
    """Attach a tree where it is to be seen."""
    is_folder = posix.fstat(tree).st_mode & 0o170000 == 0o040000
    _folders(path if is_folder else _parent(path))
    if not is_folder and not _exists(path):
        posix.close(posix.open(path, posix.O_WRONLY | posix.O_CREAT | posix.O_CLOEXEC, _FILE_MODE))
    _move(library, tree, path)


def _move(library: "_Library", tree: int, path: bytes) -> None:
    library.call("syscall", _MOVE_MOUNT, tree, b"", _AT_FDCWD, path, _MOVE_EMPTY_PATH, step="attach what is shown")
    posix.close(tree)


def _folders(path: bytes) -> None:
    try:
        posix.mkdir(path, _FOLDER_MODE)
    except FileExistsError:
        return
    except FileNotFoundError:
        _folders(_parent(path))
        posix.mkdir(path, _FOLDER_MODE)


def _parent(path: bytes) -> bytes:
    return path.rpartition(b"/")[0] or b"/"


def _exists(path: "str | bytes") -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True
