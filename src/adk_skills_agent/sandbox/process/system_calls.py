"""System call numbers of the two architectures the local sandbox knows, and the calls that a run may make.

Calls with many meanings (``ioctl``, ``fcntl``, ``prctl``, options of sockets) have a list of what may be asked:
what programs use, and nothing that takes things of the whole machine.

A name that an architecture does not have is left out (aarch64 has only the ``*at`` forms of the old calls). Numbers are
from Linux: ``arch/x86/entry/syscalls/syscall_64.tbl`` and ``include/uapi``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

LAST_KNOWN = 469
"""Numbers above this are calls newer than the filter (Linux 6.17); the same on both architectures. So are the free ones
below that :data:`NUMBERS` does not have: x86_64 got 335 (uretprobe) with Linux 6.11 and 336 with 6.18.
"""

# What container engines let a container without capabilities do, less what the attack rows name (75: asynchronous
# input and output; 79: System V objects; 83: mounts of the host), and with the newer forms of calls that are on it.
_ALLOWED = """
    accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown clock_getres
    clock_gettime clock_nanosleep clone close close_range connect copy_file_range creat dup dup2 dup3 epoll_create
    epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execve execveat exit exit_group
    faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync
    fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_requeue
    futex_wait futex_waitv futex_wake futimesat get_mempolicy get_robust_list getcpu getcwd getdents getdents64
    getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom
    getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr
    getxattrat inotify_add_watch inotify_init inotify_init1 inotify_rm_watch ioctl ioprio_get ioprio_set kill
    lchown lgetxattr link linkat listen listxattr
    listxattrat llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack membarrier memfd_create
    mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mprotect mq_getsetattr mq_notify mq_open
    mq_timedreceive mq_timedsend mq_unlink mremap mseal msync munlock munlockall munmap nanosleep newfstatat open
    openat openat2 pause personality pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll
    ppoll prctl pread64 preadv preadv2 prlimit64 pselect6 pwrite64 pwritev pwritev2 read readahead readlink
    readlinkat readv recvfrom recvmmsg recvmsg removexattr removexattrat rename renameat renameat2 restart_syscall
    rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
    rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam
    sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler
    sched_yield seccomp select sendfile sendmmsg sendmsg sendto set_robust_list set_tid_address setfsgid setfsuid
    setgid setgroups setitimer setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid setsockopt
    setuid setxattr setxattrat shutdown sigaltstack signalfd signalfd4 socket socketpair splice stat statfs statx
    symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun
    timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill truncate umask uname
    unlink unlinkat utime utimensat utimes vfork vmsplice wait4 waitid write writev
"""
ALLOWED = tuple(_ALLOWED.split())
"""The names of the calls that a run may make, where no rule of the filter says otherwise."""

# Terminals and pseudo terminals, descriptors, what every file system answers.
# Left out with all others: typing into a terminal and line disciplines (rows 63, 121); bridges and VLANs, for which the
# kernel loads modules; owners of a descriptor's signals; attributes of a file, changed through a descriptor opened for
# reading; requests of one file system, at which Landlock does not look (row 181); room that is reserved (row 290); what
# copies to the caller's memory under the lock of all networks (SIOCGIFCONF, SIOCETHTOOL; row 310).
_REQUESTS = """
    FIGETBSZ 0x2, TCGETS 0x5401, TCSETS 0x5402, TCSETSW 0x5403, TCSETSF 0x5404, TCGETA 0x5405, TCSETA 0x5406, TCSETAW
    0x5407, TCSETAF 0x5408, TCSBRK 0x5409, TCXONC 0x540A, TCFLSH 0x540B, TIOCEXCL 0x540C, TIOCNXCL 0x540D, TIOCSCTTY
    0x540E, TIOCGPGRP 0x540F, TIOCSPGRP 0x5410, TIOCOUTQ 0x5411, TIOCGWINSZ 0x5413, TIOCSWINSZ 0x5414, FIONREAD
    0x541B, TIOCPKT 0x5420, FIONBIO 0x5421, TIOCNOTTY 0x5422, TIOCGETD 0x5424, TCSBRKP 0x5425, TIOCSBRK 0x5427,
    TIOCCBRK 0x5428, TIOCGSID 0x5429, TCGETS2 0x802C542A, TCSETS2 0x402C542B, TCSETSW2 0x402C542C, TCSETSF2
    0x402C542D, TIOCGPTN 0x80045430, TIOCSPTLCK 0x40045431, TIOCGPKT 0x80045438, TIOCGPTLCK 0x80045439, TIOCGEXCL
    0x80045440, TIOCGPTPEER 0x5441, FIONCLEX 0x5450, FIOCLEX 0x5451, FIOASYNC 0x5452, FIOQSIZE 0x5460, SIOCATMARK
    0x8905, SIOCOUTQNSD 0x894B, RNDGETENTCNT 0x80045200,
    FS_IOC_GETFLAGS 0x80086601, FS_IOC32_GETFLAGS 0x80046601, FS_IOC_FIEMAP 0xC020660B, FS_IOC_FSGETXATTR 0x801C581F,
    FICLONE 0x40049409, FICLONERANGE 0x4020940D
