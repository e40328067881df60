"""The statements of a program that cannot change what a later import does."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


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

_SIMPLE = (ast.Constant, ast.Name, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context)
_COMPOUND = (
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.Tuple,
    ast.List,
    ast.Dict,
    ast.Set,
    ast.Starred,
    ast.Subscript,
    ast.Slice,
    ast.Attribute,
    ast.keyword,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.comprehension,
)
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


def is_expression(node: ast.AST | None) -> bool:
    if node is None or isinstance(node, _SIMPLE):
        return True
    if isinstance(node, ast.Lambda):
        return _are_arguments(node.args)
    if get_dotted_name(node) in _IMPORT_STATE:
        return False
    if isinstance(node, ast.Subscript) and get_dotted_name(node.value) == "os.environ":
        return is_expression(node.slice)
    if isinstance(node, ast.Compare):
        return _are(
            side for side in (node.left, *node.comparators) if get_dotted_name(side) not in _IMPORT_STATE
        )
    if isinstance(node, ast.Call):
        return _is_known(node.func) and _are((*node.args, *node.keywords))
    return isinstance(node, _COMPOUND) and _are(ast.iter_child_nodes(node))


def _are(nodes: Iterable[ast.AST | None]) -> bool:
    return all(is_expression(node) for node in nodes)


def _is_known(function: ast.expr) -> bool:
    if _SAFE_CALLS.fullmatch(get_dotted_name(function)):
        return True
    return (
        isinstance(function, ast.Attribute)
        and function.attr in _SAFE_METHODS
        and is_expression(function.value)
    )


def _are_arguments(arguments: ast.arguments) -> bool:
    return _are((*arguments.defaults, *arguments.kw_defaults))


def is_statement(node: ast.stmt) -> bool:
    """Return whether a statement neither imports nor changes anything but names and containers of its own."""
    if isinstance(node, (ast.Pass, ast.Global)):
        return True
    if isinstance(node, (ast.Expr, ast.AugAssign, ast.AnnAssign)):
        target = None if isinstance(node, ast.Expr) else node.target
        noted = node.annotation if isinstance(node, ast.AnnAssign) else None
        return _is_target(target) and _are((node.value, noted))
    if isinstance(node, (ast.Assign, ast.Delete)):
        return all(map(_is_target, node.targets)) and (
            isinstance(node, ast.Delete) or is_expression(node.value)
        )
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return (
            _are_decorators(node.decorator_list)
            and _are_arguments(node.args)
            and _are(_list_annotations(node))
        )
    if isinstance(node, ast.ClassDef):
        return (
            _are_decorators(node.decorator_list) and _are((*node.bases, *node.keywords)) and _all(node.body)
        )
    if isinstance(node, ast.If):
        return is_expression(node.test) and _all((*node.body, *node.orelse))
    if isinstance(node, ast.Assert):
        return _are((node.test, node.msg))
    return type(node).__name__ == "TypeAlias"


def _all(nodes: Iterable[ast.stmt]) -> bool:
    return all(is_statement(node) for node in nodes)


def _is_target(node: ast.expr | None) -> bool:
    if isinstance(node, (ast.Tuple, ast.List)):
        return all(map(_is_target, node.elts))
    if isinstance(node, ast.Starred):
        return _is_target(node.value)
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Name) and node.value.id != "environ" and is_expression(node.slice)
    return node is None or (isinstance(node, ast.Name) and node.id not in _MEANT_FOR_IMPORT)


def _are_decorators(nodes: Iterable[ast.expr]) -> bool:
    """Return whether decorators are safe; they are called with the function in any case."""
    for node in nodes:
        inner = (*node.args, *node.keywords, node.func) if isinstance(node, ast.Call) else (node,)
        if not _are(inner):
            return False
    return True


def _list_annotations(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterable[ast.AST | None]:
    arguments = node.args
    named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (argument.annotation for argument in named)
    yield from (argument.annotation for argument in (arguments.vararg, arguments.kwarg) if argument)
    yield node.returns


def find_set_variable(node: ast.stmt) -> tuple[str, str, bool] | None:
    """Return name and value of a variable that a statement sets, and whether only where it is not set; else None."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0]
        words = [target.slice, node.value] if get_dotted_name(target.value) == "os.environ" else []
        return _read_literals(words, is_default=False)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not node.value.keywords:
        call = node.value
        return _read_literals(
            call.args if get_dotted_name(call.func) == "os.environ.setdefault" else [], is_default=True
        )
    return None


def _read_literals(nodes: list[ast.expr], is_default: bool) -> tuple[str, str, bool] | None:
    values = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    if (
        len(nodes) != 2
        or len(values) != 2
        or _NOT_SET.search("".join(values))
        or "=" in values[0]
        or not values[0]
    ):
        return None
    return values[0], values[1], is_default
