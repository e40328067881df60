"""The targets of a job's paths, local ones against the folder of its file; and names for jobs that come without one."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class HasBasePath(Protocol):
        @property
        def base_path(self) -> str: ...


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


def scheme_of(value: str) -> str:
    """
    Return ``https``, ``azureml``, ``abfss``, ``runs``, ``git+https``...; empty for a local path and for ``file:``.

    >>> scheme_of("azureml:digits:1"), scheme_of("file:data"), scheme_of("C:data")
    ('azureml', '', '')
    """
    match = _SCHEME.match(value)
    scheme = match[1].lower() if match else ""
    if scheme == "file" or not match:
        return ""
    rest = value[match.end() :]
    known = scheme in ("azureml", "runs", "models", "git", "hdfs", "dbfs")
    return scheme if known or rest.startswith("//") else ""


def is_remote(value: str) -> bool:
    """Return whether a value names something that is not a path on this machine."""
    return bool(scheme_of(value))


def local_part(value: str) -> str:
    """Return the path in ``file:data``, ``file:///data`` or plain ``data``."""
    if not value.lower().startswith("file:"):
        return value
    path = value[5:]
    if path.startswith("//"):
        from urllib.parse import unquote

        host, slash, rest = path[2:].partition("/")
        if host in ("", "localhost"):
            return unquote(slash + rest)
    return path


def resolve(owner: HasBasePath, value: str) -> str:
    """
    Return the absolute path that a value in a job or environment names; a URI as it is.

    ``~`` is an ordinary character, as in Azure.
    """
    if is_remote(value):
        return value
    return os.path.normpath(os.path.join(owner.base_path, local_part(value)))


# Names for jobs that come without one.


_ADJECTIVES = """
amber ample bold brave bright brisk calm clear clever cosy crisp daring deft eager early even
fair fond fresh gentle glad grand handy happy honest humble keen kind lively loyal lucky mellow
merry mild neat noble plain prime proud quick quiet rapid ready rosy round sharp shiny silent
smart snug solid steady still strong sunny swift tidy warm wise witty
""".split()  # noqa: SIM905
_NOUNS = """
accent anvil bagpipe ballad banjo bass beat bell bolero bongo brush bugle cadence canon cello
chime choir chord cornet cymbal dance djembe drum echo fanfare fiddle flute gong groove guitar
harp horn jig kazoo kettle lute lyre mallet march marimba measure melody meter oboe organ
paradiddle piano piccolo polka pulse rattle refrain reel rhythm roll samba snare solo song tabla
tambour tango tempo timbal triangle trumpet tuba tune verse viola waltz whistle
""".split()  # noqa: SIM905
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def random_name() -> str:
    """Return ``adjective_noun_`` and ten letters or digits, fresh enough to be unique."""
    adjective, noun = _pick(_ADJECTIVES), _pick(_NOUNS)
    return f"{adjective}_{noun}_" + "".join(_pick(_LETTERS) for _ in range(10))


def _pick(items: list[str] | str) -> str:
    return items[int.from_bytes(os.urandom(4), "big") % len(items)]


def default_experiment_name(folder: str) -> str:
    """Return the name of the folder without spaces, or ``Default``."""
    name = os.path.basename(os.path.abspath(folder)).replace(" ", "") or "Default"
    # A folder's name may be any bytes, an experiment's is text.
    return name.encode("utf-8", "replace").decode()
