"""Optional packages of this installation: which extra has them, and the line that installs it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from typing import Optional
from urllib.parse import unquote, urlsplit

from drumline.contract import uris

_OF_SERVICE: dict[str, tuple[str, str]] = {
    uris.AZURE: ("obstore", "azure"),
    uris.S3: ("obstore", "s3"),
    uris.GS: ("obstore", "gs"),
    uris.HF: ("huggingface_hub", "hf"),
}
"""The package that reads a service, and the extra that brings it; web servers need neither."""


def missing_for(uri: str) -> Optional[tuple[str, str]]:
    """Return the package that this installation lacks to read or write there, and its extra; None: nothing."""
    from importlib.util import find_spec

    needed = _OF_SERVICE.get(uris.parse(uri).service)
    return needed if needed and find_spec(needed[0]) is None else None


def install_line(extra: str) -> str:
    """
    Return the command that adds an extra to this installation: from its clone where it was installed from one.

    Source: https://packaging.python.org/en/latest/specifications/direct-url/
    """
    clone, is_editable = _clone()
    what = shlex.quote(f"{clone}[{extra}]") if clone else f'"drumline[{extra}]"'
    return f"{_pip()} install {'-e ' if is_editable else ''}{what}"


def _pip() -> str:
    """pip of this interpreter: by its short name only where that is what a shell finds."""
    folder = os.path.dirname(sys.executable)
    if shutil.which("pip") == os.path.join(folder, "pip"):
        return "pip"
    return f"{shlex.quote(sys.executable)} -m pip"


def _clone() -> tuple[str, bool]:
    """The folder that this package was installed from, and whether it is used in place; empty: it came by name."""
    import json
    from importlib import metadata

    try:
        text = metadata.distribution("drumline").read_text("direct_url.json")
        data = json.loads(text or "{}")
        url = urlsplit(str(data.get("url") or ""))
        folder = unquote(url.path) if url.scheme == "file" and "dir_info" in data else ""
        return folder, bool(folder and data["dir_info"].get("editable"))
    except (metadata.PackageNotFoundError, ValueError, TypeError, AttributeError):
        return "", False
