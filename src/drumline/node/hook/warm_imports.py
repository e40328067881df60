"""
What a warm interpreter imports, and whether a fork of it may then be a rank (``warm.py``).
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Optional

_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/accel", "/dev/davinci")
_HARMLESS = ("/dev/null", "/dev/urandom", "/dev/random")
_BETWEEN = ("importlib", "_collections_abc", "os", "site", "sitecustomize", "drumline_warm", "")


class UnfitError(Exception):
    """Ranks cannot be forked from this process; why."""


class State:
    def __init__(self, task: dict[str, Any]) -> None:
        self._task = task
        self._began = time.monotonic()
        self._descriptors = _descriptors()
        self._before = set(sys.modules)
        self._files: dict[str, tuple[int, int]] = {}
        self.name = _content("/proc/self/comm").strip()
        self.tainted: list[str] = []
        """Packages that looked, while they were imported, at variables that differ from rank to rank."""

        self._changed: dict[str, Optional[str]] = {}
        """Variables that imports have set, or taken away."""

        self._temporary = "/tmp"  # noqa: S108 - tempfile's, where no variable says another

        self.said = b""
        """What imports printed: each rank's log has it, as it would."""

        self.script: Any = None

    def warm_up(self) -> dict[str, Any]:
        """Import, and see whether a fork of this can be a rank. Raises UnfitError."""
        variables = dict(os.environ)
        reads = _Reads(self._task["free"], set(self._task["left_out"]))
        stopped = ""
        with reads:
            for module, names, where in self._task["imports"]:
                if not module:
                    os.environ[names[0]] = names[1]
                    continue
                stopped = self._import(module, names, where)
                if stopped:
                    break
        self._note_variables(variables)
        unsafe = {name for name in self._task["left_out"] if name in sys.modules}
        self.tainted = sorted(unsafe | set().union(*(reads.importers.get(name, ()) for name in unsafe)))
        if self.tainted:
            raise UnfitError("%s is imported, which must not be imported ahead" % min(unsafe))
        self.tainted = sorted(reads.tainted(self._task["differs"]))
        if self.tainted:
            looked = sorted(set(reads.seen) & set(self._task["differs"]))
            raise UnfitError("%s looks at %s while it is imported" % (self.tainted[0], ", ".join(looked)))
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        self.said = _content_of(1)
        self._check()
        self._note_files()
        os.chdir("/")
        loaded = [name for name in sys.modules if name not in self._before]
        tops = sorted({name.partition(".")[0] for name in loaded})
        return {
            "import_s": time.monotonic() - self._began,
            "modules": [top for top in tops if top in self._task["asked"]],
            "names": tops,
            "reads": sorted(reads.seen),
            "stopped": stopped,
        }

    def _note_variables(self, before: dict[str, str]) -> None:
        own = {names[0] for module, names, _ in self._task["imports"] if not module}
        now = dict(os.environ)
        for name in set(before) | set(now):
            if before.get(name) != now.get(name) and name not in own:
                self._changed[name] = now.get(name)

    def variables_after(self, env: dict[str, str]) -> dict[str, str]:
        """Those of a rank, when imports have made of them what they make."""
        after = dict(env)
        here = self._temporary + os.sep
        there = next((env[name] for name in ("TMPDIR", "TEMP", "TMP") if env.get(name)), self._temporary)
        for name, value in self._changed.items():
            if value is None:
                after.pop(name, None)
            else:
                after[name] = there + os.sep + value[len(here) :] if value.startswith(here) else value
        return after

    def closure(self) -> list[str]:
        """All modules that were loaded, in order, but those of packages that must not be."""
        return [
            name
            for name, module in list(sys.modules.items())
            if name not in self._before
            and name.partition(".")[0] not in self.tainted
            and getattr(module, "__spec__", None) is not None
        ]

    def _import(self, module: str, names: list[str], where: str) -> str:
        """Import it, if it is installed; else why the rest must wait for the program."""
        from importlib import import_module
        from importlib.util import find_spec

        top = module.partition(".")[0]
        if top in self._task["skip"]:
            return ""
        try:
            spec = None if top in sys.modules else find_spec(top)
            if top not in sys.modules and spec is None:
                return ""  # What becomes of that, the program says.
            if spec is not None and not _is_installed(spec):
                return "%s: %s is not an installed package" % (where, top)
            found = import_module(module)
            for name in names:
                if not hasattr(found, name) and hasattr(found, "__path__"):
                    inner = module + "." + name
                    if find_spec(inner) is not None:
                        import_module(inner)
        except ImportError:
            return ""
        except Exception as error:  # noqa: BLE001 - whatever an import raises
            return "%s: %s while %s is imported" % (where, type(error).__name__, module)
        return ""

    def _check(self) -> None:
        """Raises UnfitError where a fork would not be what a fresh process is."""
        for number in sorted(_descriptors() - self._descriptors):
            try:
                target = os.readlink("/proc/self/fd/%d" % number)
            except OSError:
                continue
            if target.startswith(_DEVICES):
                raise UnfitError("an import opened the device " + target)
            if target not in _HARMLESS:
                raise UnfitError("an import left %s open" % target)
        torch = sys.modules.get("torch")
        cuda = getattr(torch, "cuda", None)
        if cuda is not None and cuda.is_initialized():
            raise UnfitError("an import has initialised CUDA")
        for task in os.listdir("/proc/self/task"):
            if _content("/proc/self/task/%s/children" % task).strip():
                raise UnfitError("an import started a process")
        # Some libraries end their threads before a fork, and start them again when they are needed.
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        alive = [_content("/proc/self/task/%s/comm" % task).strip() for task in os.listdir("/proc/self/task")]
        if len(alive) > 1:
            raise UnfitError("an import started a thread that goes on (%s)" % ", ".join(sorted(alive)[:4]))

    def _note_files(self) -> None:
        paths = [sys.executable, os.path.join(sys.prefix, "pyvenv.cfg"), *sys.path]
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str):
                paths.append(file)
        for path in paths:
            self._files[path] = _stamp(path)

    def stale(self) -> str:
        """What has changed on the disk since it was imported; empty: nothing."""
        for path, stamp in self._files.items():
            if _stamp(path) != stamp:
                return path
        return ""


