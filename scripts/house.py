#!/usr/bin/env python3
"""
Measure how a package is built: sizes, circles of imports, late imports, names, docstrings, mocks.

    scripts/house.py                                 Drumline itself
    scripts/house.py kopf=PATH submitit=PATH ...     beside the sources of others, a column each
    scripts/house.py --budget                        what house-budget.toml limits; exits with 1 if a limit is passed
    scripts/house.py --budget --lower                the same, and lowers the limits to today's figures

PATH is a package's folder; its tests are looked for beside it, or in `tests` one or two folders above. Nothing is
imported: everything comes from the syntax trees. tests/unit/test_house.py holds what Drumline promises of these.
"""

from __future__ import annotations

import ast
import itertools
import re
import signal
import statistics
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "drumline"
TESTS = ROOT / "tests"
BUDGET = ROOT / "scripts" / "house-budget.toml"

Function = ast.FunctionDef | ast.AsyncFunctionDef

LONG_FUNCTION = 60
BIG_CLASS = 250
MANY_ATTRIBUTES = 15
SMALL_MODULE = 80
BIG_MODULE = 700

UNITS = {
    "size": r" ?([kKMGT]i?B|bytes)\b(?!/s)",
    "rate": r" ?([kKMGT]i?B/s|[kMG]bit)",
    "duration": r" ?(ms|s|min|h|d|seconds?|minutes?|hours?|days?)\b",
}
"""What follows a number in text, by the figure that the number is."""

_MOCK = re.compile(
    r"\b(?:Mock|MagicMock|AsyncMock|create_autospec)\(|\bmock\.|\bpatch[.(]|monkeypatch\.setattr"
)


class Import(NamedTuple):
    """``source`` imports ``target``, another module of the package. ``late``: inside a function."""

    source: str
    target: str
    line: int
    late: bool


class ClassSize(NamedTuple):
    name: str
    module: str
    lines: int
    attributes: int


class Module(NamedTuple):
    name: str
    path: Path
    lines: int
    tree: ast.Module


def read_modules(package: Path) -> dict[str, Module]:
    """Return every module of the package by its dotted name. Files that are no Python of this version are left out."""
    modules = {}
    for path in sorted(package.rglob("*.py")):
        parts = [package.name, *path.relative_to(package).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8", errors="replace")
        try:
            modules[name] = Module(name, path, text.count("\n"), ast.parse(text))
        except SyntaxError:
            continue
    return modules


def find_imports(modules: dict[str, Module]) -> list[Import]:
    """Return each import of one module of the package by another, late ones and those for types included."""
    found = []
    for module in modules.values():
        for node, late in _walk_imports(module.tree, late=False):
            targets = _targets(module, node, modules) - {module.name}
            found += [Import(module.name, target, node.lineno, late) for target in sorted(targets)]
    return found


def _walk_imports(tree: ast.AST, *, late: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, late
        else:
            yield from _walk_imports(node, late=late or isinstance(node, Function))


def _targets(module: Module, node: ast.Import | ast.ImportFrom, modules: dict[str, Module]) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names if alias.name in modules}
    base = node.module or ""
    if node.level:
        is_package = module.path.name == "__init__.py"
        parents = module.name.split(".")[
            : None if is_package and node.level == 1 else -node.level + is_package
        ]
        base = ".".join([*parents, base] if base else parents)
    below = {f"{base}.{alias.name}" for alias in node.names if f"{base}.{alias.name}" in modules}
    is_whole = len(below) == len(node.names)
    return below if is_whole else below | ({base} if base in modules else set())


def find_circles(imports: list[Import]) -> list[list[str]]:
    """Return the strongly connected components of more than one module, the largest first (Tarjan, 1972)."""
    after: dict[str, list[str]] = {}
    for one in imports:
        after.setdefault(one.source, []).append(one.target)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in after.get(name, ()):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            component = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(component) > 1:
                circles.append(sorted(component))

    sys.setrecursionlimit(10_000)
    for name in sorted(after):
        if name not in index:
            visit(name)
    return sorted(circles, key=len, reverse=True)


def find_functions(modules: dict[str, Module]) -> Iterator[tuple[Module, Function]]:
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, Function):
                yield module, node


def measure_classes(modules: dict[str, Module]) -> list[ClassSize]:
    """Return the size of each class; attributes are what its methods set on ``self`` or it annotates in its body."""
    sizes = []
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                sizes.append(ClassSize(node.name, module.name, lines, len(_attributes(node))))
    return sizes


def _attributes(cls: ast.ClassDef) -> set[str]:
    found = set()
    for node in ast.walk(cls):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
            continue
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            found.add(node.attr)
    return found