"""
# Interfaces, only read: with sockets of the internet, or a network of the run's own; else they would show the host's
# (row 312).
_INTERFACE_REQUESTS = """
    SIOCGIFNAME 0x8910, SIOCGIFFLAGS 0x8913, SIOCGIFADDR 0x8915, SIOCGIFDSTADDR 0x8917, SIOCGIFBRDADDR 0x8919,
    SIOCGIFNETMASK 0x891B, SIOCGIFMETRIC 0x891D, SIOCGIFMTU 0x8921, SIOCGIFHWADDR 0x8927, SIOCGIFINDEX 0x8933,
    SIOCGIFTXQLEN 0x8942
"""
# Left out with all others: leases and delegations, with which who owns a file makes everybody wait who opens it (row
# 167); locks of a descriptor, which nobody sees where their file is only mapped or on its way (row 247); F_NOTIFY.
_COMMANDS = """
    F_DUPFD 0, F_GETFD 1, F_SETFD 2, F_GETFL 3, F_SETFL 4, F_GETLK 5, F_SETLK 6, F_SETLKW 7, F_SETOWN 8, F_GETOWN 9,
    F_SETSIG 10, F_GETSIG 11, F_SETOWN_EX 15, F_GETOWN_EX 16, F_GETLEASE 1025, F_DUPFD_QUERY 1027, F_CREATED_QUERY
    1028, F_DUPFD_CLOEXEC 1030, F_SETPIPE_SZ 1031, F_GETPIPE_SZ 1032, F_ADD_SEALS 1033, F_GET_SEALS 1034
"""
# Left out with all others: PR_SET_MM, PR_SCHED_CORE and PR_FUTEX_HASH, one call of which takes a gigabyte of the
# kernel's memory that only a control group counts (row 135).
_PROCESS_OPTIONS = """
    SET_PDEATHSIG 1, GET_PDEATHSIG 2, GET_DUMPABLE 3, SET_DUMPABLE 4, GET_KEEPCAPS 7, SET_KEEPCAPS 8, SET_NAME 15,
    GET_NAME 16, GET_SECCOMP 21, SET_SECCOMP 22, CAPBSET_READ 23, CAPBSET_DROP 24, GET_TSC 25, GET_SECUREBITS 27,
    SET_SECUREBITS 28, SET_TIMERSLACK 29, GET_TIMERSLACK 30, SET_CHILD_SUBREAPER 36, GET_CHILD_SUBREAPER 37,
    SET_NO_NEW_PRIVS 38, GET_NO_NEW_PRIVS 39, GET_TID_ADDRESS 40, SET_THP_DISABLE 41, GET_THP_DISABLE 42, CAP_AMBIENT
    47, SVE_SET_VL 50, SVE_GET_VL 51, GET_SPECULATION_CTRL 52, SET_SPECULATION_CTRL 53, PAC_RESET_KEYS 54,
    SET_TAGGED_ADDR_CTRL 55, GET_TAGGED_ADDR_CTRL 56, PAC_SET_ENABLED_KEYS 60, PAC_GET_ENABLED_KEYS 61, SME_SET_VL
    63, SME_GET_VL 64, SET_MDWE 65, GET_MDWE 66, GET_SHADOW_STACK_STATUS 74, SET_SHADOW_STACK_STATUS 75,
    LOCK_SHADOW_STACK_STATUS 76
