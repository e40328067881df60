"""Rules about the files of a job's code: the scripts that its command runs, and what these import."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from drumline.contract.errors import PlanError, Problem
from drumline.contract.record import NamedTuple, compile_late
from drumline.control.lint.programs import Trap
from drumline.spec.paths import is_remote
from drumline.spec.reading.source import Mapping, Scalar, Sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drumline.control.lint.programs import LintedCommand

_MOST_BYTES = 1 << 20
_MOST_FILES = 200


class CodeScript(NamedTuple):
    path: str
    """As the command has it, relative to the code."""

    full: str
    is_shell: bool
    is_direct: bool
    """Whether the system starts it, and no interpreter that the command names."""


_RUN = compile_late(
    r"(?:^|[;&|(\n]|\bthen\b|\bdo\b|\bexec\b|\btorchrun\b|\blaunch\b|\bdeepspeed\b)[ \t]*"
    r"(?:[A-Z_][A-Z0-9_]*=\S*[ \t]+)*"
    r"(?:(?P<python>[\w./-]*python[0-9.]*)(?:[ \t]+-[uOBbEsx]+)*[ \t]+(?P<script>[\w./-]+\.py)"
    r"|(?P<shell>(?:ba|z|da)?sh|source|\.)[ \t]+(?P<file>[\w./-]+\.\w+)"
    r"|(?P<direct>\.{1,2}/[\w./-]+))(?=$|[\s;&|)])"
)
_MAKES_FILES = compile_late(
    r"(?:\b(?:cd|pushd|git|wget|curl|unzip|tar|cp|mv|ln|cat|echo|printf|make|cmake|gcc|g\+\+|mpicc|nvcc|jupyter|rsync|sed|tee|az"
    r"|gsutil|aws|azcopy|dvc|test)|\[\[?)(?=\s)"
)
"""Commands after which a file may be there that is not in the code."""


def _find_code(program: LintedCommand) -> str:
    """Return the folder of the program's code; empty if it has none here."""
    code = program.find("code")
    named = str(code.value or "") if code is not None else ""
    if not named or is_remote(named) or named.startswith("azureml:") or "${{" in named:
        return ""
    folder = os.path.join(program.folder, os.path.expanduser(named.removeprefix("file:")))
    return folder if os.path.isdir(folder) else ""


def _list_scripts(program: LintedCommand) -> list[CodeScript]:
    """Return the scripts that the command runs, as far as plain words say it."""
    folder = _find_code(program)
    scripts: list[CodeScript] = []
    command = program.command.replace("\\\n", " ")
    for found in _RUN.finditer(command) if folder else ():
        path = found["script"] or found["file"] or found["direct"]
        # A script of the shell may make files too.
        before = command[: found.end()].rpartition(path)[0]
        is_made = _MAKES_FILES.search(before) or any(
            script.is_shell or script.is_direct for script in scripts
        )
        if not os.path.isabs(path) and not is_made:
            full = os.path.normpath(os.path.join(folder, path))
            scripts.append(CodeScript(path, full, bool(found["shell"]), bool(found["direct"])))
    return scripts


@lru_cache(64)
def _read_text(path: str, _stamp: int) -> str:
    with open(path, "rb") as file:
        return file.read(_MOST_BYTES).decode(errors="replace")


def _read(path: str) -> str:
    """Return the text of a plain file; empty for another, or none."""
    try:
        facts = os.stat(path)
        return _read_text(path, facts.st_mtime_ns) if os.path.isfile(path) else ""
    except OSError:
        return ""


def reads_variables(program: LintedCommand) -> bool:
    """Return whether the command or a script reads its inputs from Azure's variables."""
    texts = [program.command, *(_read(script.full) for script in _list_scripts(program))]
    return any(re.search(r"AZURE_?ML_(INPUT|OUTPUT|DATAREFERENCE)", text) for text in texts)


