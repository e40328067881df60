"""
The imports at the top of a program, read from its syntax tree without running it.

Its own modules are followed, its functions are not looked into, and the first statement that might change what a later
import does ends the reading.
Source: https://docs.python.org/3/reference/import.html and https://docs.python.org/3/library/runpy.html
"""

from __future__ import annotations

import ast
import os
import re
import warnings
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple
from drumline.node.warm.shell_command import NotWarm

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from drumline.node.warm.shell_command import Program


class ScanStopped(Exception):  # noqa: N818 - nobody's error
    """Raised where the rest of a program cannot be looked at; says why."""


_SAFE_CALLS = re.compile(
    r"abs|all|any|bool|bytes|dict|enumerate|float|frozenset|getattr|hasattr|int|isinstance|len|list|max|min|object|print"
    r"|property|range|repr|round|set|sorted|str|sum|tuple|type|zip"
    r"|os\.(getenv|cpu_count|getcwd|getpid|path\.\w+)|os\.environ\.(get|copy)"
    r"|(pathlib\.)?(Pure)?(Posix)?Path|(logging\.)?getLogger"
    r"|time\.(time|time_ns|monotonic|perf_counter|strftime)|(datetime\.)?datetime\.now"
    r"|(collections\.)?(namedtuple|defaultdict|OrderedDict|deque|Counter)|(dataclasses\.)?field|(enum\.)?auto"
    r"|(typing\.|t\.)?(TypeVar|NewType|ParamSpec|NamedTuple|TypedDict|cast)|re\.compile|math\.\w+"
    r"|(functools\.)?partial|torch\.device"
)
"""Functions that are taken to do what their names say."""

_SAFE_METHODS = frozenset(
    (
        "absolute",
        "as_posix",
        "copy",
        "encode",
        "endswith",
        "expanduser",
        "format",
        "get",
        "items",
        "join",
        "joinpath",
        "keys",
        "lower",
        "lstrip",
        "removeprefix",
        "removesuffix",
        "replace",
        "resolve",
        "rsplit",
        "rstrip",
        "split",
        "splitlines",
        "startswith",
        "strip",
        "title",
        "upper",
        "values",
        "with_name",
        "with_suffix",
    )
)
_NOT_SET = re.compile("[\0\ud800-\udfff]")
"""What a variable of an environment cannot hold."""

_SAFE_NODES = (
    *(ast.Constant, ast.Name, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.JoinedStr, ast.FormattedValue),
    *(ast.Tuple, ast.List, ast.Dict, ast.Set, ast.Starred, ast.Subscript, ast.Slice, ast.Attribute),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension),
    *(ast.keyword, ast.arguments, ast.arg, ast.Pass, ast.Global, ast.Expr, ast.Assert, ast.If),
    *(ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete),
)
"""What changes nothing by itself, and imports nothing, if no part of it does."""

_IMPORT_STATE = frozenset(
    ("os.environ", "os.environb", "sys.path", "sys.modules", "sys.meta_path", "sys.path_hooks")
)
"""What is only looked into: under another name it could be changed unseen."""

_MEANT_FOR_IMPORT = ("__path__", "__builtins__", "__spec__", "__loader__", "__package__", "__name__")


