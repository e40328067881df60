"""
The program that every Python of a rank runs first: it notes down how the rank failed, for the verdict.

It stands first on the ranks' PYTHONPATH, in a folder of its own, and then lets the ``sitecustomize`` run that would
have been found without it. It runs in the user's environment, before the user's program: the standard library alone,
Python 3.7 or newer, nothing imported that costs time. ``DRUMLINE_HOOK=0`` keeps it away (``node/hook_folder.py``).

An uncaught exception becomes one line of JSON, appended to the file named in ``DRUMLINE_FAILURES``. ``sys.excepthook``
is wrapped for that; where a program puts another in its place, ``sys.last_value`` still tells at the interpreter's end.
An ordinary end is noted too, with its time alone: from here on what the program has open is closed. ``sys.exit`` is
wrapped, as ``exit`` and ``quit`` are, and adds the message or the exception that the program handles as it ends with
another code; ``os.kill`` adds whom the program sends a signal that ends it, which the kernel tells nobody else. A crash
of native code leaves its Python stack in the log, by faulthandler, and so does ``_SIGNAL``, at any time, in memory that
the agent reads (``stacks.py`` in ``node/diagnostics``). Where the job uses PyTorch's flight recorder, a thread waits to
be asked for its record (``collectives.py`` there). What MLflow writes to files that several ranks share is made whole
(``file_store.py``). The first process group of PyTorch is noted, and its store is one that PyTorch has, and looked for
once it is there; its first optimizer is noted too (``group.py``).
Steps of training loops are timed (``steps.py``); of frameworks without such steps, a thread notes where the program is
(``looks.py``). DeepSpeed's autotuner is spared its fixed waits. A job that is about to end asks by another signal what
a program that still cleans up fails of (``chain.py``, as for a failure).
"""

from __future__ import annotations

import os
import sys
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Any

_MOST_BYTES = 1 << 16
_MEMORY_NAME = "drumline-stacks"
_SIGNAL_BELOW_MAX = 4
_IN_FLIGHT_BELOW_MAX = 5
_MARK_BELOW_MAX = 6
_WENT_ON = b"went on\n"
_ENDING_SIGNALS = (2, 9, 15)
"""SIGINT, SIGKILL, SIGTERM."""

_COORDINATION = "jax._src.distributed"
_FILE_STORE = "mlflow.store.tracking.file_store"
_DISTRIBUTED = "torch.distributed.distributed_c10d"
_OPTIMIZER = "torch.optim.optimizer"
_OTHER_FRAMEWORKS = ("tensorflow", "jax", "mpi4py.MPI")
_RANK_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK")
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_HIGH_DESCRIPTOR = 900
"""A program that closes all that it inherited, and opens files anew, gives them low numbers."""


