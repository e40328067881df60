"""
Our commands for the words of other tools: ``drumline stop NAME`` is ``drumline job cancel NAME``.

Imported once a word is no command. A suggestion is a command that exists; a test tries every one of them.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from importlib import import_module
from typing import TYPE_CHECKING, Any

from drumline import azure
from drumline.cli import other_words
from drumline.cli.arguments import Parser
from drumline.contract.errors import UsageError
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Meaning(NamedTuple):
    words: str
    """Words of other tools that mean the same, separated by spaces."""

    commands: tuple[str, ...]
    """The first that exists is suggested. NAME and FILE are replaced by the word that was typed."""

    without_name: tuple[str, ...] = ()
    """The same, where no name was typed."""


_LIST = ("job list",)
MEANINGS = (
    Meaning("stop kill end abort terminate scancel", ("job cancel NAME",)),
    Meaning("ls list squeue queue history", _LIST),
    Meaning("ps", ("ps", *_LIST)),
    Meaning("status", ("job show NAME",), _LIST),
    Meaning("describe inspect info get view", ("job show NAME",)),
    Meaning("log logs tail follow watch attach", ("job logs NAME", "job stream NAME")),
    Meaning("rm remove del delete", ("job delete NAME", "job archive NAME")),
    Meaning("hide", ("job archive NAME",)),
    Meaning("ui dashboard web open", ("job open NAME",), ("mlflow",)),
    Meaning("board tb", ("tensorboard NAME",)),
    Meaning("submit sbatch apply create start launch up", ("job create -f FILE",)),
    Meaning("retry restart resubmit again", ("job rerun NAME",)),
    Meaning("compare", ("job diff A B",)),
    Meaning("exec ssh shell sh", ("job exec NAME --rank 0",)),
    Meaning("cp pull fetch", ("job download NAME",)),
    Meaning("check", ("lint -f FILE",), ("job validate -f FILE",)),
    Meaning("dryrun dry-run", ("plan -f FILE",)),
    Meaning("stats usage htop nvidia-smi", ("job top NAME",)),
    Meaning("stack pystack py-spy", ("job stacks NAME",)),
    Meaning("plot chart curves", ("job metrics NAME",)),
    Meaning("join wait", ("job wait NAME", "job stream NAME")),
    Meaning("nodes hosts sinfo", ("compute list-nodes NAME",), ("compute list",)),
    Meaning("config set", ("configure --list-defaults",)),
    Meaning("clean cleanup gc", ("prune --older-than 30d --dry-run", "cache prune")),
    Meaning("du disk", ("df", "cache show")),
    Meaning("hpo hparams", ("sweep --help", "job create -f FILE")),
    Meaning("man manual usage", ("help",)),
)
"""A word that is a command of ours is not looked for here."""

_NOUNS = {
    "cluster": "compute",
    "machine": "compute",
    "env": "environment",
    "dataset": "data",
    "storage": "datastore",
    "pipeline": "job",
    "experiment": "job",
    "trial": "job",
    "task": "job",
}
"""Other names of our nouns."""

_OTHER_NOUNS = (
    "batch-deployment",
    "batch-endpoint",
    "connection",
    "feature-set",
    "feature-store",
    "index",
    "online-deployment",
    "online-endpoint",
    "registry",
    "schedule",
    "serverless-endpoint",
)
"""Those of ``az ml`` that Drumline lacks."""

_PYTHONS = ("python", "python3")
_LAUNCHERS = ("torchrun", "mpirun", "mpiexec", "srun", "accelerate", "deepspeed", "horovodrun")
"""Programs that start the processes of a job, as Drumline does itself."""

_PLAIN_NAME = r"[A-Za-z0-9@][A-Za-z0-9_.@-]*"
_JOB_FILE = (".yml", ".yaml")


def suggest(argv: Sequence[str], modules: Mapping[str, str]) -> str:
    """Return the hint for a first word that is no command. ``modules``: the module of each command."""
    if argv[0] in _OTHER_NOUNS:
        return azure.explain_lack(argv[0])
    command = find_command(argv, modules)
    return f"did you mean {'drumline ' + command!r}?" if command else "drumline --help lists all commands"


def find_command(argv: Sequence[str], modules: Mapping[str, str]) -> str:
    """Return the command that was probably meant, without ``drumline``; empty for none."""
    word, rest = argv[0].lower(), argv[1:]
    if word == "attach" and {"-t", "--type"} & set(rest):
        return "compute attach " + shlex.join(rest)
    meaning = next((one for one in MEANINGS if word in one.words.split()), None)
    if meaning is not None:
        return _choose(meaning, rest, modules)
    if word in _find_verbs("job", modules):
        return _complete_verb(word, rest, modules)
    return _find_noun(word, rest, modules) or _find_program(argv) or _find_similar(word, rest, modules)


def _choose(meaning: Meaning, rest: Sequence[str], modules: Mapping[str, str]) -> str:
    commands = meaning.commands
    if meaning.without_name and not _find_name(rest):
        commands = meaning.without_name
    is_program = rest and not rest[0].startswith("-") and not any(one.endswith(_JOB_FILE) for one in rest)
    if commands[0] == "job create -f FILE" and is_program:
        return _find_program(rest) or f"run -- {shlex.join(rest)}"
    for command in commands:
        # Their options exist: a test tries them.
        noun, _, more = command.partition(" ")
        verbs = _find_verbs(noun, modules)
        if noun == "help" or (noun in modules and (not verbs or more.partition(" ")[0] in verbs)):
            return _fill(command, rest)
    return ""


def _find_verbs(noun: str, modules: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the verbs of a command; empty if it has none."""
    verbs: Mapping[str, Any] = getattr(import_module(modules[noun]), "VERBS", {}) if noun in modules else {}
    return verbs