def get_dotted_name(node: ast.AST | None) -> str:
    """Return ``os.environ`` for such an expression; empty for another."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join((node.id, *reversed(parts)))


def is_safe(node: ast.AST) -> bool:
    """Return whether code neither imports nor changes anything but names and containers of its own."""
    if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
        own = node.value if isinstance(node, ast.Subscript) else None
        return isinstance(own, ast.Name) and own.id != "environ" and is_safe(node.slice)  # type: ignore[union-attr]
    if isinstance(node, ast.Name):
        return isinstance(node.ctx, ast.Load) or node.id not in _MEANT_FOR_IMPORT
    if get_dotted_name(node) in _IMPORT_STATE:
        return False
    if type(node).__name__ == "TypeAlias":
        return True
    parts = _list_parts(node)
    return parts is not None and all(map(is_safe, parts))


def _list_parts(node: ast.AST) -> Iterable[ast.AST] | None:
    """Return the parts of code that are run where it stands; None for code that is not safe whatever its parts are."""
    if isinstance(node, ast.Lambda):
        return (node.args,)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [*_list_decorator_parts(node), node.args, *([node.returns] if node.returns else [])]
    if isinstance(node, ast.ClassDef):
        return [*_list_decorator_parts(node), *node.bases, *node.keywords, *node.body]
    if isinstance(node, ast.Call):
        function = node.func
        if _SAFE_CALLS.fullmatch(get_dotted_name(function)):
            return (*node.args, *node.keywords)
        is_method = isinstance(function, ast.Attribute) and function.attr in _SAFE_METHODS
        return (function.value, *node.args, *node.keywords) if is_method else None  # type: ignore[attr-defined]
    if isinstance(node, ast.Compare):
        return [side for side in (node.left, *node.comparators) if get_dotted_name(side) not in _IMPORT_STATE]
    if isinstance(node, ast.Subscript) and get_dotted_name(node.value) == "os.environ":
        return (node.slice,)
    return ast.iter_child_nodes(node) if isinstance(node, _SAFE_NODES) else None


def _list_decorator_parts(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterable[ast.AST]:
    """Yield the parts of decorators, which are taken to return what they are given."""
    for decorator in node.decorator_list:
        yield from ast.iter_child_nodes(decorator) if isinstance(decorator, ast.Call) else (decorator,)


def find_set_variable(node: ast.stmt) -> tuple[str, str, bool] | None:
    """Return name and value of a variable that a statement sets, and whether only where it is not set; else None."""
    words: list[ast.expr] = []
    is_default = isinstance(node, ast.Expr)
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0]
        words = [target.slice, node.value] if get_dotted_name(target.value) == "os.environ" else []
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not node.value.keywords:
        words = node.value.args if get_dotted_name(node.value.func) == "os.environ.setdefault" else []
    texts = [word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    if len(words) != 2 or len(texts) != 2 or not re.fullmatch(r"[^=\0\ud800-\udfff]+", texts[0]):
        return None
    return None if _NOT_SET.search(texts[1]) else (texts[0], texts[1], is_default)


LEFT_OUT = frozenset((
    "jax",  # starts threads and takes devices, and says itself that it does not survive a fork
    "jaxlib",
    "flax",  # imports jax
    "optax",
    "tensorflow",  # starts threads, and takes all of a GPU's memory
    "keras",  # imports tensorflow or jax
    "torch_xla",  # connects to its device
    "torch_npu",
    "mpi4py",  # may call MPI_Init, which is for the process that is the rank
    "horovod",
    "cupy",  # loads CUDA's libraries, and may ask for devices
    "pycuda",
    "ray",  # starts threads, and reads where its cluster is
    "pyspark",  # starts a Java machine
))  # fmt: skip
"""What is never imported ahead, by the first part of its name, and nothing after it."""

_SAFE_PATH = re.compile(r"-[a-zOBR]*P")
_MAX_FILES = 200
_MAX_BYTES = 2 << 20
"""Of all files together: half a second's work."""

_MAX_DEPTH = 50
_MAX_SHOWN = 60


class Import(NamedTuple):
    module: str
    """``torch.nn``; empty: it is an environment variable that is set."""

    names: tuple[str, ...]
    """
    Those of ``from torch import nn, optim``, which may be submodules; empty for a plain import. Of a variable its name
    and value.
    """

    where: str
    """``train.py:3``"""


class ProgramImports(NamedTuple):
    imports: tuple[Import, ...]
    """
    Of what is no file of the program, in the order in which it would come to them, and between them the variables that
    it sets. Any may be missing.
    """

    until: str
    """Why the rest was not looked at, as ``train.py:12: main()``; empty where the top was read to its end."""

    folder: str
    """What will be ``sys.path[0]``: absolute, links resolved; empty where Python is told to have none."""