class _Notes:
    """A program's own hook, and what it does at its end, come before and after these, whenever ``begin`` is called."""

    def __init__(self) -> None:
        import atexit

        self._noted: BaseException | None = None
        self._left: tuple[float, str] | None = None
        self._past: BaseException | None = None
        self._of_group = ""
        self._hook = sys.excepthook
        sys.excepthook = self.excepthook
        self._sys_exit, self._os_kill = sys.exit, os.kill
        atexit.register(self.at_end)

    def begin(self, path: str) -> None:
        self._path = path
        self._pid = os.getpid()
        self._parent = os.getppid()
        self._variables = {name: os.environ.get(name, "") for name in _RANK_VARIABLES}
        _put_into(sys, "exit", self.exit)
        self._watch_quitters()
        _put_into(os, "kill", self.kill)
        self._watch_handler()

    def excepthook(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if _runs_program(sys._getframe()):
            # A program that calls it for what it has handled goes on, and may fail of something else.
            self._hook(kind, error, trace)
            return
        self._note(error, trace)
        self._hook(kind, error, trace)
        self._abandon()

    def exit(self, status: Any = None) -> Any:
        self._leave(status)
        return self._sys_exit(status)

    def _watch_quitters(self) -> None:
        """Watch ``exit`` and ``quit``, which programs call as well as ``sys.exit``."""
        quitter = type(getattr(sys.modules["builtins"], "exit", None))
        if quitter.__name__ == "Quitter":
            quit_program = quitter.__call__

            def call(quitter: Any, code: Any = None) -> None:
                self._leave(code)
                quit_program(quitter, code)

            quitter.__call__ = call  # type: ignore[method-assign]

    def _leave(self, status: Any) -> None:
        try:
            self._left = None
            # Python has kept it, but a test that failed may be why a program ends with 1.
            if status != 1 and _runs_program(sys._getframe()):
                self._past = getattr(sys, "last_value", None)
            if status:
                self._left = _own("chain.py")["leave"](status, globals())
                if _COORDINATION in sys.modules:
                    import atexit

                    atexit.register(self._abandon)
        except Exception:
            pass

    def kill(self, pid: int, number: int) -> None:
        if number in _ENDING_SIGNALS:
            frame = sys._getframe(1)
            while frame.f_back is not None and not _is_own(frame.f_code.co_filename):
                frame = frame.f_back
            place = (_quote(frame.f_code.co_filename), frame.f_lineno, _quote(frame.f_code.co_name))
            sent = ', "sent": %d, "to": %d, "file": %s, "line": %d, "function": %s' % (number, pid, *place)
            # However many it sends, there is room for its end.
            self._write(monotonic(), sent, _MOST_BYTES // 4)
        self._os_kill(pid, number)

    def _watch_handler(self) -> None:
        """Watch the program's handler of SIGTERM: it may then end with 0, as a program that has done all it was to."""
        import _signal  # type: ignore[import-not-found]  # signal itself takes milliseconds

        set_handler, get_handler = _signal.signal, _signal.getsignal

        def put(number: Any, handler: Any) -> Any:
            def call(number: int, frame: Any) -> Any:
                self._write(monotonic(), ', "terminated": true', _MOST_BYTES // 4)
                return handler(number, frame)

            call.drumline_own = handler  # type: ignore[attr-defined]
            is_watched = number == _ENDING_SIGNALS[-1] and callable(handler)
            return find_own(set_handler(number, call if is_watched else handler))

        def find_own(handler: Any) -> Any:
            return getattr(handler, "drumline_own", handler)

        _put_into(_signal, "signal", put)
        _put_into(_signal, "getsignal", lambda number: find_own(get_handler(number)))

    def _abandon(self) -> None:
        """Keep JAX from waiting at the end of a program that failed: the others will not come there."""
        state: Any = getattr(sys.modules.get(_COORDINATION), "global_state", None)
        if getattr(state, "client", None) is not None:
            # Without a reference it would be closed, and wait all the same.
            self._client, state.client = state.client, None

    def at_end(self) -> None:
        error = getattr(sys, "last_value", None)
        if isinstance(error, BaseException) and not isinstance(error, SystemExit) and error is not self._past:
            self._note(error, error.__traceback__)
        elif os.getpid() == self._pid:
            at, content = self._left or (monotonic(), "")
            noted = _loaded.get("collectives.py", {}).get("noted")
            if noted is not None:
                content += ', "entered": %d, "world": %d' % (noted.counts[0] + noted.cut_off, noted.ranks)
            self._write(at, content, _MOST_BYTES // 2)
        try:
            os.unlink("%s.%d.ask" % (self._path, os.getpid()))
        except OSError:
            pass

    def group(self, backend: str) -> None:
        self._write(monotonic(), ', "group": ' + _quote(backend) + self._of_group, _MOST_BYTES // 2)

    def older_store(self) -> None:
        self._of_group = ', "libuv": false'

    def training(self) -> None:
        self._write(monotonic(), ', "training": true', _MOST_BYTES // 2)

    def _note(self, error: BaseException, trace: TracebackType | None) -> None:
        at = monotonic()
        if self._noted is error:
            return
        self._noted = error
        _make_room()
        # What a signal's handler raises meanwhile may tell more, as that of PyTorch's loader does.
        try:
            raised = self._try_to_write(at, error, trace, None)
        except (
            Exception
        ) as early:  # Python calls such a handler as the function begins, before its own "try".
            raised = early
        if raised is not None and self._try_to_write(at, error, trace, raised) is not None:
            self._try_to_write(at, error, trace, None, with_chain=False)

    def _try_to_write(
        self,
        at: float,
        error: BaseException,
        trace: TracebackType | None,
        root: BaseException | None,
        *,
        with_chain: bool = True,
    ) -> BaseException | None:
        """Return what was raised: whatever is wrong here, the program's own failure is what counts."""
        try:
            chain = _chain(error, trace, root, self._variables) if with_chain else ""
            self._write(at, ", " + _content(error, trace) + chain)
        except Exception as raised:
            return raised
        return None

    def _write(self, at: float, content: str, most_bytes: int = _MOST_BYTES) -> None:
        pid = os.getpid()
        # A child that was forked has this object too, and another parent.
        parent = self._parent if pid == self._pid else os.getppid()
        text = '{"at": %r, "pid": %d, "parent": %d%s}\n' % (at, pid, parent, content)
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if os.fstat(descriptor).st_size < most_bytes:
                    os.write(descriptor, text.encode("ascii"))
            finally:
                os.close(descriptor)
        except OSError:
            pass


def _put_into(module: Any, name: str, method: Any) -> None:
    """Put a method in the place of a module's function, under whose name it is pickled as that was."""

    def call(*arguments: Any) -> Any:
        return method(*arguments)

    call.__module__, call.__name__, call.__qualname__ = module.__name__, name, name
    setattr(module, name, call)


def _runs_program(frame: FrameType) -> bool:
    """Return whether a program or a thread of it has called this frame, and not the interpreter at its end."""
    while frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name in ("<module>", "_run_module_as_main", "_bootstrap")


def _make_room() -> None:
    """Close the standard input where no file can be opened: that is often what the program fails of."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        try:
            os.close(0)
        except OSError:
            pass


def _content(error: BaseException, trace: TracebackType | None, most: int = 2000) -> str:
    """Return the note of an exception, as the members of an object of JSON."""
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = kind.__module__ + "." + name
    file, line, function = _place_of(error, trace)
    texts = {"type": name, "message": _message_of(error), "file": file, "function": function}
    if isinstance(error, ModuleNotFoundError):
        texts["python"] = sys.executable or ""
    return ", ".join('"%s": %s' % (key, _quote(text, most)) for key, text in texts.items()) + (
        ', "line": %d' % line
    )


def _chain(
    error: BaseException, trace: TracebackType | None, root: BaseException | None, variables: dict[str, str]
) -> str:
    """Return the exceptions that this one came of, and what else explains it, as further members."""
    before, further = _own("chain.py")["follow"](error, trace, root, variables)
    noted = ", ".join("{%s}" % _content(one, one.__traceback__, 1000) for one in before)
    texts = "".join(', "%s": %s' % (key, _quote(text)) for key, text in further.items())
    return ', "chain": [%s]%s' % (noted, texts)


def _quote(text: str, most: int = 2000) -> str:
    """
    Quote as JSON, without its module: the program may have one of that name, or have lost the library.

    Of a long text the middle is left out: the end of a message may be another process's exception.
    """
    if len(text) > most:
        head, tail = text[: most // 2], text[-most // 2 :]
        text = head[: head.rfind("\n") + 1 or None] + tail[tail.find("\n") + 1 :]
    shown = [
        letter if " " <= letter <= "~" and letter not in '"\\' else _escape(ord(letter)) for letter in text
    ]
    return '"%s"' % "".join(shown)


def _escape(number: int) -> str:
    if number > 0xFFFF:
        number -= 0x10000
        return "\\u%04x\\u%04x" % (0xD800 + (number >> 10), 0xDC00 + (number & 0x3FF))
    return "\\u%04x" % number


def _message_of(error: BaseException) -> str:
    """Return the exception's message, with its leaves and notes, a line each."""
    try:
        lines = [str(error)]
        lines += [type(leaf).__name__ + ": " + str(leaf) for leaf in _leaves(error) if leaf is not error]
        if type(error.__cause__).__name__ in ("RemoteTraceback", "_RemoteTraceback"):
            lines.append(str(error.__cause__))
        notes = getattr(error, "__notes__", None)
        if isinstance(notes, list):
            lines.extend(str(note) for note in notes[:8])
        return "\n".join(lines)
    except Exception:
        return ""


def _leaves(error: BaseException, most: int = 8) -> list[BaseException]:
    """Return the exceptions that a group, as that of a task group, stands for; of another exception itself."""
    inner = getattr(error, "exceptions", None)
    if not isinstance(inner, (list, tuple)) or not inner:
        return [error]
    found: list[BaseException] = []
    for one in inner:
        if isinstance(one, BaseException) and len(found) < most:
            found.extend(_leaves(one, most - len(found)))
    return found or [error]


def _place_of(error: BaseException, trace: TracebackType | None) -> tuple[str, int, str]:
    """
    Return file, line and function: the last that is the user's own, of a group the first leaf's.

    Where there is none: that of a command line, else the last of the installed package that the program is.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return str(error.filename), int(error.lineno or 0), ""
    own, other = _frame_of(trace)
    leaf = _leaves(error)[0]
    if leaf is not error:
        own = _frame_of(leaf.__traceback__)[0] or own
    return own or other or ("", 0, "")


def _frame_of(trace: TracebackType | None) -> tuple[Any, Any]:
    own = other = None
    package = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        file = code.co_filename
        here = (file, trace.tb_lineno, code.co_name)
        if _is_own(file):
            own = here
        elif file in ("<string>", "<stdin>") or file.startswith(sys.prefix + "/bin/"):
            other = other or here
        elif "-packages" in file:
            installed = file.rpartition("-packages" + os.sep)[2].partition(os.sep)[0]
            package = package or installed
            if other is None or (installed == package and other[0][0] != "<"):
                other = here
        trace = trace.tb_next
    return own, other


def _is_own(file: str) -> bool:
    if file.startswith(("<", _HERE)) or "site-packages" in file or "dist-packages" in file:
        return False
    return not (
        file.startswith((sys.prefix, sys.base_prefix))
        and ("/lib/python" in file or file.startswith(sys.prefix + "/bin/"))
    )


def _start(path: str, notes: _Notes) -> Any:
    notes.begin(path)
    _change((_DISTRIBUTED,), "group.py", "note_group", notes.group, notes.older_store)
    if os.environ.get("WORLD_SIZE", "") not in ("", "1"):
        _change((_OPTIMIZER,), "group.py", "note_training", notes.training)
    # Where there is no standard error, or a program's own is no file, there is nowhere to leave a stack.
    try:
        import faulthandler

        if sys.stderr is not None and not faulthandler.is_enabled():
            faulthandler.enable()
    except (ImportError, OSError, RuntimeError, ValueError, AttributeError):
        pass
    if os.environ.get("TORCH_FR_BUFFER_SIZE", "0") not in ("", "0"):
        _answer_with_record(path)
    tell = _answer_with_exception(path)
    stacks = _Stacks()
    stacks.answer()
    try:
        os.register_at_fork(after_in_child=stacks.answer)
    except AttributeError:
        pass
    return tell


def _answer_with_exception(path: str) -> Any:
    """Answer a signal with what is handled just now; return what tells that beside the notes at ``path``."""

    def tell(*_: Any) -> None:
        error = sys.exc_info()[1]
        try:
            _own("chain.py")["tell_in_flight"](path, error, globals())
        except Exception:
            pass

    _handle_signal(_IN_FLIGHT_BELOW_MAX, tell)
    return tell


def _handle_signal(below_max: int, handler: Any, *, interrupts: bool = True) -> None:
    """Call ``handler`` for a signal of ours; ``interrupts``: native code that it comes in stops waiting."""
    try:
        import atexit

        # signal itself takes milliseconds
        from _signal import SIG_IGN, SIGRTMAX, siginterrupt, signal

        number = SIGRTMAX - below_max
        signal(number, handler)
        siginterrupt(number, interrupts)
        # One that comes when the interpreter is gone must find nothing in Python.
        atexit.register(signal, number, SIG_IGN)
    except (ImportError, OSError, ValueError):
        pass


class _Stacks:
    """A fork has a memory of its own: what it writes must not mix with its parent's."""

    def __init__(self) -> None:
        self._memory = -1
        # Native code seldom expects that a read fails because a signal came.
        _handle_signal(_MARK_BELOW_MAX, self._went_on, interrupts=False)

    def _went_on(self, *_: Any) -> None:
        """Note that the main thread runs Python: a native call that does not return shows by the absence of this."""
        try:
            os.write(self._memory, _WENT_ON)
        except OSError:
            pass

    def answer(self) -> None:
        try:
            before, self._memory = self._memory, _answer_with_stacks(is_first=self._memory < 0)
            # A program that closed all it had, as a daemon, may have another file under that number.
            if before >= 0 and _MEMORY_NAME in os.readlink("/proc/self/fd/%d" % before):
                os.close(before)
        except (ImportError, OSError, RuntimeError, ValueError, AttributeError):
            pass


def _answer_with_stacks(*, is_first: bool) -> int:
    import faulthandler
    from _signal import SIG_IGN, SIGRTMAX, signal  # signal itself takes milliseconds
    from fcntl import F_DUPFD_CLOEXEC, F_SETFL, fcntl

    memory = os.memfd_create(_MEMORY_NAME, os.MFD_CLOEXEC)
    for high in (_HIGH_DESCRIPTOR, 200, 50):
        try:
            low, memory = memory, fcntl(memory, F_DUPFD_CLOEXEC, high)
            os.close(low)
            break
        except OSError:  # fewer are allowed
            continue
    fcntl(memory, F_SETFL, os.O_APPEND)
    number = SIGRTMAX - _SIGNAL_BELOW_MAX
    if is_first:
        # What faulthandler leaves behind at the interpreter's end.
        signal(number, SIG_IGN)
    # With ``chain`` a system call that the signal comes in would fail.
    faulthandler.register(number, file=memory, all_threads=True, chain=False)
    return memory


def _answer_with_record(path: str) -> None:
    try:
        from _signal import SIG_BLOCK, SIG_SETMASK, pthread_sigmask, valid_signals
        from _thread import start_new_thread

        pipe = "%s.%d.ask" % (path, os.getpid())
        if os.path.exists(pipe):  # This process was another program before.
            os.unlink(pipe)
        os.mkfifo(pipe, 0o600)
        # A signal that the program blocks must not come to a thread that it knows nothing of.
        before = pthread_sigmask(SIG_BLOCK, valid_signals())
        try:
            start_new_thread(_record, (os.open(pipe, os.O_RDWR | os.O_CLOEXEC), path, os.getpid()))
        finally:
            pthread_sigmask(SIG_SETMASK, before)
    except (ImportError, OSError, RuntimeError):
        pass


def _record(asked: int, path: str, pid: int) -> None:
    """Write a record of PyTorch's recorder each time that a byte comes."""
    try:
        while os.read(asked, 64):
            torch = sys.modules.get("torch._C")
            dump = getattr(getattr(torch, "_distributed_c10d", None), "_dump_fr_trace_json", None)
            record = b"" if dump is None else dump()
            partial = "%s.%d.partial" % (path, pid)
            with open(
                os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb"
            ) as file:
                file.write(record.encode() if isinstance(record, str) else record)
            os.rename(partial, "%s.%d.record" % (path, pid))
    except Exception:
        pass


class _Watch:
    """
    A finder that watches imports: it finds nothing itself, and leaves when the first of its modules is executed. A
    program may look for a module before that, without an import.
    """

    def __init__(self, names: tuple[str, ...], change: Any) -> None:
        self._names = names
        self._change = change

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self._names:
            return None
        try:
            # Those before this one have been asked, and would ask it again.
            for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    self._follow(spec.loader)
                    return spec
        except Exception:
            pass
        return None

    def _follow(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            del loader.exec_module
            is_first = self in sys.meta_path
            if is_first:
                sys.meta_path.remove(self)
            execute(module)
            if is_first:
                self._change(module)

        loader.exec_module = exec_module


def _change(names: tuple[str, ...], file: str, function: str, *more: Any) -> None:
    """
    Let a function of a file beside this one change a module of the program's, now or when it is imported: the first of
    these that is. The file says why.

    ``more``: what the function takes after the module.
    """

    _change_by(names, lambda module: _own(file)[function](module, *more))


def _change_by(names: tuple[str, ...], change: Any) -> None:
    """Call ``change`` with the first of these modules, as one that a warm start has; no error leaves it."""

    def try_to_change(module: Any) -> None:
        try:
            change(module)
        except Exception:
            pass

    for name in names:
        if name in sys.modules:
            try_to_change(sys.modules[name])
            return
    sys.meta_path.insert(0, _Watch(names, try_to_change))


class _Ours:
    """
    A finder for programs whose Python has no drumline, as in an environment built for the job: it finds the one that
    started it. Where there is no azureml-core, it answers ``azureml`` from that.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if name == "azureml" or name.startswith("azureml."):
            from importlib import import_module

            try:
                return import_module("drumline.azure").find_v1(name, path)
            except ImportError:  # of a container, or another version of the user's
                return None
        package = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
        start = os.path.join(package, "__init__.py")
        if name != "drumline" or not os.path.exists(start):
            return None
        from importlib.util import spec_from_file_location

        return spec_from_file_location(name, start, submodule_search_locations=[package])


def _log_to_the_job(module: Any) -> None:
    """Let ``Run.get_context()`` of azureml-core return the job's run: its own prints what is logged, and loses it."""
    try:
        from importlib import import_module

        open_context = import_module("drumline.sdk.v1.context").open_context
    except Exception as error:
        why = "before Python 3.9" if sys.version_info < (3, 9) else str(error)
        print("warning: azureml-core does not log to this job (%s): use mlflow" % why, file=sys.stderr)
        return
    module.Run.get_context = staticmethod(
        lambda allow_offline=True, **_: open_context(allow_offline=allow_offline)
    )


def _begin(notes: _Notes | None = None) -> None:
    """Begin in a process that is a rank, or one that a rank started. ``notes``: those from before it was one."""
    if os.environ.get("MLFLOW_TRACKING_URI", "").startswith("file:"):
        _change((_FILE_STORE,), "file_store.py", "put_into")
    path = os.environ.get("DRUMLINE_FAILURES")
    tell = _start(path, notes or _Notes()) if path else None
    if os.path.isabs(os.environ.get("DRUMLINE_STEPS", "")):
        from _thread import get_ident

        steps = os.environ["DRUMLINE_STEPS"]
        _change(("torch",), "steps.py", "put_into", steps, _own, tell)
        _change(_OTHER_FRAMEWORKS, "looks.py", "put_into", steps, get_ident())
    if os.environ.get("AZUREML_RUN_ID"):
        _change_by(("azureml.core.run",), _log_to_the_job)
    if os.environ.get("DRUMLINE_AUTOTUNING"):
        _change(("deepspeed.autotuning.scheduler",), "step_total.py", "shorten_waits")


_loaded: dict[str, dict[str, Any]] = {}


def _own(file: str) -> dict[str, Any]:
    """Return the names that a file beside this one defines."""
    if file not in _loaded:
        path = _HERE + file
        ours: dict[str, Any] = {"__name__": "drumline_" + file[:-3], "__file__": path}
        with open(path, "rb") as opened:
            # Functions of these stand in the place of PyTorch's, or run in a thread: no stack ends in a file of the
            # user's.
            shown = path if file.startswith("warm") else "<drumline>"
            exec(compile(opened.read(), shown, "exec"), ours)  # noqa: S102 - our own
        _loaded[file] = ours
    return _loaded[file]


def _run_the_other() -> None:
    """Run the ``sitecustomize`` that comes after this one on the path; it takes this one's name."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry != here]
    for finder in sys.meta_path:
        if getattr(finder, "__name__", "") == "PathFinder":
            spec = finder.find_spec("sitecustomize", sys.path)
            if spec is not None and spec.loader is not None:
                module = type(sys)("sitecustomize")
                module.__spec__ = spec
                module.__file__ = spec.origin
                module.__loader__ = spec.loader
                sys.modules["sitecustomize"] = module
                spec.loader.exec_module(module)
            return


if os.environ.get("DRUMLINE_WARM_PROBE"):
    # Whoever asks wants to know whether this file is what runs first there, and nothing else.
    os.write(int(os.environ["DRUMLINE_WARM_PROBE"]), b"1" if sys.version_info >= (3, 9) else b"0")
    os._exit(0)
if os.environ.get("DRUMLINE_WARM_SERVER"):
    try:
        _notes = _Notes()
        sys.meta_path.append(_Ours)
        _run_the_other()
        _own("warm.py")["serve"](_own)
    except BaseException:
        # An interpreter goes on after what is raised here, and would run the program in what is no rank.
        os._exit(1)
    _begin(_notes)
else:
    _begin()
    if sys.version_info >= (3, 9):  # noqa: UP036 - the user's Python may be older
        sys.meta_path.append(_Ours)
    _run_the_other()
