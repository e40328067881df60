"""Rules about the text of a command, its variables, inputs and outputs. Each begins with a search for a word."""

from __future__ import annotations

import re
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

from drumline.contract.hiding import is_secret
from drumline.contract.record import NamedTuple, compile_late
from drumline.control.lint.code_rules import reads_variables
from drumline.control.lint.programs import list_texts
from drumline.spec.parts.io import RESERVED_OUTPUTS
from drumline.spec.placeholders import legacy_forms
from drumline.spec.reading.source import Mapping, Node, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.control.lint.programs import LintedCommand, Trap

# Lines of a command as they are written


class _CommandLine(NamedTuple):
    text: str
    node: Node
    """Of one line, for the caret."""

    is_quoted: bool
    """Whether it begins within quotes of the shell."""


def _read_block(node: Node | None) -> list[_CommandLine]:
    """Return the lines of a block text (``|``, ``>``); empty for another."""
    if not isinstance(node, Scalar) or node.style not in ("|", ">") or node.source is None or not node.value:
        return []
    lines: list[_CommandLine] = []
    indent = 0
    quote = ""
    for number, text in enumerate(node.source.lines[node.line :], node.line + 1):
        width = len(text) - len(text.lstrip())
        indent = indent or width
        if (text.strip() and width < indent) or (not indent and text.strip()):
            break
        stripped = text.strip()
        lines.append(
            _CommandLine(
                text[indent:],
                Scalar(None, "", node.source, number, width + 1, max(1, len(stripped))),
                bool(quote),
            )
        )
        quote = _end_quote(stripped, quote)
    return lines


def _split_text(command: Scalar) -> list[_CommandLine]:
    """Return the lines of a command whose lines have no place of their own."""
    lines: list[_CommandLine] = []
    quote = ""
    for text in str(command.value).splitlines():
        lines.append(_CommandLine(text, command, bool(quote)))
        quote = _end_quote(text.strip(), quote)
    return lines


def _end_quote(text: str, quote: str) -> str:
    """Return the quote of the shell that is open after a line, or nothing."""
    is_escaped = False
    for place, letter in enumerate(text):
        if is_escaped:
            is_escaped = False
        elif letter == "\\" and quote != "'":
            is_escaped = True
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (place == 0 or text[place - 1].isspace()):
            break
    return quote


def _find_comment(line: _CommandLine) -> int:
    """Return where a comment of the shell begins in a line; -1 if there is none."""
    place = line.text.find("#")
    while place >= 0:
        before = line.text[:place]
        if (not before or before[-1].isspace()) and not _end_quote(before, "") and not line.is_quoted:
            return place
        place = line.text.find("#", place + 1)
    return -1


def _check_folded(program: LintedCommand) -> Iterator[Trap]:
    """Find comments and backslashes in a command whose lines YAML joins."""
    command = program.node.get("command")
    if not isinstance(command, Scalar) or command.style != ">":
        return
    lines = _read_block(command)
    for number, (line, after) in enumerate(pairwise(lines), 1):
        if not after.text.strip() or after.text[:1].isspace() or line.text[:1].isspace():
            continue  # YAML keeps these ends of lines.
        place = _find_comment(line)
        if place >= 0:
            node = Scalar(
                None, "", command.source, line.node.line, line.node.column + place, len(line.text) - place
            )
            lost = " ".join(takewhile(bool, (hidden.text.strip() for hidden in lines[number:])))
            what = f"`>` joins the lines of the command, so that this comment hides `{lost[:60].rstrip()}`"
            yield program.trap(
                "comment-in-command", node, "command", what, "write `command: |`, or remove the comment"
            )
            return
        if line.text.rstrip().endswith("\\"):
            what = "`>` joins the lines of the command, so that this backslash makes the next word begin with a blank"
            hint = "remove it, or write `command: |`"
            yield program.trap("broken-continuation", line.node, "command", what, hint)


def _check_lines(program: LintedCommand) -> Iterator[Trap]:
    """Find lines of a literal command that the shell runs as commands of their own."""
    command = program.node.get("command")
    if not isinstance(command, Scalar) or "\n" not in str(command.value or "") or command.style == ">":
        return
    lines = _read_block(command) or _split_text(command)
    before = ""
    is_heredoc = False
    depth = 0
    for line in lines:
        text = line.text.strip()
        if re.search(r"\\[ \t]+$", line.text) and not is_heredoc:
            what = "blanks after the backslash: the shell ends the command here"
            yield program.trap(
                "broken-continuation", line.node, "command", what, "remove the blanks at the end"
            )
        continues = before.endswith(("\\", "&&", "||", "|", "(", ";")) or line.is_quoted or is_heredoc
        is_open = depth > 0 or re.match(r"[\w*|.-]+\)", text)  # an array, a branch of `case`
        depth += len(re.findall(r"=\($|=\([^)]*$", text)) - (text == ")" or text.endswith(" )"))
        if before and not continues and not is_open and re.match(_OPTION, text):
            what = f"the shell runs the line `{text[:40]}` as a command of its own"
            yield program.trap(
                "line-is-a-command", line.node, "command", what, "end the line before it with a backslash"
            )
        is_heredoc = is_heredoc or "<<" in text
        if text:
            before = "" if text.startswith("#") else text