def _fill(command: str, rest: Sequence[str]) -> str:
    """Put the words that were typed in the place of NAME and FILE."""
    file = next((word for word in rest if word.endswith(_JOB_FILE) and not word.startswith("-")), "job.yml")
    filled = {"NAME": _find_name(rest) or "NAME", "FILE": shlex.quote(file)}
    return " ".join(filled.get(word, word) for word in command.split())


def _find_name(rest: Sequence[str]) -> str:
    """Return the name that was typed, first or as ``-n NAME``; empty for none."""
    for before, word in zip(("", *rest), rest, strict=False):
        if before in ("", "-n", "--name") and re.fullmatch(_PLAIN_NAME, word):
            return word
    return ""


def _complete_verb(verb: str, rest: Sequence[str], modules: Mapping[str, str]) -> str:
    """Return a verb of jobs with the arguments that it needs."""
    parser = Parser(prog=verb)
    try:
        _find_verbs("job", modules)[verb][1](parser)
    except UsageError:
        return f"job {verb}"
    command = f"job {verb}"
    for action in parser._actions:
        if action.nargs == "*" and command != f"job {verb}":
            continue  # More of what was named already.
        if not action.option_strings and action.nargs != "...":
            command += f" {action.metavar if isinstance(action.metavar, str) else action.dest.upper()}"
        elif action.required:
            command += f" {action.option_strings[0]} FILE"
    return _fill(command, rest)


def _find_noun(word: str, rest: Sequence[str], modules: Mapping[str, str]) -> str:
    """Return a noun of ours for another name or the plural, with the verb that was typed, else ``list``."""
    singular = word if word in _NOUNS else word.removesuffix("s")
    noun = _NOUNS.get(singular, singular)
    verbs = _find_verbs(noun, modules)
    if not verbs:
        return ""
    typed = rest[0] if rest else ""
    verb = typed if typed in verbs else other_words.find_verb(noun, typed, list(verbs))
    if verb:
        return shlex.join([noun, verb, *rest[1:]])
    if word in _NOUNS and "create" in verbs and typed.endswith(_JOB_FILE):
        return shlex.join([noun, "create", "-f", *rest])
    if word == "pipeline":
        return f"{noun} --help"  # One wants to run it rather than to see others.
    return f"{noun} list" if "list" in verbs else ""


def _find_program(argv: Sequence[str]) -> str:
    """Return the command for a script, a job file or a program that was typed alone."""
    word = argv[0]
    if word.endswith(_JOB_FILE):
        return f"job create -f {shlex.quote(word)}"
    if word.endswith(".py"):
        return "run -- " + shlex.join(["python", *argv])
    if word in _LAUNCHERS:
        script = next((index for index, one in enumerate(argv) if one.endswith(".py")), None)
        return "run --procs 2 -- " + shlex.join(["python", *(argv[script:] if script else ["train.py"])])
    if word in _PYTHONS or ("/" in word and os.path.isfile(word) and os.access(word, os.X_OK)):
        return "run -- " + shlex.join(argv)
    return ""


def _find_similar(word: str, rest: Sequence[str], modules: Mapping[str, str]) -> str:
    verbs = _find_verbs("job", modules)
    close = difflib.get_close_matches(word, {*modules, *verbs}, n=1, cutoff=0.65)
    # There are many verbs, some of them short: one has to be closer.
    close = close if close and close[0] in modules else difflib.get_close_matches(word, close, cutoff=0.7)
    if not close:
        return ""
    return close[0] if close[0] in modules else _complete_verb(close[0], rest, modules)
