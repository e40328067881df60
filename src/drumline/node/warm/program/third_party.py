"""A first look, which costs next to nothing, at whether a program may have anything to import ahead."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_BYTES = 1 << 20
_PROGRAM = re.compile(r"[^\s'\"=;&|]+\.py(?=$|[\s'\";&|])")
_IMPORT = re.compile(r"^[ \t]*(?:import[ \t]+([^#;\n]+)|from[ \t]+([.\w]+))", re.MULTILINE)


def may_import_third_party(argv: Sequence[str], cwd: str) -> bool:
    """
    Return whether the program's text may import a third-party package; False: all its imports are of the standard
    library.
    """
    standard = getattr(sys, "stdlib_module_names", None)
    programs = _PROGRAM.findall(" ".join(argv))
    if not programs or standard is None:
        return True
    for program in programs:
        try:
            with open(os.path.join(cwd, program), encoding="utf-8", errors="replace") as file:
                text = file.read(_MAX_BYTES)
        except OSError:
            return True
        for several, one in _IMPORT.findall(text):
            for name in several.split(",") if several else [one]:
                if name.strip().partition(" ")[0].partition(".")[0] not in standard:
                    return True
    return False
