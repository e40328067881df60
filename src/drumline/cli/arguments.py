"""What several commands' arguments have in common."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import NoReturn

    Verbs = Mapping[str, tuple[str, Callable[["Parser"], None], Callable[[Any], int]]]
    """By name: what it does, its arguments, and itself."""

FORMATS = ("table", "json", "jsonc", "yaml", "yamlc", "tsv", "none")


_OTHER_VERBS = {
    "stop": ("cancel", "detach"),
    "kill": ("cancel",),
    "end": ("cancel",),
    "abort": ("cancel",),
    "log": ("stream",),
    "logs": ("stream",),
    "tail": ("stream",),
    "follow": ("stream",),
    "attach": ("stream",),
    "watch": ("stream",),
    "status": ("show",),
    "get": ("show",),
    "describe": ("show",),
    "info": ("show",),
    "ls": ("list",),
    "ps": ("list",),
    "submit": ("create",),
    "run": ("create",),
    "start": ("create",),
    "add": ("create",),
    "new": ("create",),
    "remove": ("archive", "delete", "detach"),
    "rm": ("archive", "delete", "detach"),
    "delete": ("archive", "detach"),
    "edit": ("update",),
    "set": ("update",),
    "stats": ("top",),
}
"""What other tools call our verbs."""


class Parser(argparse.ArgumentParser):
    """Errors are ours, with the word that was probably meant. No abbreviations: they break when options are added."""

    _is_help = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, **kwargs)

    def _get_formatter(self) -> argparse.HelpFormatter:
        # One is made for each argument, to see that it can be shown; only help need know how wide the terminal is.
        return super()._get_formatter() if self._is_help else argparse.HelpFormatter(self.prog, width=1000)

    def format_help(self) -> str:
        self._is_help = True
        return super().format_help()

    def format_usage(self) -> str:
        self._is_help = True
        return super().format_usage()

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, _alike(message, self) or f"{self.prog} --help")


def _alike(message: str, parser: Parser) -> str:
    import difflib
    import re

    known = [option for action in parser._actions for option in action.option_strings]
    for action in parser._actions:
        known += [str(choice) for choice in action.choices or ()]
    words = re.findall(r"-{0,2}[\w-]+", _of_the_user(message))
    for word in words:
        meant = next((verb for verb in _OTHER_VERBS.get(word, ()) if verb in known), "")
        if meant:
            return f"did you mean {meant!r}?"
    for word in words:
        close = difflib.get_close_matches(word, known, n=1, cutoff=0.7)
        if close and close[0] != word:
            return f"did you mean {close[0]!r}?"
    return ""


def _of_the_user(message: str) -> str:
    """Return the part of argparse's sentence that the command line had: an option, or a value in quotes."""
    import re

    option, colon, rest = message.partition(": ")
    if not colon:
        return message
    if option == "unrecognized arguments":
        return rest
    quoted = re.match(r"invalid choice: ('.*?'|\".*?\")(?:$| \()", rest)
    return quoted[1] if quoted else ""


def run_verb(noun: str, text: str, verbs: Verbs, argv: list[str]) -> int:
    """``drumline NOUN VERB ...``: the exit code of the verb that was asked for."""
    chosen = parsed(noun, text, verbs, argv)
    with in_workspace(chosen.workspace_name):
        return verbs[chosen.verb][2](chosen)


def parsed(noun: str, text: str, verbs: Verbs, argv: list[str]) -> argparse.Namespace:
    """Return the arguments of the verb that was asked for; nothing runs. Raises UsageError."""
    parser = Parser(prog=f"drumline {noun}", description=text)
    parsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    wanted = next((word for word in argv if not word.startswith("-")), "")
    for name, (what, arguments, _) in verbs.items():
        verb = parsers.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".")
        # Only the verb that was asked for needs its arguments; help of the noun needs none.
        if name == wanted:
            arguments(verb)
            add_azure(verb)
    chosen, unknown = parser.parse_known_args(argv)
    if unknown:
        parsers.choices[chosen.verb].error("unrecognized arguments: " + " ".join(unknown))
    return chosen


def in_workspace(name: str | None) -> AbstractContextManager[None]:
    """
    What follows is of that workspace; without a name of the one that DRUMLINE_WORKSPACE names, else that of
    ``drumline configure``. Empty: of none. Raises UsageError.
    """
    import os

    from drumline.contract import folder

    base = folder.base_home()
    if os.geteuid() == 0:
        from drumline.contract import ownership

        ownership.check_owner(base)
    configured = os.path.join(base, "defaults.json")
    if name is None and not os.environ.get(folder.WORKSPACE) and os.path.exists(configured):
        from drumline.control import defaults

        name = defaults.read().get("workspace")
    return folder.workspace(name)


def add_name(parser: argparse.ArgumentParser, noun: str) -> None:
    parser.add_argument("given", nargs="?", metavar="NAME", help=f"the {noun}'s name, or give it with -n")
    parser.add_argument("-n", "--name", help=f"the {noun}'s name")


