"""
Counts the sentences of the documents and of ``--help`` whose subject is a free relative or a vague pronoun, and the
docstrings whose first line does not stand alone.

``python tests/prose.py`` prints the figures of each page and of the first lines of docstrings; ``-v`` the sentences.
"""

import ast
import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *(page for page in ROOT.glob("*.md") if page.name != "CHANGELOG.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
        *ROOT.glob("benchmarks/**/README.md"),
    ]
)

_GENERATED = re.compile(r"^<!-- begin: .*?^<!-- end: ", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_END = re.compile(r"(?<=[.?!])\s+(?=[A-Z`\"*(\[])|\n|(?<!\\)\|")
_BULLET = re.compile(r"^(?:[-*] |\d+\. |#+ |> )?[*_(\[]*")
_PRONOUN = r"(?:whoever|whatever|whichever|nobody|no one|somebody|someone)"
_VAGUE = re.compile(
    rf"^(?:what|who|{_PRONOUN})\b|"
    rf"[:;] \(?(?:what|who|{_PRONOUN})\b|"
    rf", (?:and|but|so|or|for) (?:what|who|{_PRONOUN})\b|"
    rf"\b(?:and|but|so|or|for|because|that|if|when|where|while|as|which|until|than) {_PRONOUN} (?!of\b)\w+",
    re.IGNORECASE,
)
_OBJECT = re.compile(
    r"(?:say|says|show|shows|tell|tells|know|knows|see|explain|explains)\b[^.;:]*, and (?:what|who) "
)
_FRAGMENT = re.compile(
    r"(?:what|who(?:ever|m|se)?|whether|which|when|where|why|how|of|as|by|for|from|in|on|at|to|with|without|after|until|if|so|its"
    r"|their|true|false|none|none:.*|and|or|but|that|those|these|it|they|told|raises)\b|``[a-z_]+``:",
    re.IGNORECASE,
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

_VERBS = """
Accept Add Admit Adopt Align Allow Answer Append Apply Archive Ask Attach Become Begin Block Break Bring Build
Call Cancel Change Check Choose Claim Clear Close Collect Colour Combine Compare Compose Connect Convert Copy
Count Create Cut Decide Decode Delete Describe Detach Digest Discard Do Draw Drop Encode End Enter Escape
Examine Exchange Execute Expand Expect Explain Fail Fetch Fill Find Follow Forget Fork Format Forward Get Give Go Group
Hand Handle Have Hear Hide Hold Import Install Join Keep Kill Lay Leave Let Limit Link List Listen Load Locate
Log Look Lose Make Measure Merge Mount Move Name Note Obey Open Override Parse Pass Plan Postpone Print Put
Quote Raise Read Reap Receive Record Recover Redraw Refuse Register Remember Remove Rename Render Renew Replace
Report Request Resolve Restore Return Round Run Sample Say Send Serve Set Share Shorten Show Signal Silence
Sleep Sort Split Start Stop Store Submit Subtract Summarize Take Tell Terminate Translate Turn Undo Unmount
Update Upload Use Wait Wake Warn Watch Work Write Yield
"""
VERBS = frozenset(_VERBS.split())
"""The words that docstrings of functions begin with. Add the one that yours needs."""


def sentences(text: str) -> list[str]:
    """The sentences, headings and table cells of a page, without code, generated tables and questions."""
    text = _CODE.sub("", _GENERATED.sub("", text))
    pieces = (_BULLET.sub("", piece.strip()) for piece in _END.split(text))
    return [piece for piece in pieces if len(re.findall(r"[A-Za-z]+", piece)) > 2 and piece[-1] != "?"]


def is_vague(sentence: str) -> bool:
    """Whether the subject, or that of a later clause, is a free relative or a vague pronoun."""
    return bool(_VAGUE.search(_OBJECT.sub("", sentence)))


def help_texts() -> list[str]:
    """The texts of ``--help``: those of arguments, and those of commands and verbs in their tables."""
    trees = (ast.parse(module.read_text()) for module in sorted(ROOT.glob("src/drumline/cli/**/*.py")))
    helps = (node for tree in trees for node in ast.walk(tree) if _is_help(node))
    texts = (one.value for node in helps for one in ast.walk(node) if isinstance(one, ast.Constant))
    return [sentence for text in texts if isinstance(text, str) for sentence in sentences(text)]


def _is_help(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword):
        return node.arg in ("help", "description", "epilog")
    if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Dict):
        return False
    names = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(name, ast.Name) and name.id in ("COMMANDS", "VERBS") for name in names)


class Opening(NamedTuple):
    """The first line of a docstring."""

    place: str
    is_function: bool
    text: str


def openings() -> list[Opening]:
    """Return the first lines of all docstrings of the package; methods and properties count as functions."""
    found = []
    for path in sorted(ROOT.glob("src/drumline/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Module)) and (
                text := ast.get_docstring(node)
            ):
                place = f"{path.relative_to(ROOT)}:{node.body[0].lineno}"
                found.append(Opening(place, isinstance(node, _FUNCTIONS), text.splitlines()[0]))
    return found


def is_fragment(opening: Opening) -> bool:
    """Return whether it needs the name to be understood; a function's has to begin with a verb."""
    if opening.is_function:
        return re.split(r"[\s,;:.]", opening.text, maxsplit=1)[0] not in VERBS
    return bool(_FRAGMENT.match(opening.text))


def counts() -> dict[str, tuple[list[str], int]]:
    """For each page and for ``--help``: the vague sentences, and the number of all."""
    texts = {str(page.relative_to(ROOT)): sentences(page.read_text()) for page in PAGES}
    texts["--help"] = help_texts()
    return {name: ([one for one in found if is_vague(one)], len(found)) for name, found in texts.items()}


def main(verbose: bool) -> None:
    """Print the figures."""
    figures = counts()
    vague, number = sum(len(one) for one, _ in figures.values()), sum(n for _, n in figures.values())
    first_lines = openings()
    for what, is_function in (("functions", True), ("classes and modules", False)):
        alike = [one for one in first_lines if one.is_function == is_function]
        found = [f"{one.place}: {one.text}" for one in alike if is_fragment(one)]
        figures[f"docstrings of {what} that begin as a fragment"] = found, len(alike)
    for name, (found, many) in figures.items():
        print(f"{len(found):4} of {many:4}  {100 * len(found) / max(many, 1):5.1f} %  {name}")
        for sentence in found if verbose else ():
            print(f"        {sentence}")
    print(f"{vague:4} of {number:4}  {100 * vague / number:5.1f} %  pages and --help")


if __name__ == "__main__":
    main("-v" in sys.argv)
