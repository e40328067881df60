"""
An interpreter that is held in the middle of its own start, with what its program imports imported, and its forks.

``sitecustomize.py`` calls ``serve`` in a process that was started as a rank's is, ``python [flags] train.py``, with the
number of a socket in ``DRUMLINE_WARM_SERVER``. It imports what it is told to and waits. For each agent it forks a
*fork server*; for each rank the fork server forks, and in that child ``serve`` returns: the interpreter goes on as if
nothing had been, with the environment, arguments, descriptors and working folder of the rank. So the rank's
``__main__``, its path, its flags and its tracebacks are the interpreter's own doing, and there is nothing here to
imitate.

Whatever goes wrong in that child before it returns: it executes the rank's own command instead, and says why.

It runs in users' environments: the standard library alone, Python 3.9 or newer. Messages are JSON behind their length
in four bytes (``node/warm/pool_folder.py``).
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional

VARIABLE = "DRUMLINE_WARM_SERVER"

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_MM = 35
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_MM_MAP = 14

_CAPABILITIES_VERSION = 0x20080522
_MOST_NAMESPACES = 16

_CONFIG_BYTES = 1024
_SEED_OF_OLDER_TORCH = 67280421310721
"""Source: PyTorch's c10/core/GeneratorImpl.h, ``default_rng_seed_val``."""

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126

_END_TIMEOUT_S = 60.0
_STRAYS_TIMEOUT_S = 5.0


def serve(own: Callable[[str], dict[str, Any]]) -> None:
    """
    Serve the pool; returns in ranks only. Ends with the process that holds the other end of the socket.

    ``own`` gives the names that a file beside this one defines.
    """
    pool = socket.socket(fileno=int(os.environ.pop(VARIABLE)))
    pool.set_inheritable(False)
    task = _receive(pool)
    if task is None:
        os._exit(0)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    imports = own("warm_imports.py")
    state = imports["State"](task)
    try:
        state.script = Script(task["target"])
        report = state.warm_up()
    except BaseException as error:  # noqa: BLE001 - whatever an import raises
        why = (
            str(error)
            if isinstance(error, imports["UnfitError"])
            else "%s: %s" % (type(error).__name__, error)
        )
        _send(pool, {"unfit": why[:500], "tainted": state.tainted, "closure": state.closure()})
        os._exit(0)
    with_names = ["drumline-warm:", os.path.basename(sys.executable), *task["target"]]
    try:
        show(with_names, dict(os.environ))
    except OSError:
        pass  # It is a rank's first try that says so.
    # What was imported is never looked at again by a rank's collector, nor copied for it: at its end above all.
    gc.collect()
    gc.freeze()
    # Who tells all of a job to end, as Slurm does, means its ranks: each takes them in when it is one.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    _send(pool, {"ready": report})
    _prctl(_PR_SET_NAME, b"drumline-warm")
    become(_wait(pool, state), state)


def _wait(pool: socket.socket, state: Any) -> dict[str, Any]:
    """Fork a fork server whenever one is asked for. Returns in a rank alone: what it is to be."""
    fork_servers: dict[int, int] = {}
    poller = select.poll()
    poller.register(pool, select.POLLIN)
    while True:
        ready = [number for number, _ in poller.poll()]
        for pidfd, pid in list(fork_servers.items()):
            if pidfd in ready:
                poller.unregister(pidfd)
                os.close(pidfd)
                del fork_servers[pidfd]
                _end_strays(set(fork_servers.values()))
                _send(pool, {"ended": pid})
        if pool.fileno() not in ready:
            continue
        message = _receive(pool)
        if message is None:
            os._exit(0)
        changed = state.stale()
        _, (descriptor, *_rest), _, _ = socket.recv_fds(pool, 1, 1)
        if changed:
            _send(pool, {"stale": changed})
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            pool.close()
            for pidfd in fork_servers:
                os.close(pidfd)
            del poller
            return _serve_agent(socket.socket(fileno=descriptor))
        os.close(descriptor)
        pidfd = os.pidfd_open(pid)
        fork_servers[pidfd] = pid
        poller.register(pidfd, select.POLLIN)
        _send(pool, {"fork_server": pid})