def count_files(modules: dict[str, Module]) -> dict[Path, int]:
    """Return how many modules each folder has, its ``__init__.py`` not counted."""
    return Counter(one.path.parent for one in modules.values() if one.path.name != "__init__.py")


def measure(package: Path) -> dict[str, str]:
    """Return the rows of the table for one package."""
    modules = read_modules(package)
    imports = find_imports(modules)
    functions = [node for _, node in find_functions(modules)]
    lengths = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]
    sizes = sorted(one.lines for one in modules.values())
    circles = find_circles(imports)
    late = sum(one.late for one in imports)
    documented = [node for node in functions if not node.name.startswith("_")]
    with_docstring = sum(ast.get_docstring(node) is not None for node in documented)
    classes = measure_classes(modules)
    big = sum(one.lines > BIG_CLASS or one.attributes > MANY_ATTRIBUTES for one in classes)
    mocks, test_lines = _count_mocks(package)
    names = Counter(one.name for one in classes)
    return {
        "lines of source": f"{sum(sizes):,}",
        "modules": f"{len(modules):,}",
        "lines of a module, 9 of 10 at most": f"{_percentile(sizes, 0.9):.0f}",
        "functions": f"{len(functions):,}",
        f"functions over {LONG_FUNCTION} lines": f"{sum(n > LONG_FUNCTION for n in lengths):,}",
        f"classes over {BIG_CLASS} lines or {MANY_ATTRIBUTES} attributes": f"{big} of {len(classes)}",
        "class names that stand for several things": f"{sum(n > 1 for n in names.values())}",
        "public functions with a docstring": f"{with_docstring / max(1, len(documented)):.0%}",
        "files in circles of imports (the largest)": f"{sum(map(len, circles))} ({len(circles[0]) if circles else 0})",
        "late imports of its own modules": f"{late} ({late / max(1, len(imports)):.0%})",
        "files of the largest folder": f"{max(count_files(modules).values())}",
        "mocks per 1,000 lines of tests": f"{mocks / max(1, test_lines) * 1000:.1f}" if test_lines else "-",
    }


def _percentile(values: list[int], share: float) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[round(share * 100) - 1]


