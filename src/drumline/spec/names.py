"""Names for jobs that come without one."""

from __future__ import annotations

import os

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