"""
# By level. Left out with all others: filters, which take memory of the whole host (row 78); what there are few of,
# labels of flows and signatures of segments (row 137); memory that is reserved of what all TCP may have (row 218); what
# makes a connection send next to nothing, hear nothing of the other end, or send where nobody is, so that it stays with
# its data when the run is over (rows 224, 270 and 292); what a connection received or sends without a copy, which
# nobody counts (row 289); what makes the kernel load a module (TCP_ULP, UDP_ENCAP); all of netfilter's.
_SOCKET_OPTIONS = {
    1: """
        SO_REUSEADDR 2, SO_TYPE 3, SO_ERROR 4, SO_BROADCAST 6, SO_SNDBUF 7, SO_RCVBUF 8, SO_KEEPALIVE 9, SO_OOBINLINE
        10, SO_PRIORITY 12, SO_LINGER 13, SO_REUSEPORT 15, SO_PASSCRED 16, SO_PEERCRED 17, SO_RCVLOWAT 18, SO_SNDLOWAT
        19, SO_RCVTIMEO 20, SO_SNDTIMEO 21, SO_TIMESTAMP 29, SO_ACCEPTCONN 30, SO_PEERSEC 31, SO_PASSSEC 34,
        SO_TIMESTAMPNS 35, SO_PROTOCOL 38, SO_DOMAIN 39, SO_RXQ_OVFL 40, SO_PEEK_OFF 42, SO_COOKIE 57, SO_PEERGROUPS
        59, SO_TIMESTAMP_NEW 63, SO_TIMESTAMPNS_NEW 64, SO_RCVTIMEO_NEW 66, SO_SNDTIMEO_NEW 67
    """,
    6: """
        TCP_NODELAY 1, TCP_MAXSEG 2, TCP_CORK 3, TCP_KEEPIDLE 4, TCP_KEEPINTVL 5, TCP_KEEPCNT 6, TCP_SYNCNT 7,
        TCP_INFO 11, TCP_QUICKACK 12, TCP_CONGESTION 13, TCP_USER_TIMEOUT 18, TCP_FASTOPEN 23,
        TCP_NOTSENT_LOWAT 25, TCP_FASTOPEN_CONNECT 30, TCP_INQ 36
    """,
    0: """
        IP_TOS 1, IP_TTL 2, IP_PKTINFO 8, IP_MTU_DISCOVER 10, IP_RECVERR 11, IP_RECVTTL 12, IP_RECVTOS 13, IP_MTU 14,
        IP_BIND_ADDRESS_NO_PORT 24, IP_MULTICAST_IF 32, IP_MULTICAST_TTL 33, IP_MULTICAST_LOOP 34, IP_LOCAL_PORT_RANGE
        51
    """,
    17: "UDP_CORK 1, UDP_SEGMENT 103, UDP_GRO 104",
    41: """
        IPV6_UNICAST_HOPS 16, IPV6_MULTICAST_IF 17, IPV6_MULTICAST_HOPS 18, IPV6_MULTICAST_LOOP 19, IPV6_MTU_DISCOVER
        23, IPV6_MTU 24, IPV6_RECVERR 25, IPV6_V6ONLY 26, IPV6_RECVPKTINFO 49, IPV6_PKTINFO 50, IPV6_RECVHOPLIMIT 51,
        IPV6_RECVTCLASS 66, IPV6_TCLASS 67, IPV6_ADDR_PREFERENCES 72
    """,
    270: """
        NETLINK_ADD_MEMBERSHIP 1, NETLINK_DROP_MEMBERSHIP 2, NETLINK_PKTINFO 3, NETLINK_CAP_ACK 10, NETLINK_EXT_ACK
        11, NETLINK_GET_STRICT_CHK 12
    """,
}

# Since Linux 5.1 new calls have the same number everywhere.
_COMMON = """
    pidfd_send_signal 424, io_uring_setup 425, io_uring_enter 426, io_uring_register 427, open_tree 428, move_mount
    429, fsopen 430, fsconfig 431, fsmount 432, fspick 433, pidfd_open 434, clone3 435, close_range 436, openat2
    437, pidfd_getfd 438, faccessat2 439, process_madvise 440, epoll_pwait2 441, mount_setattr 442, quotactl_fd 443,
    landlock_create_ruleset 444, landlock_add_rule 445, landlock_restrict_self 446, memfd_secret 447,
    process_mrelease 448, futex_waitv 449, set_mempolicy_home_node 450, cachestat 451, fchmodat2 452,
    map_shadow_stack 453, futex_wake 454, futex_wait 455, futex_requeue 456, statmount 457, listmount 458, mseal
    462, setxattrat 463, getxattrat 464, listxattrat 465, removexattrat 466, open_tree_attr 467, file_setattr 469