def name_of(arguments: argparse.Namespace, noun: str) -> str:
    """As ``add_name`` takes it. Raises UsageError."""
    if arguments.given and arguments.name and arguments.given != arguments.name:
        raise UsageError(f"two names: {arguments.given!r} and {arguments.name!r}")
    name = arguments.name or arguments.given
    if not name:
        article = "an" if noun[0] in "aeiou" else "a"
        raise UsageError(f"{article} {noun}'s name is missing", f"drumline {noun} {arguments.verb} -n NAME")
    return str(name)


def add_output(
    parser: argparse.ArgumentParser, text: str = "default: table on a terminal, else json"
) -> None:
    parser.add_argument("-o", "--output", choices=FORMATS, help=text)
    parser.add_argument("--out", dest="output", choices=FORMATS, help=argparse.SUPPRESS)
    parser.add_argument("--query", help="a JMESPath expression, for what is printed")


def add_workspace(parser: argparse.ArgumentParser) -> None:
    text = "whose jobs and assets; default: DRUMLINE_WORKSPACE, else as drumline configure says; '': none"
    parser.add_argument("-w", "--workspace-name", metavar="NAME", help=text)
    parser.add_argument("--workspace", dest="workspace_name", help=argparse.SUPPRESS)


def add_azure(parser: argparse.ArgumentParser) -> None:
    """What scripts of ``az ml`` pass; most of it has no meaning here. The verb's own arguments come first."""
    add_workspace(parser)
    for names in (("-o", "--output", "--out"), ("--query",)):
        if names[-1] not in parser._option_string_actions:
            # az takes these with every verb; of one that prints no result they change nothing.
            parser.add_argument(*names, help=argparse.SUPPRESS)
    group = parser.add_argument_group("accepted for scripts written for az ml, without effect")
    group.add_argument("-g", "--resource-group", help=argparse.SUPPRESS)
    group.add_argument("--subscription", help=argparse.SUPPRESS)
    group.add_argument("--only-show-errors", action="store_true", help=argparse.SUPPRESS)
    group.add_argument("--verbose", action="store_true", help=argparse.SUPPRESS)


def add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--file", required=True, help="the job file; - is standard input")
    add_set(parser, "resources.instance_count=4")


def add_set(parser: argparse.ArgumentParser, example: str) -> None:
    parser.add_argument(
        "--set",
        action="extend",
        nargs="+",
        default=[],
        metavar="PATH=VALUE",
        help=f"change a field before anything is checked: {example}",
    )


def add_warm(parser: argparse.ArgumentParser, default: str) -> None:
    text = f"whether ranks are forked from an interpreter that has their imports; default: {default}"
    parser.add_argument("--warm", choices=("auto", "on", "off"), help=text)


def set_warm(job: Any, word: str) -> None:
    """In the place of what the file says. Raises UsageError for a job whose parts say it themselves."""
    program = getattr(job, "trial", job)
    if not hasattr(program, "drumline"):
        what = (
            "--warm: its steps say it themselves"
            if job.type == "pipeline"
            else "--warm: a component cannot say it"
        )
        raise UsageError(what, f"DRUMLINE_WARM={word} is for all that do not say")
    program.drumline = {**program.drumline, "warm": word}


def name_experiment(job: Any) -> None:
    """Give a job without an experiment that of the folder, as azure-ai-ml does."""
    if job.experiment_name is None:
        import os

        from drumline.spec.names import default_experiment_name

        job.experiment_name = default_experiment_name(os.getcwd())


def overrides(given: Sequence[str]) -> list[dict[str, Any]]:
    """``a.b=c`` as azure-ai-ml's ``params_override``. Raises UsageError."""
    changes: list[dict[str, Any]] = []
    for text in given:
        path, equals, value = text.partition("=")
        if not equals or not path.strip(".") or ".." in path:
            raise UsageError(
                f"--set: {text!r} is not of the form PATH=VALUE", "--set resources.instance_count=4"
            )
        changes.append({path: _value(path, value)})
    return changes


def _value(path: str, text: str) -> Any:
    """Text, unless it is a JSON object, list or null."""
    if text[:1] in ("{", "[") or text == "null":
        import json

        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            if text[:1] == "{" or isinstance(error, RecursionError):
                raise UsageError(f"--set: the value of {path} is not JSON: {error}") from error
    return text


def load(file: str, given: Sequence[str]) -> Any:
    """The job of ``--file`` with ``--set`` applied. Raises SpecError, UsageError."""
    from drumline.spec.load import load_job

    if given:
        from drumline.cli import hide

        hide.values_set(given)
    changes = overrides(given)
    if file in ("-", "/dev/stdin"):
        import os

        return load_job(sys.stdin.buffer, relative_origin=os.getcwd(), params_override=changes)
    return load_job(file, params_override=changes)