class _Reads:
    """Which variables are looked at meanwhile, by name, and by which packages; and who imports what must not be."""

    def __init__(self, free: list[str], left_out: set[str]) -> None:
        self._left_out = left_out
        self.importers: dict[str, set[str]] = {}
        self._exact = {name for name in free if not name.endswith("*")}
        self._prefixes = tuple(name[:-1] for name in free if name.endswith("*"))
        self._kind: Any = type(os.environ)
        self._get = self._kind.__getitem__
        self.seen: dict[str, set[str]] = {}

    def __enter__(self) -> None:
        reads, get = self, self._get

        def noting(self: Any, key: Any) -> Any:
            reads.note(key)
            return get(self, key)

        self._kind.__getitem__ = noting
        sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        self._kind.__getitem__ = self._get
        sys.meta_path.remove(self)

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> None:
        """Finds nothing: it sees who looks for it."""
        if name in self._left_out:
            self.importers.setdefault(name, set()).update(self._packages(sys._getframe(1)))

    def note(self, key: Any) -> None:
        name = os.fsdecode(key) if isinstance(key, bytes) else key
        if not isinstance(name, str) or not (
            name in self._exact or name.startswith(self._prefixes or ("\0",))
        ):
            return
        packages = self._packages(sys._getframe(2))
        if "tempfile" in packages and name in ("TMPDIR", "TEMP", "TMP"):
            return  # It is made to look again.
        self.seen.setdefault(name, set()).update(packages)

    @staticmethod
    def _packages(frame: Optional[FrameType]) -> set[str]:
        """Whose code is running, from there outwards."""
        packages = set()
        while frame is not None:
            top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            if top not in _BETWEEN:
                packages.add(top)
            frame = frame.f_back
        return packages

    def tainted(self, differs: list[str]) -> set[str]:
        """
        Whose packages looked at one of these, with those that were importing them. Raises UnfitError where it was the
        standard library.
        """
        standard = getattr(sys, "stdlib_module_names", ())
        found: set[str] = set()
        for name in sorted(set(differs) & set(self.seen)):
            others = {package for package in self.seen[name] if package not in standard}
            if not others:
                raise UnfitError("%s is looked at while modules are imported" % name)
            found |= others
        return found


def _is_installed(spec: Any) -> bool:
    origin = spec.origin
    if origin in ("built-in", "frozen"):
        return True
    if not origin:
        return False  # A folder without __init__: it may be the program's own.
    parts = str(origin).split(os.sep)
    if "site-packages" in parts or "dist-packages" in parts:
        return True
    return any(
        str(origin).startswith(os.path.join(prefix, "lib")) for prefix in {sys.base_prefix, sys.prefix}
    )


def _descriptors() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            os.fstat(int(name))
            found.add(int(name))
        except OSError:  # that of the listing itself
            pass
    return found


def _content_of(descriptor: int) -> bytes:
    """Of the file that standard output is; no more than a megabyte of it."""
    try:
        return os.pread(descriptor, 1 << 20, 0)
    except OSError:
        return b""


def _stamp(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)


def _content(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""