def _end_strays(fork_servers: set[int]) -> None:
    """End the processes that a killed fork server has left; they are ours now."""
    deadline = time.monotonic() + _STRAYS_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            continue
        strays = [child for child in _children(os.getpid()) if child not in fork_servers]
        if not strays:
            return
        for child in strays:
            _kill(child)
        time.sleep(0.001)


def _serve_agent(agent: socket.socket) -> dict[str, Any]:
    """Serve one agent to its end. Returns in a rank alone, where everything else has been left behind."""
    os.setsid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_NAME, b"drumline-ranks")
    while True:
        try:
            message = _receive(agent)
        except OSError:
            message = None
        if message is None:
            _end_all()
            os._exit(0)
        if message["do"] == "start":
            reports: list[tuple[int, int]] = []
            for rank in message["ranks"]:
                reader, writer = os.pipe()
                fork_server, pid = os.getpid(), os.fork()
                if pid == 0:
                    os.close(reader)
                    for _, other in reports:
                        os.close(other)
                    agent.close()
                    return {**rank, "report": writer, "fork_server": fork_server}
                os.close(writer)
                reports.append((pid, reader))
            _send(agent, {"started": [_outcome(pid, reader) for pid, reader in reports]})
        elif message["do"] == "enter":
            _send(agent, {"failure": enter_node(agent, message["names"])})
        else:
            _send(agent, {"ended": _reap()})


def _outcome(pid: int, reader: int) -> dict[str, Any]:
    with os.fdopen(reader, "rb") as report:
        said = report.read().decode(errors="replace")
    kind, _, text = said.partition(" ")
    return {"pid": pid, "error": text if kind == "error" else "", "cold": text if kind == "cold" else ""}


def _reap() -> list[list[Any]]:
    ended: list[list[Any]] = []
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append(
            [pid, os.waitstatus_to_exitcode(status), usage.ru_maxrss << 10, usage.ru_utime + usage.ru_stime]
        )


def _end_all() -> None:
    """End everything below: the agent is gone, and nothing of its job may be left."""
    deadline = time.monotonic() + _END_TIMEOUT_S
    while time.monotonic() < deadline:
        below = _children(os.getpid())
        for pid in below:  # It grows meanwhile.
            below += _children(pid)
        for pid in below:
            _kill(pid)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.001)
        except ChildProcessError:
            return


def _receive(peer: socket.socket) -> Optional[dict[str, Any]]:
    """Receive the next message; None at the end of the connection."""
    head = _exactly(peer, 4)
    if head is None:
        return None
    body = _exactly(peer, struct.unpack("!I", head)[0])
    message: Optional[dict[str, Any]] = None if body is None else json.loads(body)
    return message


def _exactly(peer: socket.socket, count: int) -> Optional[bytes]:
    found = b""
    while len(found) < count:
        more = peer.recv(count - len(found))
        if not more:
            return None
        found += more
    return found


def _send(peer: socket.socket, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    try:
        peer.sendall(struct.pack("!I", len(body)) + body)
    except OSError:
        pass  # Whoever is gone is seen to be at the next read.


def _prctl(option: int, value: Any) -> None:
    argument = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)
    ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)