def _check_scripts(program: LintedCommand) -> Iterator[Trap]:
    command = program.node.get("command")
    for script in _list_scripts(program):
        if not os.path.exists(script.full):
            if not _is_included(program, script):
                what = f"the code has no {script.path}"
                hint = f"the folder of the code is {_find_code(program)}"
                yield program.trap("missing-script", command, "command", what, hint)
            continue
        ignored = _explain_ignored(_find_code(program), script.full)
        if ignored:
            what = f"{script.path} is in your folder, and left out of the code: {ignored}"
            yield program.trap(
                "missing-script", command, "command", what, "`!` before a pattern takes files again"
            )
        text = _read(script.full)
        first = text.partition("\n")[0]
        if first.endswith("\r") and (script.is_shell or (script.is_direct and first.startswith("#!"))):
            what = f"{script.path} has Windows' ends of lines, which the shell takes for part of the words"
            yield program.trap(
                "carriage-returns", command, "command", what, f"sed -i 's/\\r$//' {script.path}"
            )
        if script.is_direct and os.path.isfile(script.full) and not os.access(script.full, os.X_OK):
            what = f"{script.path} is not executable"
            yield program.trap("missing-script", command, "command", what, f"chmod +x {script.path}")


def _is_included(program: LintedCommand, script: CodeScript) -> bool:
    """Return whether a file that lies beside the code is added to it."""
    includes = program.find("additional_includes")
    items = includes.items if isinstance(includes, Sequence) else []
    return any(os.path.basename(str(item.value).rstrip("/")) == script.path.split("/")[0] for item in items)


# Imports


_IMPORT = compile_late(
    r"^[ \t]*(?:from[ \t]+([A-Za-z_][\w.]*)[ \t]+import\b|import[ \t]+([A-Za-z_][\w., \t]*))", re.MULTILINE
)


def _check_imports(program: LintedCommand) -> Iterator[Trap]:
    """Find modules of the folder that are imported, and that an ignore file leaves out of the code."""
    folder = _find_code(program)
    if not folder or not _list_ignore_files(folder):
        return
    waiting = [script.full for script in _list_scripts(program) if script.full.endswith(".py")]
    seen: set[str] = set()
    told: set[str] = set()
    while waiting and len(seen) < _MOST_FILES:
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        for module, line, text in _list_imports(path):
            found = _find_module(module, os.path.dirname(path), folder)
            if not found or found in seen:
                continue
            ignored = _explain_ignored(folder, found)
            if not ignored:
                waiting.append(found)
            elif module not in told:
                told.add(module)
                what = f"{module} is imported here, is in your folder, and is left out of the code: {ignored}"
                place = {
                    "file": os.path.relpath(path),
                    "line": line,
                    "column": 1,
                    "source_line": text[:120],
                    "width": len(text[:120]),
                }
                hint = "`!` before a pattern takes files again; a .amlignore counts in place of .gitignore"
                yield Trap("ignored-import", Problem(what, hint=hint, **place))  # type: ignore[arg-type]


def _list_imports(path: str) -> Iterator[tuple[str, int, str]]:
    """Yield each module that a file imports once, with the line and its text."""
    text = _read(path)
    seen: set[str] = set()
    line, counted = 1, 0
    for found in _IMPORT.finditer(text):
        line, counted = line + text.count("\n", counted, found.start()), found.start()
        names = [name.split()[0] for name in (found[1] or found[2]).split(",") if name.strip()]
        for name in names:
            if name not in seen:
                seen.add(name)
                yield name, line, found[0].strip()


def _find_module(module: str, beside: str, folder: str) -> str:
    """Return the file of a module that is in the folder of the code; empty for others."""
    parts = module.split(".")
    for root in dict.fromkeys((beside, folder)):
        for count in range(len(parts), 0, -1):
            base = os.path.join(root, *parts[:count])
            for path in (f"{base}.py", os.path.join(base, "__init__.py")):
                if os.path.isfile(path):
                    return path
    return ""


def _list_ignore_files(folder: str) -> list[str]:
    """Return the names of the files that may leave something out, without loading who reads them."""
    return sorted(name for name in os.listdir(folder) if name.endswith("ignore"))


@lru_cache(1)
def _read_rules(folder: str, _stamps: tuple[int, ...]) -> Callable[[str], bool]:
    from drumline.staging.snapshot.code_files import read_ignore_rules

    return read_ignore_rules(folder)


