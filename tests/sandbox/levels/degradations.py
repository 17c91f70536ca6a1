"""Start a command on a machine that lacks something, made by a system call filter over the command and its children.

``python degradations.py docker-default COMMAND...``: as under Docker's default profile, no namespaces and mounts.
``python degradations.py no-landlock COMMAND...``: as on an old kernel, Landlock answers ENOSYS.
``python degradations.py gvisor COMMAND...``: both.
``python degradations.py no-seccomp COMMAND...``: no namespaces, and no filter can be installed; Landlock is there.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

LOAD, IF_EQUAL, IF_BITS, RETURN = 0x20, 0x15, 0x45, 0x06
PASS, ANSWER = 0x7FFF0000, 0x00050000
NEW_NAMESPACES = 0x7E020000

# Name to its number on x86_64 and aarch64.
NAMESPACES = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "open_by_handle_at": (304, 265),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
}
CLONE, CLONE3 = (56, 220), (435, 435)
SECCOMP, PRCTL, PR_SET_SECCOMP = (317, 277), (157, 167), 22
LANDLOCK = (444, 445, 446)


def statement(code: int, value: int, skip_true: int = 0, skip_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, skip_true, skip_false, value)


def answer(number: int, error: int) -> bytes:
    return statement(IF_EQUAL, number, 0, 1) + statement(RETURN, ANSWER | error)


def program(kind: str) -> bytes:
    column = {"x86_64": 0, "aarch64": 1}[platform.machine()]
    code = statement(LOAD, 0)
    if kind in {"no-landlock", "gvisor"}:
        code += b"".join(answer(number, errno.ENOSYS) for number in LANDLOCK)
    if kind == "no-seccomp":
        code += answer(SECCOMP[column], errno.EINVAL)
        code += statement(IF_EQUAL, PRCTL[column], 0, 4) + statement(LOAD, 16)
        code += statement(IF_EQUAL, PR_SET_SECCOMP, 0, 1) + statement(RETURN, ANSWER | errno.EINVAL)
        code += statement(LOAD, 0)
    if kind in {"docker-default", "gvisor", "no-seccomp"}:
        code += b"".join(answer(numbers[column], errno.EPERM) for numbers in NAMESPACES.values())
        code += answer(CLONE3[column], errno.ENOSYS)
        code += statement(IF_EQUAL, CLONE[column], 0, 3) + statement(LOAD, 16)
        code += statement(IF_BITS, NEW_NAMESPACES, 0, 1) + statement(RETURN, ANSWER | errno.EPERM)
    return code + statement(RETURN, PASS)


def main() -> None:
    code = program(sys.argv[1])
    library = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(code, len(code))
    pointer = struct.pack("=HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    library.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    if library.prctl(PR_SET_SECCOMP, 2, ctypes.c_char_p(pointer), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the filter could not be installed")
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
