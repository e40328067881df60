"""The imports of a warm interpreter, and whether a fork of it may then be a rank (``warm.py``)."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/accel", "/dev/davinci")
_HARMLESS = ("/dev/null", "/dev/urandom", "/dev/random")


class UnfitError(Exception):
    """Ranks cannot be forked from this process; why."""


class State:
    """The state of a warm interpreter. ``watch``: what ``warm_watch.py`` defines."""

    def __init__(self, task: dict[str, Any], watch: dict[str, Any]) -> None:
        self._task = task
        self._reads = watch["Reads"](task["free"], set(task["left_out"]))
        self._seeds = watch["Seeds"]()
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
        variables, folder = dict(os.environ), os.getcwd()
        with self._reads, self._seeds:
            stopped = self._import_all()
        self._note_variables(variables)
        self._taint()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        self.said = _content_of(1)
        self._check()
        self._note_files()
        if os.getcwd() != folder:
            raise UnfitError("an import went to another folder")
        os.chdir("/")
        loaded = [name for name in sys.modules if name not in self._before]
        tops = sorted({name.partition(".")[0] for name in loaded})
        return {
            "import_s": time.monotonic() - self._began,
            "modules": [top for top in tops if top in self._task["asked"]],
            "names": tops,
            "reads": sorted(self._reads.seen),
            "stopped": stopped,
            "folder": sorted(self._reads.folder),
        }

    def _import_all(self) -> str:
        """Import all that can be; return why the rest must wait for the program, empty when there is no rest."""
        for module, names, where in self._task["imports"]:
            if not module:
                os.environ[names[0]] = names[1]
                continue
            stopped = self._import(module, names, where)
            self._seeds.look(module.partition(".")[0])
            if stopped:
                return stopped
        return ""

    def _taint(self) -> None:
        """Note the packages whose import must be each rank's own. Raises UnfitError where there are any."""
        reads, differs = self._reads, self._task["differs"]
        unsafe = {name for name in self._task["left_out"] if name in sys.modules}
        self.tainted = sorted(unsafe | set().union(*(reads.importers.get(name, ()) for name in unsafe)))
        if self.tainted:
            raise UnfitError("%s is imported, which must not be imported ahead" % min(unsafe))
        self.tainted = sorted(self._seeds.packages)
        if self.tainted:
            raise UnfitError("%s seeds random numbers while it is imported" % self.tainted[0])
        try:
            self.tainted = sorted(reads.find_tainted(differs))
        except LookupError as error:
            raise UnfitError(error.args[0]) from None
        if self.tainted:
            looked = ", ".join(sorted(set(reads.seen) & set(differs)))
            raise UnfitError("%s looks at %s while it is imported" % (self.tainted[0], looked))

    def _note_variables(self, before: dict[str, str]) -> None:
        own = {names[0] for module, names, _ in self._task["imports"] if not module}
        now = dict(os.environ)
        for name in set(before) | set(now):
            if before.get(name) != now.get(name) and name not in own:
                self._changed[name] = now.get(name)

    def variables_after(self, env: dict[str, str]) -> dict[str, str]:
        """Return the variables of a rank as imports would have left them."""
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
        """List all modules that were loaded, in order, without those of packages that must not be."""
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
        """Check that a fork would be the same as a fresh process. Raises UnfitError where it would not."""
        for number in sorted(_descriptors() - self._descriptors):
            try:
                target = os.readlink("/proc/self/fd/%d" % number)
            except OSError:
                continue
            if target.startswith(_DEVICES):
                raise UnfitError("an import opened the device " + target)
            if target not in _HARMLESS:
                raise UnfitError("an import left %s open" % target)
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is not None and cuda.is_initialized():
            raise UnfitError("an import has initialised CUDA")
        for task in os.listdir("/proc/self/task"):
            if _content("/proc/self/task/%s/children" % task).strip():
                raise UnfitError("an import started a process")
        self._check_fork()

    @staticmethod
    def _check_fork() -> None:
        # Some libraries end their threads before a fork, and start them again when they are needed.
        child = os.fork()
        if child == 0:
            # Whoever has only counted its devices cannot use them in a fork either.
            os._exit(_knows_bad_fork(sys.modules.get("torch")))
        if os.waitpid(child, 0)[1]:
            raise UnfitError("an import looked for devices, which a fork may then not use")
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
        """Return the path of a file that has changed since it was imported; empty: none has."""
        for path, stamp in self._files.items():
            if _stamp(path) != stamp:
                return path
        return ""


def _knows_bad_fork(torch: Any) -> bool:
    """Return, in a fork, whether PyTorch would say there that it cannot use its devices again."""
    kinds = [getattr(torch, name, None) for name in ("cuda", "xpu", "mtia", "accelerator")]
    return any(
        callable(getattr(kind, "_is_in_bad_fork", None)) and kind._is_in_bad_fork() for kind in kinds if kind
    )


def _is_installed(spec: Any) -> bool:
    origin = spec.origin
    if origin in ("built-in", "frozen"):
        return True
    # A folder without __init__ has places in the stead of an origin.
    places = [origin] if origin else list(spec.submodule_search_locations or ())
    return bool(places) and all(_is_of_installed(str(place)) for place in places)


def _is_of_installed(place: str) -> bool:
    parts = place.split(os.sep)
    if "site-packages" in parts or "dist-packages" in parts:
        return True
    return any(place.startswith(os.path.join(prefix, "lib")) for prefix in {sys.base_prefix, sys.prefix})


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
    """Return the content of the file that standard output is, at most a megabyte."""
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
