"""
The imports of a warm interpreter, what packages do meanwhile that tells whether their import can be every rank's, and
whether a fork of the interpreter may then be a rank (``warm.py``).
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


class UnfitError(Exception):
    """Ranks cannot be forked from this process; why."""


class State:
    """The state of a warm interpreter."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._task = task
        self._watch = ImportWatch(task["free"], set(task["left_out"]))
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

        self.printed = b""
        """What imports printed: each rank's log has it, as it would."""

        self.script: Any = None

    def warm_up(self) -> dict[str, Any]:
        """Import, and see whether a fork of this can be a rank. Raises UnfitError."""
        variables, folder = dict(os.environ), os.getcwd()
        with self._watch:
            stopped = self._import_all()
        set_by_program = {names[0] for module, names, _ in self._task["imports"] if not module}
        for name in (variables.keys() | os.environ.keys()) - set_by_program:
            if variables.get(name) != os.environ.get(name):
                self._changed[name] = os.environ.get(name)
        self._taint()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        try:
            self.printed = os.pread(1, 1 << 20, 0)
        except OSError:
            pass
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
            "reads": sorted(self._watch.seen),
            "stopped": stopped,
            "folder": sorted(self._watch.folder),
        }

    def _import_all(self) -> str:
        """Import all that can be; return why the rest must wait for the program, empty when there is no rest."""
        for module, names, where in self._task["imports"]:
            if not module:
                os.environ[names[0]] = names[1]
                continue
            stopped = self._import(module, names, where)
            self._watch.note_seeds(module.partition(".")[0])
            if stopped:
                return stopped
        return ""

    def _taint(self) -> None:
        """Note the packages whose import must be each rank's own. Raises UnfitError where there are any."""
        watch, differs = self._watch, self._task["differs"]
        unsafe = {name for name in self._task["left_out"] if name in sys.modules}
        self.tainted = sorted(unsafe | set().union(*(watch.importers.get(name, ()) for name in unsafe)))
        if self.tainted:
            raise UnfitError("%s is imported, which must not be imported ahead" % min(unsafe))
        self.tainted = sorted(watch.seeding)
        if self.tainted:
            raise UnfitError("%s seeds random numbers while it is imported" % self.tainted[0])
        self.tainted = sorted(watch.find_tainted(differs))
        if self.tainted:
            looked = ", ".join(sorted(set(watch.seen) & set(differs)))
            raise UnfitError("%s looks at %s while it is imported" % (self.tainted[0], looked))

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
            torch = sys.modules.get("torch")
            kinds = [getattr(torch, name, None) for name in ("cuda", "xpu", "mtia", "accelerator")]
            asks = [getattr(kind, "_is_in_bad_fork", None) for kind in kinds]
            os._exit(any(callable(ask) and ask() for ask in asks))
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


# What packages look at, whom they import, and whether they seed random numbers, while they are imported.

_BETWEEN = (
    "importlib",
    "_collections_abc",
    "os",
    "site",
    "sitecustomize",
    "drumline_warm",
    "drumline_warm_imports",
    "",
)


_PATH_MODULES = ("os", "posixpath", "pathlib", "pathlib._local")
_ANY_FOLDER = (
    "inspect",
    "multiprocessing.process",
    "rich",
    "tempfile",
    "torch._dynamo.config",
    "torch._inductor.config",
    "transformers.utils.auto_docstring",
)
"""
Modules that ask which folder they are imported in, and make of it what is of no account, or each rank's
(``warm.py``).
"""


class _NotingFolder:
    """A stand-in for ``os.getcwd``, which modules may keep as a function or make an attribute of a class of theirs."""

    def __init__(self, names: set[str]) -> None:
        self._get = os.getcwd
        self._names = names
        self._is_on = True

    def __call__(self) -> str:
        if self._is_on:
            frame: Optional[FrameType] = sys._getframe(1)
            while frame is not None and frame.f_globals.get("__name__") in _PATH_MODULES:
                frame = frame.f_back
            name = "" if frame is None else str(frame.f_globals.get("__name__", ""))
            if name not in _ANY_FOLDER:
                self._names.add(name)
        return self._get()

    def end(self) -> Any:
        self._is_on = False
        return self._get


