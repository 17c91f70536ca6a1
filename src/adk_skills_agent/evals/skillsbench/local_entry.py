"""The first program of all that touches an environment's files: it enters the user range, and there does one thing.

Run as ``python -I -S -c <this text> JSON``. Everything it needs is imported and opened before, because inside it may no
longer read the caller's files. Verbs: ``run`` stacks the layers and becomes bubblewrap; ``empty`` makes a folder new;
``unpack`` reads a tar from standard input into one; ``read`` writes one file to standard output; ``remove`` deletes.
"""

import ctypes
import json
import os
import stat
import sys
import tarfile
from typing import Any

_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_PRIVATE = 0x00044000  # MS_REC | MS_PRIVATE
_SET_UP_FAILED = 125


def main() -> None:
    """Do what the JSON says; exit code 125 and a sentence on standard error when it cannot be done."""
    order = json.loads(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if "wait" in order:  # until the caller has put its limits on this process
            os.read(order["wait"], 1)
            os.close(order["wait"])
        if "store" in order:  # the one folder that is still reached from a mount namespace that is made later
            os.fchdir(order["store"])
        checked(libc.setns(order["users"], _NEWUSER), "the user range cannot be entered")
        os.close(order["users"])
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        os.umask(0o022)
        if order["verb"] == "run":
            run(order, libc)
        else:
            {"empty": empty, "unpack": unpack, "read": read, "remove": remove}[order["verb"]](order)
    except OSError as error:
        sys.stderr.write(f"{error.strerror or error}\n")
        sys.exit(_SET_UP_FAILED)


def checked(result: int, what: str) -> None:
    """Raise what the last call failed with."""
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def run(order: dict[str, Any], libc: ctypes.CDLL) -> None:
    """Become bubblewrap, over the layers that are stacked at /tmp of a mount namespace of its own."""
    checked(libc.unshare(_NEWNS), "mounts cannot be made")
    checked(libc.mount(None, b"/", None, _PRIVATE, None), "mounts cannot be made private")
    checked(libc.mount(b"overlay", b"/tmp", b"overlay", 0, order["layers"].encode()), "the layers cannot be stacked")
    kept = {0, 1, 2, *order["kept"]}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  # no pathlib in here
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                pass  # the one the list was read through
    for descriptor in order["kept"]:
        os.set_inheritable(descriptor, True)
    os.execve(order["program"], order["arguments"], {})  # noqa: S606  # there is no shell


def folder_of(root: int, path: str) -> int:
    """Open a folder below root, made where it is not; what is no folder on the way is removed, links included."""
    current = os.dup(root)
    for name in [part for part in path.split("/") if part]:
        try:
            found = os.stat(name, dir_fd=current, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode):
                os.unlink(name, dir_fd=current)
                os.mkdir(name, 0o755, dir_fd=current)
        except FileNotFoundError:
            os.mkdir(name, 0o755, dir_fd=current)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=current)
        os.close(current)
        current = below
    return current


def empty(order: dict[str, Any]) -> None:
    """Make a path below the top layer an empty folder that hides those of the layers below."""
    parent, _, name = order["path"].strip("/").rpartition("/")
    above = folder_of(order["root"], parent)
    clear(above, name)
    os.mkdir(name, 0o777, dir_fd=above)
    made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    os.fchmod(made, 0o777)
    os.setxattr(made, "user.overlay.opaque", b"y")


def clear(above: int, name: str) -> None:
    """Remove whatever has that name, with all below it, following no links and however deep it is."""
    try:
        found = os.stat(name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=above)
        return
    pending = [(os.dup(above), name)]
    while pending:
        holder, folder = pending[-1]
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=holder)
        below = None
        with os.scandir(opened) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    below = entry.name
                    break
                os.unlink(entry.name, dir_fd=opened)
        if below is not None:
            pending.append((opened, below))
            continue
        os.close(opened)
        os.rmdir(folder, dir_fd=holder)
        os.close(holder)
        pending.pop()


def unpack(order: dict[str, Any]) -> None:
    """Unpack a tar of the caller's own making, all of it owned by the environment's root."""
    target = folder_of(order["root"], order["path"])
    os.fchdir(target)
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        for member in archive:
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            archive.extract(member)


def read(order: dict[str, Any]) -> None:
    """Write a regular file below root to standard output; exit code 1 when there is none. No link is followed."""
    current = os.dup(order["root"])
    parts = [part for part in order["path"].split("/") if part]
    try:
        for name in parts[:-1]:
            current = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=current)
        file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=current)
    except OSError:
        sys.exit(1)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        sys.exit(1)
    left = order["most"]
    while left > 0:
        data = os.read(file, min(left, 1 << 16))
        if not data:
            break
        left -= len(data)
        os.write(1, data)


def remove(order: dict[str, Any]) -> None:
    """Remove everything below a folder."""
    for name in os.listdir(order["root"]):  # noqa: PTH208  # a descriptor
        clear(order["root"], name)


if __name__ == "__main__":
    main()