def _count_mocks(package: Path) -> tuple[int, int]:
    places = [package / "tests", *(above / "tests" for above in itertools.islice(package.parents, 2))]
    mocks = lines = 0
    for path in (file for place in places for file in place.rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        mocks += len(_MOCK.findall(text))
        lines += text.count("\n")
    return mocks, lines


def measure_budget(package: Path, tests: Path, modules: dict[str, Module]) -> dict[str, int]:
    """Return the figures that the budget limits. The small modules leave out `__init__.py` and `__main__.py`."""
    functions = [node for _, node in find_functions(modules)]
    formatting = Counter(figure for node in functions for figure in find_figures(node))
    by_folder: Counter[str] = Counter()
    for module in modules.values():
        folders = module.path.relative_to(package).parts[:-1]
        by_folder[f"lines of {folders[0] if folders else 'the root'}"] += module.lines
    named = [module for module in modules.values() if not module.path.name.startswith("__")]
    return {
        "lines": sum(module.lines for module in modules.values()),
        "modules": len(modules),
        f"modules under {SMALL_MODULE} lines": sum(module.lines < SMALL_MODULE for module in named),
        f"modules over {BIG_MODULE} lines": sum(module.lines > BIG_MODULE for module in modules.values()),
        "file names that stand for several modules": sum(
            count > 1 for count in Counter(module.path.name for module in named).values()
        ),
        f"classes over {BIG_CLASS} lines": sum(size.lines > BIG_CLASS for size in measure_classes(modules)),
        "functions that return dict[str, Any]": sum(
            node.returns is not None and "dict[str, Any]" in ast.unparse(node.returns) for node in functions
        ),
        "late imports": sum(imported.late for imported in find_imports(modules)),
        **{f"functions that format a {figure}": formatting[figure] for figure in (*UNITS, "count", "range")},
        "lines of tests": sum(path.read_bytes().count(b"\n") for path in tests.rglob("*.py")),
        **dict(sorted(by_folder.items())),
    }


def find_figures(function: Function) -> set[str]:
    """
    Return which figures a function formats by itself.

    These are recognized: a unit that follows a number which the f-string rounds, groups or calculates (`{n:.1f} MB`,
    `{n >> 20} MB`); the name of a unit in a list of them; a choice between a noun and its plural after a comparison;
    and `{a}-{b}` in a function that takes several things.
    """
    figures = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and re.fullmatch(r"[kKMGT]i?B", str(node.value)):
            figures.add("size")
        elif isinstance(node, ast.JoinedStr):
            for field, text in itertools.pairwise(node.values):
                if (
                    isinstance(field, ast.FormattedValue)
                    and isinstance(text, ast.Constant)
                    and _is_number(field)
                ):
                    figures |= {name for name, unit in UNITS.items() if re.match(unit, str(text.value))}
            if _is_range(node, function):
                figures.add("range")
        elif isinstance(node, ast.IfExp) and isinstance(node.test, ast.Compare):
            choices = [
                ast.literal_eval(choice)
                for choice in (node.body, node.orelse)
                if isinstance(choice, ast.Constant)
            ]
            if any(f"{choice}s" in choices for choice in choices):
                figures.add("count")
    return figures


def _is_number(field: ast.FormattedValue) -> bool:
    return (
        isinstance(field.value, ast.BinOp)
        or (isinstance(field.value, ast.Call) and ast.unparse(field.value.func) == "round")
        or (
            field.format_spec is not None
            and re.search(r"[.,gfd]", ast.unparse(field.format_spec)) is not None
        )
    )


def _is_range(text: ast.JoinedStr, function: Function) -> bool:
    takes_several = re.search(r"\b(Sequence|Collection|Iterable|list|set)\[", ast.unparse(function.args))
    shape = [
        "-" if isinstance(part, ast.Constant) and part.value == "-" else type(part) for part in text.values
    ]
    return takes_several is not None and shape == [ast.FormattedValue, "-", ast.FormattedValue]


def read_budget(path: Path = BUDGET) -> dict[str, dict[str, int]]:
    """Return the ceiling of each figure, and the goal of those that have one."""
    return tomllib.loads(path.read_text())


def find_excesses(figures: dict[str, int], budget: dict[str, dict[str, int]]) -> list[str]:
    """Return a sentence for each figure that has no ceiling, or is above it."""
    unlimited = [f"{name}: {BUDGET.name} has no ceiling for it" for name in figures if name not in budget]
    return unlimited + [
        f"{name}: {figure:,}, and the ceiling is {budget[name]['ceiling']:,}; delete something, or raise it in "
        f"scripts/{BUDGET.name} and argue why in the commit"
        for name, figure in figures.items()
        if name in budget and figure > budget[name]["ceiling"]
    ]


def lower_budget(figures: dict[str, int], path: Path = BUDGET) -> None:
    """Write each figure that is below its ceiling as the new ceiling."""

    def lower(line: re.Match[str]) -> str:
        ceiling = int(line["ceiling"].replace("_", ""))
        return f"{line['start']}{min(ceiling, figures.get(line['name'], 0)):_}"

    line = re.compile(r'^(?P<start>"(?P<name>[^"]+)" = \{ ceiling = )(?P<ceiling>[\d_]+)', re.MULTILINE)
    path.write_text(line.sub(lower, path.read_text()))


def print_budget(*, lower: bool) -> int:
    """Print each figure beside its ceiling and its goal; return the exit code."""
    figures = measure_budget(PACKAGE, TESTS, read_modules(PACKAGE))
    if lower:
        lower_budget(figures)
    budget = read_budget()
    print(f"{'':45}{'now':>9}{'ceiling':>9}{'goal':>9}")
    for name, figure in figures.items():
        limits = (
            f"{budget.get(name, {})[key]:,}" if key in budget.get(name, {}) else "-"
            for key in ("ceiling", "goal")
        )
        print(f"{name:45}{figure:9,}" + "".join(f"{limit:>9}" for limit in limits))
    excesses = find_excesses(figures, budget)
    for sentence in excesses:
        print(f"house: {sentence}", file=sys.stderr)
    return 1 if excesses else 0


def main(words: list[str]) -> int:
    if words in (["--budget"], ["--budget", "--lower"]):
        return print_budget(lower="--lower" in words)
    if any(word.startswith("-") for word in words):
        print("usage: house.py [NAME=PATH ...], or house.py --budget [--lower]", file=sys.stderr)
        return 2
    packages = {"drumline": PACKAGE}
    for word in words:
        name, _, path = word.partition("=")
        packages[name] = Path(path).resolve()
        if not packages[name].is_dir():
            print(
                f"house: {name}: {path or 'no path'} is not a folder (NAME=PATH of a package)",
                file=sys.stderr,
            )
            return 2
    columns = {name: measure(path) for name, path in packages.items()}
    print("| | " + " | ".join(columns) + " |")
    print("| --- |" + " ---: |" * len(columns))
    for row in columns["drumline"]:
        print(f"| {row} | " + " | ".join(column[row] for column in columns.values()) + " |")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main(sys.argv[1:]))
