"""
Counts the sentences of the documents and of ``--help`` whose subject is a free relative or a vague pronoun.

``python tests/prose.py`` prints the figures of each page and of the first lines of docstrings; ``-v`` the sentences.
"""

import ast
import re
import sys
from pathlib import Path

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
    r"(?:what|who\w*|whether|which|when|where|how|of|as|by|for|from|in|on|at|to|with|without|if|so|its|their|true|false"
    r"|none|none:.*|and|or|but|that|those|this|these|it|they)\b",
    re.IGNORECASE,
)


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


def docstring_openings() -> list[str]:
    """The first lines of all docstrings of the package."""
    nodes = (
        node for path in ROOT.glob("src/drumline/**/*.py") for node in ast.walk(ast.parse(path.read_text()))
    )
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = (ast.get_docstring(node) for node in nodes if isinstance(node, kinds))
    return [text.splitlines()[0] for text in texts if text]


def counts() -> dict[str, tuple[list[str], int]]:
    """For each page and for ``--help``: the vague sentences, and the number of all."""
    texts = {str(page.relative_to(ROOT)): sentences(page.read_text()) for page in PAGES}
    texts["--help"] = help_texts()
    return {name: ([one for one in found if is_vague(one)], len(found)) for name, found in texts.items()}


def main(verbose: bool) -> None:
    """Print the figures."""
    figures = counts()
    openings = docstring_openings()
    figures["docstrings that begin as a fragment"] = (
        [one for one in openings if _FRAGMENT.match(one)],
        len(openings),
    )
    for name, (found, number) in figures.items():
        print(f"{len(found):4} of {number:4}  {100 * len(found) / max(number, 1):5.1f} %  {name}")
        for sentence in found if verbose else ():
            print(f"        {sentence}")
    del figures["docstrings that begin as a fragment"]
    vague, number = sum(len(one) for one, _ in figures.values()), sum(n for _, n in figures.values())
    print(f"{vague:4} of {number:4}  {100 * vague / number:5.1f} %  pages and --help")


if __name__ == "__main__":
    main("-v" in sys.argv)
