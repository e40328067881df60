"""
The modules of the page as one file, and its styles as one: a new browser asks for two files, not for fifty over six
connections.

This is no bundler, and makes no file: people edit modules, and whoever asks is sent them together. Each becomes a
function, which runs when a module that imports it does, so one after another as in a browser. Only those forms of
``import`` and ``export`` are known that our modules and their libraries use; a test looks for others.
"""

from __future__ import annotations

import os
import posixpath
import re

ENTRY = "js/main.js"
SCRIPT = "js/joined.js"
STYLE = "css/joined.css"
STYLES = ("base", "parts", "pages", "panels", "logs")
"""In this order: later ones go before earlier ones."""

_APART = ("vendor/uplot.js",)
"""Which few pages need, and which is half as large as all others."""

_TYPES = re.compile(rb"/\*\*.*?\*/|^[ \t]*//(?!#)[^\n]*", re.DOTALL | re.MULTILINE)
"""Comments for the type checker, and lines that are one for people."""

_STYLE_SPACE = re.compile(rb"/\*.*?\*/|^[ \t]+", re.DOTALL | re.MULTILINE)

_IMPORT = re.compile(r"""\bimport\s*(?:(\w+)|\{([^}]*)\})\s*from\s*"([^"]+)";?""")
_IMPORT_LATER = re.compile(r"""\bimport\("([^"]+)"\)""")
_PASSED_ON = re.compile(r"""\bexport\s*\{([^}]*)\}\s*from\s*"([^"]+)";?""")
_EXPORT_LIST = re.compile(r"\bexport\s*\{([^}]*)\};?")
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.MULTILINE)
_EXPORT_DEFAULT = re.compile(r"\bexport default\b")
_SOURCE_MAP = re.compile(r"//# sourceMappingURL=\S*\s*$")

_HEAD = """\
const $make = {};
const $made = {};
const $use = (name) => ($made[name] ??= $make[name]({}));
const $later = async (name) => $use(name);
"""


def join_styles(folder: str) -> bytes:
    """Return all styles of the page. Raises OSError."""
    return b"\n".join(read_file(folder, f"css/{name}.css") for name in STYLES)


def join_scripts(folder: str) -> bytes:
    """Return a module that does what ENTRY does, with all modules that it imports, now or later. Raises OSError."""
    parts, left, known = [_HEAD], [ENTRY], {ENTRY}
    while left:
        name = left.pop()
        module = _JoinedModule(name, read_file(folder, name).decode())
        parts.append(module.text)
        left += [one for one in dict.fromkeys(module.needs) if one not in known]
        known.update(module.needs)
    return ("\n".join(parts) + f'\n$use("{ENTRY}");\n').encode()


class _JoinedModule:
    """The function of a module, as text, and the names of the modules that it needs."""

    def __init__(self, name: str, text: str) -> None:
        self._folder = posixpath.dirname(name)
        self._exported: list[str] = []
        self.needs: list[str] = []
        text = _SOURCE_MAP.sub("", text)
        text = _IMPORT.sub(self._import, text)
        text = _IMPORT_LATER.sub(self._import_later, text)
        text = _PASSED_ON.sub(self._pass_on, text)
        text = _EXPORT_LIST.sub(self._export_list, text)
        text = _EXPORT.sub(self._export, text)
        text = _EXPORT_DEFAULT.sub("$out.default =", text)
        told = f"return Object.assign($out, {{ {', '.join(self._exported)} }});"
        self.text = f'$make["{name}"] = ($out) => {{\n{text}\n{told}\n}};'

    def _find(self, target: str) -> str:
        return posixpath.normpath(posixpath.join(self._folder, target))

    def _use(self, target: str) -> str:
        found = self._find(target)
        self.needs.append(found)
        return f'$use("{found}")'

    def _import(self, found: re.Match[str]) -> str:
        names = f"default: {found[1]}" if found[1] else found[2].replace(" as ", ": ")
        return f"const {{{names}}} = {self._use(found[3])};"

    def _import_later(self, found: re.Match[str]) -> str:
        target = self._find(found[1])
        if target in _APART:
            return f'import("{posixpath.relpath(target, posixpath.dirname(SCRIPT))}")'
        self.needs.append(target)
        return f'$later("{target}")'

    def _pass_on(self, found: re.Match[str]) -> str:
        self._exported.append(f"...(({{{found[1]}}}) => ({{{found[1]}}}))({self._use(found[2])})")
        return ""

    def _export_list(self, found: re.Match[str]) -> str:
        pairs = [one.split(" as ") for one in found[1].replace("\n", " ").split(",") if one.strip()]
        self._exported += [f"{pair[-1].strip()}: {pair[0].strip()}" for pair in pairs]
        return ""

    def _export(self, found: re.Match[str]) -> str:
        self._exported.append(found[1])
        return ""


def drop_types(script: bytes) -> bytes:
    r"""
    Return a module of the page without comments on lines of their own, as browsers are sent it; the numbers of its
    lines stay.

    >>> drop_types(b"/**\n * @param {string} name\n */\nlet a = /** @type {any} */ (b);\n")
    b'\n\n\nlet a =  (b);\n'
    """
    return _TYPES.sub(_keep_lines, script)


def drop_style_space(style: bytes) -> bytes:
    r"""
    Return styles without comments and indentation, likewise.

    >>> drop_style_space(b"/* In order.\n */\na {\n  color: red;\n}\n")
    b'\n\na {\ncolor: red;\n}\n'
    """
    return _STYLE_SPACE.sub(_keep_lines, style)


def _keep_lines(found: re.Match[bytes]) -> bytes:
    return b"\n" * found[0].count(b"\n")


def read_file(folder: str, name: str) -> bytes:
    """Return a file of the page as browsers are sent it. Raises OSError."""
    with open(os.path.join(folder, *name.split("/")), "rb") as file:
        data = file.read()
    if name.startswith("css/"):
        return drop_style_space(data)
    return drop_types(data) if name.startswith("js/") else data