"""

_X86_64 = """
    read 0, write 1, open 2, close 3, stat 4, fstat 5, lstat 6, poll 7, lseek 8, mmap 9, mprotect 10, munmap 11, brk
    12, rt_sigaction 13, rt_sigprocmask 14, rt_sigreturn 15, ioctl 16, pread64 17, pwrite64 18, readv 19, writev 20,
    access 21, pipe 22, select 23, sched_yield 24, mremap 25, msync 26, mincore 27, madvise 28, shmget 29, shmat 30,
    shmctl 31, dup 32, dup2 33, pause 34, nanosleep 35, getitimer 36, alarm 37, setitimer 38, getpid 39, sendfile
    40, socket 41, connect 42, accept 43, sendto 44, recvfrom 45, sendmsg 46, recvmsg 47, shutdown 48, bind 49,
    listen 50, getsockname 51, getpeername 52, socketpair 53, setsockopt 54, getsockopt 55, clone 56, fork 57, vfork
    58, execve 59, exit 60, wait4 61, kill 62, uname 63, semget 64, semop 65, semctl 66, shmdt 67, msgget 68, msgsnd
    69, msgrcv 70, msgctl 71, fcntl 72, flock 73, fsync 74, fdatasync 75, truncate 76, ftruncate 77, getdents 78,
    getcwd 79, chdir 80, fchdir 81, rename 82, mkdir 83, rmdir 84, creat 85, link 86, unlink 87, symlink 88,
    readlink 89, chmod 90, fchmod 91, chown 92, fchown 93, lchown 94, umask 95, gettimeofday 96, getrlimit 97,
    getrusage 98, sysinfo 99, times 100, ptrace 101, getuid 102, syslog 103, getgid 104, setuid 105, setgid 106,
    geteuid 107, getegid 108, setpgid 109, getppid 110, getpgrp 111, setsid 112, setreuid 113, setregid 114,
    getgroups 115, setgroups 116, setresuid 117, getresuid 118, setresgid 119, getresgid 120, getpgid 121, setfsuid
    122, setfsgid 123, getsid 124, capget 125, capset 126, rt_sigpending 127, rt_sigtimedwait 128, rt_sigqueueinfo
    129, rt_sigsuspend 130, sigaltstack 131, utime 132, mknod 133, uselib 134, personality 135, ustat 136, statfs
    137, fstatfs 138, sysfs 139, getpriority 140, setpriority 141, sched_setparam 142, sched_getparam 143,
    sched_setscheduler 144, sched_getscheduler 145, sched_get_priority_max 146, sched_get_priority_min 147,
    sched_rr_get_interval 148, mlock 149, munlock 150, mlockall 151, munlockall 152, vhangup 153, modify_ldt 154,
    pivot_root 155, _sysctl 156, prctl 157, arch_prctl 158, adjtimex 159, setrlimit 160, chroot 161, sync 162, acct
    163, settimeofday 164, mount 165, umount2 166, swapon 167, swapoff 168, reboot 169, sethostname 170,
    setdomainname 171, iopl 172, ioperm 173, init_module 175, delete_module 176, quotactl 179, nfsservctl 180,
    gettid 186, readahead 187, setxattr 188, lsetxattr 189, fsetxattr 190, getxattr 191, lgetxattr 192, fgetxattr
    193, listxattr 194, llistxattr 195, flistxattr 196, removexattr 197, lremovexattr 198, fremovexattr 199, tkill
    200, time 201, futex 202, sched_setaffinity 203, sched_getaffinity 204, set_thread_area 205, io_setup 206,
    io_destroy 207, io_getevents 208, io_submit 209, io_cancel 210, get_thread_area 211, lookup_dcookie 212,
    epoll_create 213, epoll_ctl_old 214, epoll_wait_old 215, remap_file_pages 216, getdents64 217, set_tid_address
    218, restart_syscall 219, semtimedop 220, fadvise64 221, timer_create 222, timer_settime 223, timer_gettime 224,
    timer_getoverrun 225, timer_delete 226, clock_settime 227, clock_gettime 228, clock_getres 229, clock_nanosleep
    230, exit_group 231, epoll_wait 232, epoll_ctl 233, tgkill 234, utimes 235, mbind 237, set_mempolicy 238,
    get_mempolicy 239, mq_open 240, mq_unlink 241, mq_timedsend 242, mq_timedreceive 243, mq_notify 244,
    mq_getsetattr 245, kexec_load 246, waitid 247, add_key 248, request_key 249, keyctl 250, ioprio_set 251,
    ioprio_get 252, inotify_init 253, inotify_add_watch 254, inotify_rm_watch 255, migrate_pages 256, openat 257,
    mkdirat 258, mknodat 259, fchownat 260, futimesat 261, newfstatat 262, unlinkat 263, renameat 264, linkat 265,
    symlinkat 266, readlinkat 267, fchmodat 268, faccessat 269, pselect6 270, ppoll 271, unshare 272,
    set_robust_list 273, get_robust_list 274, splice 275, tee 276, sync_file_range 277, vmsplice 278, move_pages
    279, utimensat 280, epoll_pwait 281, signalfd 282, timerfd_create 283, eventfd 284, fallocate 285,
    timerfd_settime 286, timerfd_gettime 287, accept4 288, signalfd4 289, eventfd2 290, epoll_create1 291, dup3 292,
    pipe2 293, inotify_init1 294, preadv 295, pwritev 296, rt_tgsigqueueinfo 297, perf_event_open 298, recvmmsg 299,
    fanotify_init 300, fanotify_mark 301, prlimit64 302, name_to_handle_at 303, open_by_handle_at 304, clock_adjtime
    305, syncfs 306, sendmmsg 307, setns 308, getcpu 309, process_vm_readv 310, process_vm_writev 311, kcmp 312,
    finit_module 313, sched_setattr 314, sched_getattr 315, renameat2 316, seccomp 317, getrandom 318, memfd_create
    319, kexec_file_load 320, bpf 321, execveat 322, userfaultfd 323, membarrier 324, mlock2 325, copy_file_range
    326, preadv2 327, pwritev2 328, pkey_mprotect 329, pkey_alloc 330, pkey_free 331, statx 332, io_pgetevents 333,
    rseq 334
