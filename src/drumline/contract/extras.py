"""Optional packages of this installation: which extra has them, and the line that installs it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from typing import Optional
from urllib.parse import unquote, urlsplit

from drumline.contract import uris
from drumline.contract.hiding import hide_secrets

_EXTRAS_BY_SERVICE: dict[str, tuple[str, str]] = {
    uris.AZURE: ("obstore", "azure"),
    uris.S3: ("obstore", "s3"),
    uris.GS: ("obstore", "gs"),
    uris.HF: ("huggingface_hub", "hf"),
}
"""The package that reads a service, and the extra that brings it; web servers need neither."""


def missing_for(uri: str, *, reads_file: bool = False) -> Optional[tuple[str, str]]:
    """
    Return the package that this installation lacks to read or write there, and its extra; None: nothing.

    reads_file: a file is to be read, not a folder: a public one at a web address is read without the service's package.
    """
    from importlib.util import find_spec

    place = uris.parse_uri(uri)
    needed = _EXTRAS_BY_SERVICE.get(place.service)
    if needed is None or (reads_file and is_web_file(place)) or find_spec(needed[0]) is not None:
        return None
    return needed


def is_web_file(place: uris.Place) -> bool:
    """Return whether a web server could read the place: a blob of Azure at its https address."""
    return place.service == uris.AZURE and place.uri.lower().startswith("https://")


def install_line(extra: str) -> str:
    """
    Return the command that adds an extra to this installation, with the tool and from the place that it came from.

    Sources: https://packaging.python.org/en/latest/specifications/direct-url/, https://docs.astral.sh/uv/concepts/tools/,
    https://pipx.pypa.io/stable/
    """
    what, is_editable = _requirement(extra)
    return f"{_installer()} {'-e ' if is_editable else ''}{what}"


def _installer() -> str:
    """
    Return the command of the tool that made this environment; pip has its short name only if a shell finds that pip.
    """
    from importlib.util import find_spec

    if os.path.exists(os.path.join(sys.prefix, "uv-receipt.toml")):
        return "uv tool install"
    if os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json")):
        return "pipx install --force"
    folder = os.path.dirname(sys.executable)
    if shutil.which("pip") == os.path.join(folder, "pip"):
        return "pip install"
    if find_spec("pip") is None and shutil.which("uv"):
        return f"uv pip install --python {shlex.quote(sys.executable)}"
    return f"{shlex.quote(sys.executable)} -m pip install"


def _requirement(extra: str) -> tuple[str, bool]:
    """Return the words for a shell that install us: the clone, file or repository that we came from, else the name."""
    import json
    from importlib import metadata

    name = f'"drumline[{extra}]"'
    try:
        text = metadata.distribution("drumline").read_text("direct_url.json")
        data = json.loads(text or "{}")
        address = str(data.get("url") or "")
        url = urlsplit(address)
        path = unquote(url.path) if url.scheme == "file" else ""
        if path and "dir_info" in data:
            return shlex.quote(f"{path}[{extra}]"), bool(data["dir_info"].get("editable"))
        if path and "archive_info" in data and os.path.isfile(path):
            return shlex.quote(f"{path}[{extra}]"), False
        if "vcs_info" in data:
            where = f"{data['vcs_info']['vcs']}+{hide_secrets(address)}"
            return shlex.quote(f"drumline[{extra}] @ {where}"), False
    except (metadata.PackageNotFoundError, ValueError, TypeError, AttributeError, KeyError):
        pass
    return name, False