_OPTION = (
    r"--?[A-Za-z]"  # an option
    r"|[A-Za-z_]\w*(\.\w+)+=\S*$"  # such as Hydra's overrides
)

# Variables, secrets, placeholders

_OWN = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")
_LAUNCHERS = compile_late(
    r"\b(torchrun|mpirun|mpiexec|horovodrun|deepspeed|accelerate|srun|ray|torch\.distributed|pdsh|NODE_RANK|GROUP_RANK"
    r"|MASTER_ADDR|AZUREML_NODE|OMPI_|DRUMLINE_\w+)"
)


def _check_nodes(program: LintedCommand) -> Iterator[Trap]:
    count = program.find("resources", "instance_count")
    if count is None or not isinstance(count.value, int) or count.value <= 1:
        return
    if program.find("distribution") is None and not _LAUNCHERS.search(program.command):
        what = (
            f"resources.instance_count is {count.value} without a distribution: "
            "each node runs the command, without RANK and WORLD_SIZE"
        )
        hint = "add `distribution: {type: pytorch, process_count_per_instance: 1}`"
        yield program.trap("nodes-without-distribution", count, "resources.instance_count", what, hint)


def _check_variables(program: LintedCommand) -> Iterator[Trap]:
    """Find what the command sets for all ranks alike, in place of their own; what the file sets is not used."""
    distribution = program.find("distribution", "type")
    if distribution is None:
        return
    hint = "remove it: each rank gets its own"
    variables = program.find("environment_variables")
    for name, _, value in variables if isinstance(variables, Mapping) else ():
        if str(name).endswith("_SOCKET_IFNAME") and value.value == "lo" and _count_nodes(program) > 1:
            what = f"{name}=lo connects the ranks of one node alone"
            yield program.trap("rank-variable", value, f"environment_variables.{name}", what, "remove it")
    command = program.command
    for name in _OWN:
        written = (
            re.search(rf"(?:^|[\s;&])(?:export\s+)?{name}=(?![\"']?\$)", command)
            if f"{name}=" in command
            else None
        )
        if written and not _LAUNCHERS.search(command.replace(written[0], " ")):
            node = program.node.get("command")
            what = f"the command sets {name} for all ranks alike, in place of each rank's own"
            yield program.trap("rank-variable", node, "command", what, hint)


def _count_nodes(program: LintedCommand) -> int:
    count = program.find("resources", "instance_count")
    return count.value if count is not None and isinstance(count.value, int) else 1


_TOKEN = compile_late(
    r"\b(hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|AKIA[A-Z0-9]{16}|sk-(?=[\w-]*\d)(?:proj-)?[A-Za-z0-9_]{20,}"
    r"|xox[bpas]-[\w-]{10,}|glpat-[\w-]{20,}|AccountKey=[\w+/=]{40,}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]+)"
)
_LEAST_SECRET = 20


def _check_secrets(program: LintedCommand) -> Iterator[Trap]:
    hint = "`drumline: {secrets: [NAME]}` takes the value from your shell, and stores it nowhere"
    variables = program.find("environment_variables")
    for name, _, value in variables if isinstance(variables, Mapping) else ():
        text = str(value.value or "")
        is_named = (
            is_secret(str(name))
            and not re.search("FILE|PATH|DIR|CACHE", str(name).upper())
            and re.fullmatch(rf"[A-Za-z0-9+/=]{{{_LEAST_SECRET},}}", text)
        )
        is_password = "PASSW" in str(name).upper() and re.fullmatch(r"[^\s${<]{6,}", text)
        if (
            is_password
            or _TOKEN.search(text)
            or (is_named and re.search(r"\d", text) and re.search(r"[A-Za-z]", text))
        ):
            what = f"the value of {name} looks like a secret, which everyone who reads the file has"
            yield _without_line(
                program.trap("secret-in-file", value, f"environment_variables.{name}", what, hint)
            )
    if _TOKEN.search(program.command):
        what = "the command has what looks like a secret, which everyone who reads the file has"
        yield _without_line(
            program.trap("secret-in-file", program.node.get("command"), "command", what, hint)
        )


def _without_line(trap: Trap) -> Trap:
    trap.problem.source_line = ""
    return trap


def _check_inputs(program: LintedCommand) -> Iterator[Trap]:
    """Find inputs and outputs that nothing names."""
    for group in ("inputs", "outputs"):
        named = program.node.get(group)
        if not isinstance(named, Mapping):
            continue
        texts = " ".join(
            text.value for path, text in list_texts(program.whole, "") if not path.startswith("inputs.")
        )
        for name, key, _ in named:
            is_named = re.search(rf"\b{group}\.{re.escape(str(name))}\b", texts)
            if group == "outputs" and name in RESERVED_OUTPUTS:
                continue
            if not is_named and not reads_variables(program):
                kind = group.removesuffix("s")
                what = f"nothing uses the {kind} {name!r}"
                hint = f"name it in the command: ${{{{{group}.{name}}}}}"
                yield program.trap("unused-input", key, f"{group}.{name}", what, hint)


def _check_braces(program: LintedCommand) -> Iterator[Trap]:
    for said in legacy_forms(program.command):
        yield program.trap("single-braces", program.node.get("command"), "command", said, "write two braces")


RULES = (
    _check_folded,
    _check_lines,
    _check_nodes,
    _check_variables,
    _check_secrets,
    _check_inputs,
    _check_braces,
)
