"""
The last steps of a process that is to be a rank, forked from a warm interpreter (``warm.py``): what a fresh interpreter
would have from its surroundings, set where the forked one has it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_MM = 35
_PR_SET_MM_MAP = 14

_CONFIG_BYTES = 1024
_SEED_OF_OLDER_TORCH = 67280421310721
"""Source: PyTorch's c10/core/GeneratorImpl.h, ``default_rng_seed_val``."""

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


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


def become(one: dict[str, Any], state: Any) -> None:
    """Make this process the rank, up to where its interpreter goes on; or execute its command."""
    env, report, fork_server = one["env"], one["report"], one["fork_server"]
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != fork_server:
            os._exit(128 + signal.SIGKILL)
        output = os.open(one["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.chdir(one["cwd"])
    except OSError as error:
        os.write(report, ("error %s: %s" % (error.strerror, error.filename)).encode(errors="replace"))
        os._exit(_NOT_EXECUTABLE if isinstance(error, PermissionError) else _NOT_FOUND)
    if one["cores"]:
        try:
            os.sched_setaffinity(0, one["cores"])
        except OSError:
            pass
    try:
        _prctl(_PR_SET_NAME, state.name.encode())
        state.script.move()
        show(one["argv"], env)
        _renew(state.variables_after(env))
        sys.argv[1:] = one["args"]
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[:] = one["argv"]
        if state.said:
            os.write(1, state.said)
    except BaseException as error:  # noqa: BLE001 - then the command itself
        os.write(report, ("cold %s: %s" % (type(error).__name__, error)).encode(errors="replace")[:400])
        _execute(one)
    os.close(report)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _execute(one: dict[str, Any]) -> None:
    try:
        os.chdir(one["folder"])
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(one["command"][0], one["command"], one["variables"])  # noqa: S606 - the user's own program
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


class _Map(ctypes.Structure):
    """``struct prctl_mm_map``. Source: linux/prctl.h."""

    _fields_ = [
        *[
            (name, ctypes.c_uint64)
            for name in ("start_code", "end_code", "start_data", "end_data", "start_brk")
        ],
        *[(name, ctypes.c_uint64) for name in ("brk", "start_stack", "arg_start", "arg_end", "env_start")],
        *[(name, ctypes.c_uint64) for name in ("env_end", "auxv")],
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_uint32),
    ]


def show(argv: list[str], env: dict[str, str]) -> None:
    """Show other processes this command line and environment as this one's. Raises OSError."""
    arguments = b"".join(os.fsencode(word) + b"\0" for word in argv)
    variables = b"".join(os.fsencode("%s=%s" % one) + b"\0" for one in env.items())
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
    wanted = _Map(
        *(int(fields[at]) for at in (23, 24, 42, 43, 44)),
        top,
        int(fields[25]),
        start,
        start + len(arguments),
        start + len(arguments),
        start + size,
        0,
        0,
        0xFFFFFFFF,
    )
    length = ctypes.c_ulong(ctypes.sizeof(wanted))
    if libc.prctl(_PR_SET_MM, ctypes.c_ulong(_PR_SET_MM_MAP), ctypes.byref(wanted), length, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel does not let a process set its own command line")


def _prctl(option: int, value: Any) -> None:
    argument = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)
    ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)


def _content(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""