"""

_AARCH64 = """
    io_setup 0, io_destroy 1, io_submit 2, io_cancel 3, io_getevents 4, setxattr 5, lsetxattr 6, fsetxattr 7,
    getxattr 8, lgetxattr 9, fgetxattr 10, listxattr 11, llistxattr 12, flistxattr 13, removexattr 14, lremovexattr
    15, fremovexattr 16, getcwd 17, lookup_dcookie 18, eventfd2 19, epoll_create1 20, epoll_ctl 21, epoll_pwait 22,
    dup 23, dup3 24, fcntl 25, inotify_init1 26, inotify_add_watch 27, inotify_rm_watch 28, ioctl 29, ioprio_set 30,
    ioprio_get 31, flock 32, mknodat 33, mkdirat 34, unlinkat 35, symlinkat 36, linkat 37, renameat 38, umount2 39,
    mount 40, pivot_root 41, nfsservctl 42, statfs 43, fstatfs 44, truncate 45, ftruncate 46, fallocate 47,
    faccessat 48, chdir 49, fchdir 50, chroot 51, fchmod 52, fchmodat 53, fchownat 54, fchown 55, openat 56, close
    57, vhangup 58, pipe2 59, quotactl 60, getdents64 61, lseek 62, read 63, write 64, readv 65, writev 66, pread64
    67, pwrite64 68, preadv 69, pwritev 70, sendfile 71, pselect6 72, ppoll 73, signalfd4 74, vmsplice 75, splice
    76, tee 77, readlinkat 78, newfstatat 79, fstat 80, sync 81, fsync 82, fdatasync 83, sync_file_range 84,
    timerfd_create 85, timerfd_settime 86, timerfd_gettime 87, utimensat 88, acct 89, capget 90, capset 91,
    personality 92, exit 93, exit_group 94, waitid 95, set_tid_address 96, unshare 97, futex 98, set_robust_list 99,
    get_robust_list 100, nanosleep 101, getitimer 102, setitimer 103, kexec_load 104, init_module 105, delete_module
    106, timer_create 107, timer_gettime 108, timer_getoverrun 109, timer_settime 110, timer_delete 111,
    clock_settime 112, clock_gettime 113, clock_getres 114, clock_nanosleep 115, syslog 116, ptrace 117,
    sched_setparam 118, sched_setscheduler 119, sched_getscheduler 120, sched_getparam 121, sched_setaffinity 122,
    sched_getaffinity 123, sched_yield 124, sched_get_priority_max 125, sched_get_priority_min 126,
    sched_rr_get_interval 127, restart_syscall 128, kill 129, tkill 130, tgkill 131, sigaltstack 132, rt_sigsuspend
    133, rt_sigaction 134, rt_sigprocmask 135, rt_sigpending 136, rt_sigtimedwait 137, rt_sigqueueinfo 138,
    rt_sigreturn 139, setpriority 140, getpriority 141, reboot 142, setregid 143, setgid 144, setreuid 145, setuid
    146, setresuid 147, getresuid 148, setresgid 149, getresgid 150, setfsuid 151, setfsgid 152, times 153, setpgid
    154, getpgid 155, getsid 156, setsid 157, getgroups 158, setgroups 159, uname 160, sethostname 161,
    setdomainname 162, getrlimit 163, setrlimit 164, getrusage 165, umask 166, prctl 167, getcpu 168, gettimeofday
    169, settimeofday 170, adjtimex 171, getpid 172, getppid 173, getuid 174, geteuid 175, getgid 176, getegid 177,
    gettid 178, sysinfo 179, mq_open 180, mq_unlink 181, mq_timedsend 182, mq_timedreceive 183, mq_notify 184,
    mq_getsetattr 185, msgget 186, msgctl 187, msgrcv 188, msgsnd 189, semget 190, semctl 191, semtimedop 192, semop
    193, shmget 194, shmctl 195, shmat 196, shmdt 197, socket 198, socketpair 199, bind 200, listen 201, accept 202,
    connect 203, getsockname 204, getpeername 205, sendto 206, recvfrom 207, setsockopt 208, getsockopt 209,
    shutdown 210, sendmsg 211, recvmsg 212, readahead 213, brk 214, munmap 215, mremap 216, add_key 217, request_key
    218, keyctl 219, clone 220, execve 221, mmap 222, fadvise64 223, swapon 224, swapoff 225, mprotect 226, msync
    227, mlock 228, munlock 229, mlockall 230, munlockall 231, mincore 232, madvise 233, remap_file_pages 234, mbind
    235, get_mempolicy 236, set_mempolicy 237, migrate_pages 238, move_pages 239, rt_tgsigqueueinfo 240,
    perf_event_open 241, accept4 242, recvmmsg 243, wait4 260, prlimit64 261, fanotify_init 262, fanotify_mark 263,
    name_to_handle_at 264, open_by_handle_at 265, clock_adjtime 266, syncfs 267, setns 268, sendmmsg 269,
    process_vm_readv 270, process_vm_writev 271, kcmp 272, finit_module 273, sched_setattr 274, sched_getattr 275,
    renameat2 276, seccomp 277, getrandom 278, memfd_create 279, bpf 280, execveat 281, userfaultfd 282, membarrier
    283, mlock2 284, copy_file_range 285, preadv2 286, pwritev2 287, pkey_mprotect 288, pkey_alloc 289, pkey_free
    290, statx 291, io_pgetevents 292, rseq 293, kexec_file_load 294
"""


def _table(*texts: str) -> Mapping[str, int]:
    pairs = (pair.split() for text in texts for pair in text.split(","))
    return MappingProxyType({name: int(number, 0) for name, number in pairs})


NUMBERS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {"x86_64": _table(_X86_64, _COMMON), "aarch64": _table(_AARCH64, _COMMON)}
)
"""Architecture, as ``platform.machine()`` names it, to the numbers of the calls by name."""

REQUESTS = _table(_REQUESTS)
"""What ``ioctl`` may be asked; the numbers are the same on both architectures."""
INTERFACE_REQUESTS = _table(_INTERFACE_REQUESTS)
"""The same, about the interfaces of a network."""
COMMANDS = _table(_COMMANDS)
"""What ``fcntl`` may be asked."""
PROCESS_OPTIONS = _table(_PROCESS_OPTIONS)
"""What ``prctl`` may be asked."""
SOCKET_OPTIONS = MappingProxyType({level: _table(text) for level, text in _SOCKET_OPTIONS.items()})
"""By level, the options of sockets that may be set and read."""
