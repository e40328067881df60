"""What the kernel and the C library say of the process. Numbers of processes are said as relations."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import stat
import time

C = ctypes.CDLL(None, use_errno=True)
OWN = ("Pid", "Tgid", "PPid", "Ngid", "NStgid", "NSpid", "NSpgid", "NSsid")
LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_")]
# Mounts are those of the namespace, a link below: those of everybody come and go.
ENTRIES = (
    "cmdline", "comm", "limits", "oom_score_adj", "oom_adj", "cgroup", "personality", "timerslack_ns", "loginuid",
    "coredump_filter", "uid_map", "gid_map", "setgroups", "timens_offsets", "attr/current", "sessionid",
)  # fmt: skip
PRCTL = {
    "pdeathsig": 2, "dumpable": 3, "unaligned": 5, "keepcaps": 7, "timing": 13, "seccomp": 21, "tsc": 25,
    "securebits": 27, "timerslack": 30, "mce_kill": 34, "subreaper": 37, "no_new_privs": 39, "thp_disable": 42,
    "speculation": 52, "io_flusher": 58, "mdwe": 66, "memory_merge": 68,
}  # fmt: skip
BY_ADDRESS = ("pdeathsig", "unaligned", "tsc", "subreaper")


def text(path: str) -> str:
    with open(path, "rb") as file:
        return file.read().decode(errors="backslashreplace")


def link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError as error:
        return str(error.errno)


def of_status():
    found = {}
    for line in text("/proc/self/status").splitlines():
        name, _, value = line.partition(":")
        if not name.startswith(("Vm", "Rss", "Hugetlb", "State", "SigQ")) and not name.endswith(
            "_ctxt_switches"
        ):
            found[name] = value.split()
    us = str(os.getpid())
    for name in OWN:
        found[name] = ["us" if number == us else "another" for number in found.get(name, ())]
    return found


def of_stat():
    fields = text("/proc/self/stat").rpartition(")")[2].split()
    names = {"tty": 4, "flags": 6, "priority": 15, "nice": 16, "threads": 17, "exit signal": 35, "policy": 38}
    found = {name: fields[place] for name, place in names.items()}
    age = float(text("/proc/uptime").split()[0]) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    found["young"] = age < 30
    found["times of children"] = [fields[13], fields[14]]
    found["environment and arguments are apart"] = (
        int(fields[45]) >= int(fields[44]) > 0 and fields[46] <= fields[47]
    )
    return found


def of_proc():
    found = {}
    for entry in ENTRIES:
        try:
            found[entry] = text("/proc/self/" + entry)
        except OSError as error:
            found[entry] = str(error.errno)
    return found


def of_links():
    namespaces = ["ns/" + name for name in sorted(os.listdir("/proc/self/ns"))]
    return {entry: link("/proc/self/" + entry) for entry in ["exe", "cwd", "root", *namespaces]}


def of_tasks():
    us = os.getpid()
    return [os.listdir("/proc/self/task") == [str(us)], text(f"/proc/self/task/{us}/children").split()]


def of_parent():
    parent = f"/proc/{os.getppid()}/"
    return {"comm": text(parent + "comm"), "cmdline": text(parent + "cmdline"), "exe": link(parent + "exe")}


def of_relations():
    us = os.getpid()
    return {
        "group": os.getpgrp() == us,
        "session": os.getsid(0) == us,
        "parent": [os.getsid(os.getppid()) == us, os.getpgid(os.getppid()) == us],
        "users": [os.getresuid(), os.getresgid(), os.getgroups()],
    }


def of_terminal():
    os.open("/dev/tty", os.O_RDWR)


def of_environment():
    own = dict(os.environ)
    posix = {os.fsdecode(name): os.fsdecode(value) for name, value in __import__("posix").environ.items()}
    pointers = ctypes.POINTER(ctypes.c_char_p).in_dll(C, "environ")
    in_c = []
    while pointers[len(in_c)] is not None:
        in_c.append(os.fsdecode(pointers[len(in_c)]))
    C.getenv.restype = ctypes.c_char_p
    return {
        "os": own,
        "order": list(own),
        "posix": list(posix.items()) == list(own.items()),
        "bytes": [os.fsdecode(name) for name in os.environb] == list(own),
        "proc": text("/proc/self/environ").split("\0"),
        "c": in_c,
        "getenv": [
            os.fsdecode(C.getenv(name.encode()) or b"") for name in ("RANK", "PATH", "MASTER_PORT", "GIVEN")
        ],
        "types": [type(os.environ).__name__, type(own).__name__],
    }


def of_auxiliary():
    """AT_EXECFN, AT_SECURE, AT_UID and AT_CLKTCK."""
    C.getauxval.restype = ctypes.c_ulong
    return [ctypes.string_at(C.getauxval(31)).decode(), *(C.getauxval(number) for number in (23, 11, 17))]


def of_prctl():
    found = {}
    for name, number in PRCTL.items():
        value = ctypes.c_int(-1)
        zero = ctypes.c_ulong(0)
        argument = ctypes.byref(value) if name in BY_ADDRESS else zero
        back = C.prctl(number, argument, zero, zero, zero)
        found[name] = [back, value.value] if back >= 0 else ctypes.get_errno()
    return found


def of_descriptor():
    found = {}
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            about = os.fstat(int(name))
        except OSError:  # that which lists them
            continue
        if "/libffi.so" in link(
            "/proc/self/fd/" + name
        ):  # It keeps itself open, under a number that is free.
            continue
        info = dict(line.split(":\t", 1) for line in text("/proc/self/fdinfo/" + name).splitlines()[:3])
        found[name] = {
            "target": link("/proc/self/fd/" + name),
            "kind": stat.filemode(about.st_mode),
            "owner": [about.st_uid, about.st_gid],
            "flags": info["flags"],
            "inherited": os.get_inheritable(int(name)),
            "blocking": os.get_blocking(int(name)),
        }
    found["one for both"] = (
        C.syscall(312, os.getpid(), os.getpid(), 0, 1, 2) if os.uname().machine == "x86_64" else 0
    )
    found["position of input"] = os.lseek(0, 0, os.SEEK_CUR)
    return found


def of_descriptor_locks():
    return [fcntl.fcntl(number, fcntl.F_GETOWN) for number in (0, 1, 2)]


def of_signals():
    names = sorted(signal.valid_signals())
    return {
        "handlers": [str(signal.getsignal(number)).partition(" at 0x")[0] for number in names],
        "blocked": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
        "pending": sorted(map(int, signal.sigpending())),
        "wakeup": signal.set_wakeup_fd(-1),
        "timers": [signal.getitimer(which) for which in range(3)],
        "alarm": signal.alarm(0),
    }


def of_signal_stack():
    """Its flags and its size."""
    stack = (ctypes.c_ulong * 3)()
    C.sigaltstack(None, stack)
    return [stack[1] & 0xFFFFFFFF, stack[2]]


def of_limits():
    return {name: resource.getrlimit(getattr(resource, name)) for name in LIMITS}


def of_usage():
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"children": [children.ru_utime, children.ru_stime, children.ru_maxrss, children.ru_minflt]}


def of_children():
    return os.waitpid(-1, os.WNOHANG)


def of_scheduling():
    return {
        "policy": os.sched_getscheduler(0),
        "cores": sorted(os.sched_getaffinity(0)),
        "nice": [os.getpriority(which, 0) for which in (os.PRIO_PROCESS, os.PRIO_PGRP)],
        "io": C.syscall(252, 1, 0) if os.uname().machine == "x86_64" else 0,
        "interval": os.sched_rr_get_interval(0),
        "counted": os.cpu_count(),
    }


def of_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def of_places():
    return {
        "cwd": os.getcwd(),
        "root": os.stat("/").st_ino,
        "time": abs(time.time() - os.stat("/proc/self").st_ctime) < 30,
    }