def _explain_ignored(folder: str, path: str) -> str:
    """Return what leaves a file out of the code: the ignore file, its line and pattern; empty for one that is taken."""
    relative = os.path.relpath(
        path, os.path.realpath(folder) if path.startswith(os.path.realpath(folder)) else folder
    )
    if relative.startswith(".."):
        return ""
    parts = relative.split(os.sep)
    asked = [*("/".join(parts[:count]) + "/" for count in range(1, len(parts))), "/".join(parts)]
    files = _list_ignore_files(folder)
    if not files:
        return ""
    from drumline.staging.snapshot.code_files import NAMES

    try:
        stamps = tuple(os.stat(os.path.join(folder, name)).st_mtime_ns for name in files)
        if not any(map(_read_rules(folder, stamps), asked)):
            return ""
    except (PlanError, OSError):
        return ""  # Whoever takes the code says so.
    from pathspec import GitIgnoreSpec

    name = next(name for name in NAMES if os.path.isfile(os.path.join(folder, name)))
    for number, line in enumerate(_read(os.path.join(folder, name)).splitlines(), 1):
        if line.strip() and not line.startswith(("#", "!")):
            spec = GitIgnoreSpec.from_lines([line])
            if any(spec.match_file(path) for path in asked):
                return f"line {number} of {name} is `{line.strip()[:40]}`"
    return name


# What the scripts expect


_LOCAL_RANK = compile_late(r"add_argument\(\s*['\"]--local[_-]rank['\"]")
_NCCL = compile_late(r"init_process_group\(\s*(?:backend\s*=\s*)?['\"]nccl['\"]")


def _check_expectations(program: LintedCommand) -> Iterator[Trap]:
    kind = program.find("distribution", "type")
    is_pytorch = str(kind.value if kind is not None else "").lower() == "pytorch"
    for script in _list_scripts(program) if is_pytorch else ():
        text = _read(script.full)
        expected = _LOCAL_RANK.search(text)
        if (
            expected
            and "LOCAL_RANK" not in text
            and "deepspeed" not in text
            and "local_rank=" not in program.command.replace("-", "_")
        ):
            what = "the script takes --local_rank, which has its default on every rank here"
            yield _at(
                "local-rank-argument", script, text, expected, what, 'read `int(os.environ["LOCAL_RANK"])`'
            )
        fixed = _NCCL.search(text) if program.target.gpu_count == 0 else None
        if fixed and "is_available()" not in text:
            what = "nccl needs a GPU on every rank, and this machine has none"
            yield _at(
                "nccl-without-gpu",
                script,
                text,
                fixed,
                what,
                "`init_process_group()` without a backend takes what fits",
            )


def _at(rule: str, script: CodeScript, text: str, found: re.Match[str], what: str, hint: str) -> Trap:
    """Return a trap at a place in a script."""
    line = text.count("\n", 0, found.start()) + 1
    shown = text.split("\n")[line - 1][:120].replace("\t", " ")
    column = found.start() - (text.rfind("\n", 0, found.start()) + 1) + 1
    place = {"file": os.path.relpath(script.full), "line": line, "column": column, "source_line": shown}
    return Trap(rule, Problem(what, hint=hint, width=len(found[0].partition("\n")[0]), **place))  # type: ignore[arg-type]


_ELSEWHERE = compile_late(r"(?:(?<=[\s='\"])|^)(/mnt/[\w.-]+/[\w./-]+|[A-Za-z]:\\\w[\w.\\-]+)")


def _check_paths(program: LintedCommand) -> Iterator[Trap]:
    """Find paths of another machine: a mount that is not here, a drive of Windows."""
    nodes = [("command", program.node.get("command"))]
    for group in ("environment_variables", "inputs"):
        values = program.find(group)
        for name, _, value in values if isinstance(values, Mapping) else ():
            path = value.get("path") if isinstance(value, Mapping) else None
            nodes.append((f"{group}.{name}", path or value))
    for field, node in nodes:
        if (
            not isinstance(node, Scalar)
            or not isinstance(node.value, str)
            or not ("/mnt/" in node.value or ":\\" in node.value)
        ):
            continue
        found = _ELSEWHERE.search(node.value)
        if found and (
            ":\\" in found[1]
            or (program.target.is_here and not os.path.exists("/".join(found[1].split("/")[:3])))
        ):
            what = f"{found[1]} is a path of another machine"
            yield program.trap(
                "path-of-another-machine",
                node,
                field,
                what,
                "make it an input, which is put in place on each node",
            )


RULES = (_check_scripts, _check_imports, _check_expectations, _check_paths)
