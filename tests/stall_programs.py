"""What scripts that hold a lock of the kernel begin with (rows 309, 311, 349, 368)."""

from __future__ import annotations

# Gigabytes of one page of zeros: what changes their protection holds the lock of the process's memory for long, and
# every page fault of the process waits for it, also one in the middle of a system call that holds another lock.
HOLDS = """
import ctypes, mmap, os, sys, threading, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
size = 12 << 30
def program(code, *arguments):
    place = libc.mmap(None, 4096, 7, 0x22, -1, 0)
    ctypes.memmove(place, bytes.fromhex(code), len(code) // 2)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(place)
    threading.Thread(target=call, args=arguments, daemon=True).start()
def hold():
    area = libc.mmap(None, size, 1, 0x4022, -1, 0)  # PROT_READ; MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE
    libc.madvise(area, size, 15)  # MADV_NOHUGEPAGE
    if libc.madvise(area, size, 22):  # MADV_POPULATE_READ
        sys.exit("this kernel cannot fill in pages ahead")
    libc.madvise(area, 1 << 30, 4)  # MADV_DONTNEED: each page of the first gigabyte is a fault
    program("83f201b80a0000000f05ebf4", area, size, 1)  # for ever: mprotect(area, size, protection ^= 1)
    return area
# For ever: lseek(folder, 0, 0); getdents64(folder, there, 4096); there += 8192
LISTS = "4989fc4989f5" "4c89e731f631d2b8080000000f05" "4c89e74c89eeba00100000b8d90000000f05" "4981c500200000" "ebd7"
"""
