"""
pip's settings for indexes, translated for uv, which does not read them.

Only where uv has no setting of its own: none of its variables for indexes, and no file of its own.
Source: https://pip.pypa.io/en/stable/topics/configuration/ and https://docs.astral.sh/uv/reference/environment/
"""

from __future__ import annotations

import configparser
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_UV_VARIABLES = (
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
    "UV_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_NO_INDEX",
    "UV_CONFIG_FILE",
)
_MOST_BYTES = 1 << 16


def make_uv_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables to add; empty if uv has its own settings. ``environ``: as pip and uv would see it."""
    if any(environ.get(name) for name in _UV_VARIABLES) or any(
        os.path.exists(path) for path in _uv_files(environ)
    ):
        return {}
    found = read_pip_settings(environ)
    variables = {}
    if found.get("index-url"):
        variables["UV_DEFAULT_INDEX"] = found["index-url"]
    if found.get("extra-index-url"):
        variables["UV_INDEX"] = " ".join(found["extra-index-url"].split())
        if not environ.get("UV_INDEX_STRATEGY"):
            # To pip all its indexes are one.
            variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if found.get("find-links"):
        variables["UV_FIND_LINKS"] = ",".join(found["find-links"].split())
    if found.get("trusted-host") and not environ.get("UV_INSECURE_HOST"):
        variables["UV_INSECURE_HOST"] = " ".join(found["trusted-host"].split())
    if found.get("cert") and not environ.get("SSL_CERT_FILE"):
        variables["SSL_CERT_FILE"] = found["cert"]
    if found.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        variables["UV_NO_INDEX"] = "1"
    return variables


def read_pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return pip's settings for installing: of its files, later ones winning, then of its variables."""
    found: dict[str, str] = {}
    for path in _pip_files(environ):
        parser = configparser.RawConfigParser()
        try:
            with open(path, encoding="utf-8") as file:
                parser.read_string(file.read(_MOST_BYTES))
        except (OSError, ValueError, configparser.Error):
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                found.update(parser.items(section))
    for name in ("index-url", "extra-index-url", "find-links", "trusted-host", "cert", "no-index"):
        value = environ.get("PIP_" + name.upper().replace("-", "_"))
        if value:
            found[name] = value
    return found


def _pip_files(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield them in the order in which later ones win."""
    import sys

    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    home = os.path.expanduser("~")
    for folder in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"):
        yield os.path.join(folder, "pip", "pip.conf")
    yield "/etc/pip.conf"
    yield os.path.join(home, ".pip", "pip.conf")
    yield os.path.join(_users_settings(environ), "pip", "pip.conf")
    yield os.path.join(sys.prefix, "pip.conf")
    if named:
        yield named


def _uv_files(environ: Mapping[str, str]) -> Iterator[str]:
    yield os.path.join(_users_settings(environ), "uv", "uv.toml")
    for folder in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"):
        yield os.path.join(folder, "uv", "uv.toml")
    yield "/etc/uv/uv.toml"


def _users_settings(environ: Mapping[str, str]) -> str:
    return environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