def _content(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return []
    return [int(one) for task in tasks for one in _content("/proc/%d/task/%s/children" % (pid, task)).split()]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass


# The last steps of a process that is to be a rank: what a fresh interpreter would have from its surroundings, set where
# the forked one has it.


class Script:
    """
    The absolute path of the program, which an interpreter works out before it imports anything: in a rank that is in
    another folder it must be another. It stands in the interpreter's configuration, and is found there by what it is.

    Source: ``PyConfig.run_filename``, docs.python.org/3/c-api/init_config.html.
    """

    def __init__(self, target: list[str]) -> None:
        self._is_fixed = len(target) > 1 or os.path.isabs(target[0])
        self._folder = os.getcwd()
        self._field = 0 if self._is_fixed else self._find(target[0])
        self._rest = ctypes.c_wchar_p.from_address(self._field).value if self._field else ""

    def _find(self, target: str) -> int:
        """Find the address of the pointer to the target; 0 where there is none."""
        try:
            get = ctypes.pythonapi._Py_GetConfig
        except AttributeError:
            return 0
        get.restype = ctypes.c_void_p
        start, readable = get(), _readable()
        tail = os.path.basename(target)
        for field in range(start, start + _CONFIG_BYTES, 8):
            if not _is_within(field, 8, readable):
                return 0
            pointer = ctypes.c_uint64.from_address(field).value
            length = len(self._folder) + 1 + len(target)
            if pointer % 4 or not _is_within(pointer, 4 * (length + 1), readable):
                continue
            try:
                text = ctypes.wstring_at(pointer, length + 1).partition("\0")[0]
            except ValueError:  # no text at all
                continue
            if text.startswith(self._folder + os.sep) and text.endswith(tail):
                return field
        return 0

    def move(self) -> None:
        """Move to the folder that this process is in now. Raises RuntimeError where this Python does not let it."""
        folder = os.getcwd()
        if self._is_fixed or folder == self._folder:
            return
        if not self._field:
            raise RuntimeError("this Python does not let its program be in another folder")
        text = ctypes.create_unicode_buffer(folder + (self._rest or "")[len(self._folder) :])
        allocate = ctypes.pythonapi.PyMem_RawMalloc
        allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        place = allocate(ctypes.sizeof(text))
        ctypes.memmove(place, text, ctypes.sizeof(text))
        ctypes.c_uint64.from_address(self._field).value = place


def _readable() -> list[tuple[int, int]]:
    ranges = []
    for line in _content("/proc/self/maps").splitlines():
        fields = line.split()
        if fields[1].startswith("rw"):
            low, _, high = fields[0].partition("-")
            ranges.append((int(low, 16), int(high, 16)))
    return ranges


def _is_within(address: int, count: int, ranges: list[tuple[int, int]]) -> bool:
    return any(low <= address and address + count <= high for low, high in ranges)


def become(task: dict[str, Any], state: Any) -> None:
    """Make this process the rank of that task, up to where its interpreter goes on; or execute its command."""
    env, report, fork_server = task["env"], task["report"], task["fork_server"]
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != fork_server:
            os._exit(128 + signal.SIGKILL)
        output = os.open(task["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.chdir(task["cwd"])
    except OSError as error:
        os.write(report, ("error %s: %s" % (error.strerror, error.filename)).encode(errors="replace"))
        os._exit(_NOT_EXECUTABLE if isinstance(error, PermissionError) else _NOT_FOUND)
    if task["cores"]:
        try:
            os.sched_setaffinity(0, task["cores"])
        except OSError:
            pass
    try:
        _prctl(_PR_SET_NAME, state.name.encode())
        state.script.move()
        show(task["argv"], env)
        _renew(state.variables_after(env))
        sys.argv[1:] = task["args"]
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[:] = task["argv"]
        if state.printed:
            os.write(1, state.printed)
    except BaseException as error:  # noqa: BLE001 - then the command itself
        os.write(report, ("cold %s: %s" % (type(error).__name__, error)).encode(errors="replace")[:400])
        _execute(task)
    os.close(report)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _execute(task: dict[str, Any]) -> None:
    try:
        os.chdir(task["folder"])
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(task["command"][0], task["command"], task["variables"])  # noqa: S606 - the user's own program
    except OSError:
        os._exit(_NOT_FOUND)


def _renew(env: dict[str, str]) -> None:
    """Renew what a fresh interpreter has from its surroundings, and modules keep of the process that imported them."""
    posix = sys.modules["posix"]
    os.environ.clear()
    os.environ.update(env)
    own = getattr(posix, "environ", None)
    if isinstance(own, dict):
        own.clear()
        own.update({os.fsencode(name): os.fsencode(value) for name, value in env.items()})
    threading = sys.modules.get("threading")
    if threading is not None:
        main: Any = threading.main_thread()
        if hasattr(main, "_set_native_id"):
            main._set_native_id()
    logging: Any = sys.modules.get("logging")
    if logging is not None and hasattr(logging, "_startTime"):
        is_ns = isinstance(logging._startTime, int)
        logging._startTime = time.time_ns() if is_ns else time.time()
    tempfile: Any = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = tempfile._name_sequence = None
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = os.getcwd()
        process.current_process()._config["authkey"] = process.AuthenticationString(os.urandom(32))
    random: Any = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()
    config: Any = getattr(sys.modules.get("torch._dynamo.config"), "_config", None)
    if isinstance(config, dict) and hasattr(config.get("debug_dir_root"), "default"):
        config["debug_dir_root"].default = os.path.join(os.getcwd(), "torch_compile_debug")
    generator = getattr(sys.modules.get("torch"), "default_generator", None)
    # Older versions begin with the same number everywhere.
    if generator is not None and generator.initial_seed() != _SEED_OF_OLDER_TORCH:
        generator.seed()


def show(argv: list[str], env: dict[str, str]) -> None:
    """Show other processes this command line and environment as this one's. Raises OSError."""
    arguments = b"".join(os.fsencode(word) + b"\0" for word in argv)
    variables = b"".join(os.fsencode("%s=%s" % pair) + b"\0" for pair in env.items())
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_uint64
    size = len(arguments) + len(variables)
    # Private, anonymous, to be read and written: there until the process ends.
    start = libc.mmap(None, ctypes.c_size_t(size), 3, 0x22, -1, ctypes.c_long(0))
    if start == ctypes.c_uint64(-1).value:
        raise OSError(ctypes.get_errno(), "no memory for the command line")
    ctypes.memmove(start, arguments + variables, size)
    fields = _content("/proc/self/stat").rpartition(")")[2].split()
    libc.sbrk.restype = ctypes.c_uint64
    top = libc.sbrk(0)
    # struct prctl_mm_map: code, data, heap and stack as they are, then arguments and environment; no auxiliary vector,
    # and no other program. Source: linux/prctl.h.
    places = [int(fields[at]) for at in (23, 24, 42, 43, 44)] + [top, int(fields[25])]
    middle = start + len(arguments)
    wanted = struct.pack("12Q2I", *places, start, middle, middle, start + size, 0, 0, 0xFFFFFFFF)
    option, length = ctypes.c_ulong(_PR_SET_MM_MAP), ctypes.c_ulong(len(wanted))
    if libc.prctl(_PR_SET_MM, option, wanted, length, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel does not let a process set its own command line")


# The move of a fork server to an isolated node: into the namespaces of the agent whose ranks it forks.
# Source: setns(2), user_namespaces(7), capabilities(7).


def enter_node(agent: socket.socket, names: list[str]) -> str:
    """
    Enter the namespaces whose descriptors come next from the agent, in that order; return why that could not be, else
    nothing. ``names``: of their files in /proc/self/ns.
    """
    _, descriptors, _, _ = socket.recv_fds(agent, 1, _MOST_NAMESPACES)
    try:
        folder = os.getcwd()
        for name, descriptor in zip(names, descriptors):
            if os.fstat(descriptor).st_ino != os.stat("/proc/self/ns/" + name).st_ino:
                _call("setns", descriptor, 0)
        # To enter mounts is to be in their root.
        os.chdir(folder)
        if os.geteuid() != 0:
            # What an ordinary user gains with a user namespace, and loses when it starts a program there.
            nothing = (ctypes.c_uint32 * 6)()
            _call("capset", (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0), nothing)
            # To gain it has closed /proc/PID to the process's own user.
            _call("prctl", _PR_SET_DUMPABLE, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    except OSError as error:
        return str(error)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    platform: Any = sys.modules.get("platform")
    if platform is not None:
        # It has noted the names of the machine, and asks again.
        platform._uname_cache = None
    return ""


def _call(name: str, *arguments: Any) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (name, os.strerror(number)))