class ImportWatch:
    """
    The variables that are looked at meanwhile, by name, and by which packages; who imports what must not be; and the
    packages whose import has seeded the numbers that a rank would draw: these are seeded anew in each, as a fresh
    process has them. The state that a module of random numbers begins with is noted when it has just been imported.
    """

    def __init__(self, free: list[str], left_out: set[str]) -> None:
        self._left_out = left_out
        self.importers: dict[str, set[str]] = {}
        self._exact = {name for name in free if not name.endswith("*")}
        self._prefixes = tuple(name[:-1] for name in free if name.endswith("*"))
        self._kind: Any = type(os.environ)
        self._get = self._kind.__getitem__
        self.seen: dict[str, set[str]] = {}
        self.folder: set[str] = set()
        """Modules that asked which folder they are in."""

        self._getcwd = _NotingFolder(self.folder)
        self.seeding: set[str] = set()
        self._states: dict[str, Any] = {}
        self._is_asking_others = False

    def __enter__(self) -> None:
        watch, get = self, self._get
        for name in _STATES:
            self._note_state(name)

        def noting(self: Any, key: Any) -> Any:
            watch.note(key)
            return get(self, key)

        self._kind.__getitem__ = noting
        os.getcwd = self._getcwd
        sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        self._kind.__getitem__ = self._get
        os.getcwd = self._getcwd.end()
        sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Note who looks for it; find the specs of modules of random numbers as the other finders do."""
        if name in self._left_out:
            self.importers.setdefault(name, set()).update(self._packages(sys._getframe(1)))
        if name not in _STATES or self._is_asking_others:
            return None
        self._is_asking_others = True
        try:
            spec = None
            for finder in sys.meta_path:
                if finder is not self and hasattr(finder, "find_spec"):
                    spec = spec or finder.find_spec(name, path, target)
        finally:
            self._is_asking_others = False
        loader = getattr(spec, "loader", None)
        if loader is not None and hasattr(loader, "exec_module"):
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                loader.__dict__.pop("exec_module", None)
                execute(module)
                self._note_state(name)

            try:
                loader.exec_module = exec_module
            except AttributeError:
                pass
        return spec

    def note_seeds(self, package: str) -> None:
        """Note, after the import of that package, whether it has seeded random numbers."""
        for name, before in self._states.items():
            now = _state_of(name)
            if now != before:
                self._states[name] = now
                self.seeding.add(package)

    def _note_state(self, name: str) -> None:
        if name in sys.modules:
            # The first draw makes many numbers, of which those that follow are: it changes the state, they do not.
            draw = getattr(
                sys.modules[name], {"random": "random", "numpy.random": "random_sample"}.get(name, ""), None
            )
            if draw is not None:
                draw()
            self._states[name] = _state_of(name)

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
        """List the packages whose code is running, from that frame outwards."""
        packages = set()
        while frame is not None:
            top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            if top not in _BETWEEN:
                packages.add(top)
            frame = frame.f_back
        return packages

    def find_tainted(self, differs: list[str]) -> set[str]:
        """
        Return the packages that looked at one of these, with those that were importing them.

        Raises UnfitError where it was the standard library.
        """
        standard = getattr(sys, "stdlib_module_names", ())
        found: set[str] = set()
        for name in sorted(set(differs) & set(self.seen)):
            others = {package for package in self.seen[name] if package not in standard}
            if not others:
                raise UnfitError("%s is looked at while modules are imported" % name)
            found |= others
        return found


_STATES = ("random", "numpy.random", "torch")


def _state_of(name: str) -> Any:
    """Return a state that differs after a seed, and not after some draws; None where that cannot be told."""
    module: Any = sys.modules.get(name)
    try:
        if name == "random":
            return module.getstate()[1][:-1]
        if name == "numpy.random":
            return tuple(module.get_state()[1].tolist())
        return module.default_generator.initial_seed()
    except Exception:  # noqa: BLE001 - of another version
        return None
