"""
The behaviour of packages while a warm interpreter imports them, which tells whether their import can be every rank's:
what they look at, whom they import, whether they seed random numbers (``warm_imports.py``).
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Optional

_BETWEEN = ("importlib", "_collections_abc", "os", "site", "sitecustomize", "drumline_warm", "")


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
(``warm_rank.py``).
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


class Reads:
    """The variables that are looked at meanwhile, by name, and by which packages; and who imports what must not be."""

    def __init__(self, free: list[str], left_out: set[str]) -> None:
        self._left_out = left_out
        self.importers: dict[str, set[str]] = {}
        self._exact = {name for name in free if not name.endswith("*")}
        self._prefixes = tuple(name[:-1] for name in free if name.endswith("*"))
        self._kind: Any = type(os.environ)
        self._get = self._kind.__getitem__
        self.seen: dict[str, set[str]] = {}
        self._getcwd: Optional[_NotingFolder] = None
        self.folder: set[str] = set()
        """Modules that asked which folder they are in."""

    def __enter__(self) -> None:
        reads, get = self, self._get

        def noting(self: Any, key: Any) -> Any:
            reads.note(key)
            return get(self, key)

        self._kind.__getitem__ = noting
        os.getcwd = self._getcwd = _NotingFolder(self.folder)
        sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        self._kind.__getitem__ = self._get
        if self._getcwd is not None:
            os.getcwd = self._getcwd.end()
        sys.meta_path.remove(self)

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> None:
        """Find nothing, but note who looks for it."""
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

        Raises LookupError where it was the standard library.
        """
        standard = getattr(sys, "stdlib_module_names", ())
        found: set[str] = set()
        for name in sorted(set(differs) & set(self.seen)):
            others = {package for package in self.seen[name] if package not in standard}
            if not others:
                raise LookupError("%s is looked at while modules are imported" % name)
            found |= others
        return found


class Seeds:
    """
    The packages whose import has seeded the numbers that a rank would draw: these are seeded anew in each, as a fresh
    process has them. The state that a module begins with is noted when it has just been imported.
    """

    def __init__(self) -> None:
        self.packages: set[str] = set()
        self._states: dict[str, Any] = {}
        self._wrapping = False

    def __enter__(self) -> None:
        for name in _STATES:
            self._note(name)
        sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find the specs of those modules as the other finders do."""
        if name not in _STATES or self._wrapping:
            return None
        self._wrapping = True
        try:
            spec = None
            for finder in sys.meta_path:
                if finder is not self and hasattr(finder, "find_spec"):
                    spec = spec or finder.find_spec(name, path, target)
        finally:
            self._wrapping = False
        loader = getattr(spec, "loader", None)
        if loader is not None and hasattr(loader, "exec_module"):
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                loader.__dict__.pop("exec_module", None)
                execute(module)
                self._note(name)

            try:
                loader.exec_module = exec_module
            except AttributeError:
                pass
        return spec

    def look(self, package: str) -> None:
        """Note, after the import of that package, whether it has seeded random numbers."""
        for name, before in self._states.items():
            now = _state_of(name)
            if now != before:
                self._states[name] = now
                self.packages.add(package)

    def _note(self, name: str) -> None:
        if name in sys.modules:
            # The first draw makes many numbers, of which those that follow are: it changes the state, they do not.
            draw = getattr(
                sys.modules[name], {"random": "random", "numpy.random": "random_sample"}.get(name, ""), None
            )
            if draw is not None:
                draw()
            self._states[name] = _state_of(name)


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