def find_imports(program: Program) -> ProgramImports:
    """Find the imports of a program. Raises NotWarm if there is none, or it is no Python that can be read here."""
    walk = _ImportWalk(program)
    try:
        walk.main()
    except ScanStopped as stop:
        walk.until = str(stop)
    except RecursionError:
        walk.until = "the program is nested too deeply"
    while walk.imports and not walk.imports[-1].module:
        walk.imports.pop()  # The program sets it itself before anything else is imported.
    return ProgramImports(tuple(walk.imports), walk.until, walk.folder)


class _ProgramFile(NamedTuple):
    path: str
    name: str
    """What ``__name__`` is."""

    package: str
    lines: Sequence[bytes]


class _ImportWalk:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._cwd = os.path.realpath(program.cwd)
        self.folder = self._first_folder()
        self._roots = [self.folder, *self._own_folders()] if self.folder else [*self._own_folders()]
        self._seen: set[str] = set()
        self._depth = 0
        self._bytes = 0
        self.imports: list[Import] = []
        self._sets: dict[str, str] = {}
        self.until = ""

    def _first_folder(self) -> str:
        if any(_SAFE_PATH.match(flag) for flag in self._program.flags) or self._program.env.get(
            "PYTHONSAFEPATH"
        ):
            return ""
        if self._program.target[0] == "-m":
            return self._cwd
        return os.path.dirname(os.path.realpath(os.path.join(self._cwd, self._program.target[0])))

    def _own_folders(self) -> Iterable[str]:
        """Yield the folders of PYTHONPATH that belong to the program."""
        path = self._program.env.get("PYTHONPATH", "")
        for entry in path.split(":") if path else ():
            real = os.path.realpath(os.path.join(self._cwd, entry))
            if real == self._cwd or real.startswith((self._cwd + "/", (self.folder or self._cwd) + "/")):
                yield real

    def main(self) -> None:
        target = self._program.target
        if target[0] != "-m":
            self._read(os.path.join(self._cwd, target[0]), "__main__", "")
            return
        module = target[1]
        parent = module.rpartition(".")[0]
        found = self._find(module)
        if found is None:
            if parent:
                self._foreign(parent, (), f"-m {module}")
            raise ScanStopped(f"-m {module}: it is not one of the program's own modules")
        self._follow(parent)
        if found.endswith("/__init__.py"):
            self._follow(module)
            found, parent = os.path.join(os.path.dirname(found), "__main__.py"), module
        self._read(found, "__main__", parent)

    def _read(self, path: str, name: str, package: str) -> None:
        if path in self._seen:
            return
        self._seen.add(path)
        if len(self._seen) > _MAX_FILES or self._depth > _MAX_DEPTH:
            raise ScanStopped(f"{self._format_path(path)}: the program has very many files")
        source, tree = _parse_file(path, self._format_path(path))
        self._bytes += len(source)
        if self._bytes > _MAX_BYTES:
            raise ScanStopped(f"{self._format_path(path)}: the program is very large")
        self._depth += 1
        self._statements(tree.body, _ProgramFile(path, name, package, source.splitlines()))
        self._depth -= 1

    def _format_path(self, path: str) -> str:
        return os.path.relpath(path, self.folder or self._cwd)

    def _statements(self, statements: Iterable[ast.stmt], file: _ProgramFile) -> None:
        for statement in statements:
            self._statement(statement, file)

    def _statement(self, node: ast.stmt, file: _ProgramFile) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._import(alias.name, (), self._where(node, file))
        elif isinstance(node, ast.ImportFrom):
            self._import_from(node, file)
        elif isinstance(node, ast.Try):
            self._statements((*node.body, *node.orelse, *node.finalbody), file)
        elif isinstance(node, ast.If) and self._branch(node, file) is not None:
            self._statements(self._branch(node, file) or (), file)
        elif not self._sets_variable(node) and not is_safe(node):
            raise ScanStopped(f"{self._where(node, file)}: {_show_line(node, file)}")

    def _where(self, node: ast.stmt, file: _ProgramFile) -> str:
        return f"{self._format_path(file.path)}:{node.lineno}"

    def _branch(self, node: ast.If, file: _ProgramFile) -> Sequence[ast.stmt] | None:
        """Return the statements that will be run, where that is certain."""
        test = node.test
        if get_dotted_name(test).rpartition(".")[2] == "TYPE_CHECKING":
            return node.orelse
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            sides = (test.left, test.comparators[0])
            named = any(get_dotted_name(side) == "__name__" for side in sides)
            if named and any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides):
                return node.body if file.name == "__main__" else node.orelse
        return None

    def _sets_variable(self, node: ast.stmt) -> bool:
        found = find_set_variable(node)
        if found is None:
            return False
        name, value, is_default = found
        if name not in self._sets and not (is_default and name in self._program.env):
            self._sets[name] = value
            self.imports.append(Import("", (name, value), ""))
        return is_default or self._sets[name] == value

    def _import_from(self, node: ast.ImportFrom, file: _ProgramFile) -> None:
        if node.module == "__future__":
            return
        names = tuple(alias.name for alias in node.names if alias.name != "*")
        module = node.module or ""
        if node.level:
            parts = file.package.split(".") if file.package else []
            if len(parts) < node.level:
                raise ScanStopped(f"{self._where(node, file)}: {_show_line(node, file)}")
            module = ".".join((*parts[: len(parts) - node.level + 1], *([module] if module else [])))
        self._import(module, names, self._where(node, file))

    def _import(self, module: str, names: Sequence[str], where: str) -> None:
        own = self._is_own(module, names)
        if not own:
            self._foreign(module, names, where)
            return
        self._follow(module)
        for name in names:
            if self._find(f"{module}.{name}"):
                self._follow(f"{module}.{name}")

    def _foreign(self, module: str, names: Sequence[str], where: str) -> None:
        top = module.partition(".")[0]
        if top in LEFT_OUT:
            raise ScanStopped(f"{where}: {top} is not imported ahead")
        found = Import(module, tuple(names), where)
        if all(known[:2] != found[:2] for known in self.imports):
            self.imports.append(found)

    def _is_own(self, module: str, names: Sequence[str]) -> bool:
        """
        Return whether a module is the program's own.

        A folder without ``__init__.py`` counts only if it has the module: a package of its name may be installed.
        """
        top = module.partition(".")[0]
        if self._find(top):
            return True
        return any(self._find(name) for name in (module, *(f"{module}.{name}" for name in names)))

    def _find(self, module: str) -> str | None:
        """Return the program's own file of a module; None where it has none."""
        inner = module.replace(".", "/")
        for root in self._roots:
            for ending in ("/__init__.py", ".py"):
                path = os.path.join(root, inner + ending)
                if os.path.isfile(path):
                    return path
        return None

    def _follow(self, module: str) -> None:
        """Follow an import of a module: its packages first."""
        parts = module.split(".")
        for count in range(1, len(parts) + 1):
            name = ".".join(parts[:count])
            path = self._find(name)
            if path:
                package = name if path.endswith("/__init__.py") else name.rpartition(".")[0]
                self._read(path, name, package)


def _show_line(node: ast.stmt, file: _ProgramFile) -> str:
    line = file.lines[node.lineno - 1] if node.lineno <= len(file.lines) else b""
    return line.decode("utf-8", "replace").strip()[:_MAX_SHOWN]


def _parse_file(path: str, shown: str) -> tuple[bytes, ast.Module]:
    try:
        with open(path, "rb") as file:
            source = file.read(_MAX_BYTES + 1)
        if len(source) > _MAX_BYTES:
            raise NotWarm(f"{shown} is very large")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return source, ast.parse(source, shown)
    except OSError as error:
        raise NotWarm(f"{shown}: {error.strerror}") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotWarm(f"{shown} is not read: {str(error)[:100]}") from error
