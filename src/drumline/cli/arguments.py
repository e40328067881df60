"""Arguments that several commands share, and how a verb is run."""

from __future__ import annotations

import argparse
import os
import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from drumline.contract.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import NoReturn

    Verbs = Mapping[str, tuple[str, Callable[["Parser"], None], Callable[[Any], int] | str]]
    """
    By name: what it does, its arguments, and its function, or ``module.function`` below ``cli``. Such a module is
    imported when the verb runs: help and completion make parsers alone.
    """

FORMATS = ("table", "json", "jsonc", "yaml", "yamlc", "tsv", "none")


class ParserMade(BaseException):
    """Raised in the place of parsing where only the parser is wanted: nothing of the command runs."""

    def __init__(self, parser: Parser) -> None:
        super().__init__()
        self.parser = parser


class Parser(argparse.ArgumentParser):
    """A parser whose errors are UsageErrors that suggest a similar word. No abbreviations: new options break them."""

    is_wanted: ClassVar[bool] = False
    """Whether the parser itself is wanted: ``cli/guide/completion.py``."""

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

    if not TYPE_CHECKING:  # The overloads of argparse stay.

        def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
            if Parser.is_wanted:
                raise ParserMade(self)
            return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, _find_similar(message, self) or f"{self.prog} --help")


def _find_similar(message: str, parser: Parser) -> str:
    import difflib

    from drumline.cli import other_words

    noun = parser.prog.rpartition(" ")[2]
    known = [option for action in parser._actions for option in action.option_strings]
    for action in parser._actions:
        known += [str(choice) for choice in action.choices or ()]
    words = re.findall(r"-{0,2}[\w-]+", _find_user_words(message))
    for word in words:
        meant = other_words.find_verb(noun, word, known)
        if meant:
            return f"did you mean {meant!r}?"
        text = other_words.find_text(noun, word)
        if text:
            return text
    # A word of another tool for which there is nothing here resembles some verb by chance.
    words = [word for word in words if word not in other_words.VERBS]
    for word in words:
        close = difflib.get_close_matches(word, known, n=1, cutoff=0.7)
        if close and close[0] != word:
            return f"did you mean {close[0]!r}?"
    return ""


def _find_user_words(message: str) -> str:
    """Return the part of argparse's sentence that the command line had: an option, or a value in quotes."""
    option, colon, rest = message.partition(": ")
    if not colon:
        return message
    if option == "unrecognized arguments":
        return rest
    quoted = re.match(r"invalid choice: ('.*?'|\".*?\")(?:$| \()", rest)
    return quoted[1] if quoted else ""


def run_verb(noun: str, text: str, verbs: Verbs, argv: list[str]) -> int:
    """Run ``drumline NOUN VERB ...`` and return the exit code of the verb."""
    if argv[:1] == ["help"]:
        argv = [*argv[1:2], "--help"]
    chosen = parse_verb(noun, text, verbs, argv)
    chosen.noun = noun
    with enter_workspace(chosen.workspace_name):
        return find_function(verbs[chosen.verb][2])(chosen)


def find_function(named: Callable[[Any], int] | str) -> Callable[[Any], int]:
    """Return the function of a verb, from its module if it is named."""
    if not isinstance(named, str):
        return named
    module, _, name = named.rpartition(".")
    function: Callable[[Any], int] = getattr(import_module(f"drumline.cli.{module}"), name)
    return function


def parse_verb(noun: str, text: str, verbs: Verbs, argv: list[str]) -> argparse.Namespace:
    """Return the arguments of the verb that was asked for; nothing runs. Raises UsageError."""
    parser = Parser(prog=f"drumline {noun}", description=text)
    program: list[str] = []
    parsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    wanted = next((word for word in argv if not word.startswith("-")), "")
    for name, (what, arguments, _) in verbs.items():
        verb = parsers.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".")
        # Only the verb that was asked for needs its arguments; help of the noun needs none.
        if name == wanted:
            arguments(verb)
            add_azure(verb)
            if verb.get_default("program") is not None and "--" in argv:
                at = argv.index("--")
                argv, program = argv[:at], argv[at + 1 :]
    if wanted and wanted == argv[0] and wanted not in verbs:
        raise _refuse_verb(wanted, parser)
    try:
        chosen, unknown = parser.parse_known_args(argv)
    except UsageError as error:
        raise _hint_file(error, f"{parser.prog} {wanted}", argv) from None
    if program:
        chosen.program = program
    if unknown:
        _refuse_words(unknown, argv, parsers.choices[chosen.verb])
    return chosen


def _refuse_words(words: list[str], argv: list[str], verb: Parser) -> NoReturn:
    """Raise UsageError for words that the verb does not have."""
    message = "unrecognized arguments: " + " ".join(words)
    if verb.get_default("program") is None or words[0].startswith("-"):
        verb.error(message)
    import shlex

    before = argv[1 : argv.index(words[0])]
    line = " ".join((verb.prog, shlex.join(before), "--", shlex.join(words)))
    raise UsageError(message, f"the command stands after --: {line}")


def _refuse_verb(word: str, parser: Parser) -> UsageError:
    """Return the error for a word that is no verb, with the nearest verb and where all of them are."""
    hint = _find_command(word, parser) or _find_similar(f"argument VERB: invalid choice: {word!r}", parser)
    meant = re.fullmatch(r"did you mean '([\w-]+)'\?", hint)
    hint = f"did you mean '{parser.prog} {meant[1]}'?" if meant else hint
    between = ("" if hint.endswith("?") else ".") + " " if hint else ""
    hint += f"{between}{parser.prog} --help lists the verbs"
    return UsageError(f"there is no verb {word!r} of {parser.prog}", hint)


def _find_command(word: str, parser: Parser) -> str:
    """Return a hint for a verb that is a command by itself, such as ``drumline job prune``; empty for another word."""
    from drumline.cli import other_words

    known = [str(choice) for action in parser._actions for choice in action.choices or ()]
    noun = parser.prog.rpartition(" ")[2]
    is_command = word in other_words.COMMANDS and not other_words.find_verb(noun, word, known)
    return f"did you mean 'drumline {word}'?" if is_command else ""


def _hint_file(error: UsageError, command: str, argv: Sequence[str]) -> UsageError:
    """Return the error with another hint where a file was typed without its -f."""
    files = [word for word in argv[1:] if word.endswith((".yml", ".yaml")) and not word.startswith("-")]
    if not files or not error.message.endswith("required: -f/--file"):
        return error
    import shlex

    # Not the other words: values of --set may be secret.
    more = " ..." if len(argv) > 2 else ""
    hint = f"did you mean '{command} -f {shlex.quote(files[0])}{more}'?"
    return UsageError(f"{files[0]} needs -f before it", hint)


def enter_workspace(name: str | None) -> AbstractContextManager[None]:
    """
    Use that workspace for the length of a ``with``; without a name DRUMLINE_WORKSPACE's, else that of
    ``drumline configure``. Empty: of none. Raises UsageError.
    """
    from drumline.contract import folder

    base = folder.base_home()
    if os.geteuid() == 0 or not _is_ours(base):
        from drumline.contract import ownership

        ownership.check_owner(base)
    configured = os.path.join(base, "defaults.json")
    if name is None and not os.environ.get(folder.WORKSPACE) and os.path.exists(configured):
        from drumline.control.settings import defaults

        name = defaults.read().get("workspace")
    return folder.workspace(name)


def _is_ours(path: str) -> bool:
    try:
        return os.stat(path).st_uid == os.geteuid()
    except OSError:
        return False


_JOB_WORDS = "a unique beginning of it, @last for the newest job, - for that of your last command"


def add_name(parser: argparse.ArgumentParser, noun: str) -> None:
    text = f"the {noun}'s name, or give it with -n" + (f"; {_JOB_WORDS}" if noun == "job" else "")
    parser.add_argument("given", nargs="?", metavar="NAME", help=text)
    parser.add_argument("-n", "--name", help=f"the {noun}'s name")


def get_name(
    arguments: argparse.Namespace,
    noun: str,
    doing: str = "",
    *,
    is_final: bool = False,
    changes: bool = False,
) -> str:
    """
    Return the name that ``add_name`` took; of a job the whole one. Raises UsageError without one, or with two.

    ``doing``: printed with the whole name where the user gave less: ``canceling``. ``is_final``, ``changes``: as for
    ``find_job``.
    """
    if arguments.given and arguments.name and arguments.given != arguments.name:
        raise UsageError(f"two names given: {arguments.given!r} and {arguments.name!r}")
    name = arguments.name or arguments.given
    if not name:
        article = "an" if noun[0] in "aeiou" else "a"
        raise UsageError(f"{article} {noun}'s name is missing", f"drumline {noun} {arguments.verb} -n NAME")
    return find_job(str(name), doing, is_final=is_final, changes=changes) if noun == "job" else str(name)


def find_job(
    word: str, doing: str = "", *, is_final: bool = False, is_asked: bool = True, changes: bool = False
) -> str:
    """
    Return the name of the job that the word stands for. Raises UsageError, NotFoundError.

    ``is_final``: what is done to it cannot be undone, so that the beginning of a name is not enough without a terminal,
    or where nobody ``is_asked``: the second time, it would be another job's. ``changes``: the job is changed. Both are
    refused for a step that was reused, whose job is another pipeline's.
    """
    from drumline.control.jobs import naming

    name = naming.find_name(word)
    first = word.partition("/")[0]
    if is_final and first not in naming.SHORT and not (is_asked and sys.stdin.isatty()):
        whole = naming.find_name(first)
        if whole != first:
            hint = f"did you mean {whole!r}? Without a question on a terminal, give the whole name"
            raise NotFoundError(f"there is no job {first!r}", hint)
    if is_final or changes:
        reused = naming.explain_reused(word)
        if reused:
            raise UsageError(reused, f"to mean that job, give its name: {name}")
    naming.remember(name)
    if doing and name != word:
        print(f"{doing} job {name}", file=sys.stderr)
    return name


def add_output(
    parser: argparse.ArgumentParser, text: str = "default: table on a terminal, else json"
) -> None:
    parser.add_argument("-o", "--output", choices=FORMATS, help=text)
    parser.add_argument("--out", dest="output", choices=FORMATS, help=argparse.SUPPRESS)
    parser.add_argument("--query", help="a JMESPath expression that selects what is printed")


def parse_count(text: str) -> int:
    """Return the number of ``--max-results``. Raises UsageError."""
    if text.isascii() and text.isdigit():
        return int(text[:18])
    raise UsageError(f"--max-results: {text!r} is not a number", "-r 10")


def add_workspace(parser: argparse.ArgumentParser) -> None:
    text = "the workspace; default: DRUMLINE_WORKSPACE, else the one set by drumline configure; '': none"
    parser.add_argument("-w", "--workspace-name", metavar="NAME", help=text)
    parser.add_argument("--workspace", dest="workspace_name", help=argparse.SUPPRESS)


def add_azure(parser: argparse.ArgumentParser) -> None:
    """Accept what scripts of ``az ml`` pass, most of it without effect. The verb's own arguments come first."""
    add_workspace(parser)
    for names in (("-o", "--output", "--out"), ("--query",)):
        if names[-1] not in parser._option_string_actions:
            # az takes these with every verb; of one that prints no result they change nothing.
            parser.add_argument(*names, help=argparse.SUPPRESS)
    group = parser.add_argument_group("accepted for compatibility with az ml, without effect")
    group.add_argument("-g", "--resource-group", help=argparse.SUPPRESS)
    group.add_argument("--subscription", help=argparse.SUPPRESS)
    group.add_argument("--only-show-errors", action="store_true", help=argparse.SUPPRESS)
    group.add_argument("--verbose", action="store_true", help=argparse.SUPPRESS)


def confirm(question: str, hint: str) -> bool:
    """Ask on the terminal, and return whether the answer is yes. Raises UsageError without a terminal."""
    if not sys.stdin.isatty():
        raise UsageError("this removes files, and without a terminal it needs --yes", hint)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def add_file(parser: argparse.ArgumentParser, noun: str = "job", *, required: bool = True) -> None:
    parser.add_argument("-f", "--file", required=required, help=f"the {noun} file; - for standard input")
    add_set(parser, "resources.instance_count=4")


def add_set(parser: argparse.ArgumentParser, example: str) -> None:
    parser.add_argument(
        "--set",
        action="extend",
        nargs="+",
        default=[],
        metavar="PATH=VALUE",
        help=f"change a field before validation: {example}",
    )


def add_env(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="set an environment variable; without a value, copy it from this shell; can be repeated",
    )


def add_variables(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--env-file",
        action="append",
        default=[],
        metavar="FILE",
        help="set the environment variables that a file has as NAME=VALUE lines; can be repeated",
    )
    parser.add_argument(
        "--secret",
        action="append",
        default=[],
        metavar="NAME[=@FILE|=-]",
        help="pass a variable whose value is not stored: from this shell, a file or standard input; can be repeated",
    )


def parse_variables(given: Sequence[str]) -> dict[str, str]:
    """Return the variables of ``--env``; a name alone is copied from this shell. Raises UsageError."""
    variables = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals and name not in os.environ:
            raise UsageError(
                f"--env: {name!r} is not set in this shell", f"export {name}, or write NAME=VALUE"
            )
        variables[name] = value if equals else os.environ[name]
    return variables


def add_warm(parser: argparse.ArgumentParser, default: str) -> None:
    text = f"fork ranks from a warm interpreter that has their imports; default: {default}"
    parser.add_argument("--warm", choices=("auto", "on", "off"), help=text)


def add_ways_to_run(parser: argparse.ArgumentParser) -> None:
    """Add what a command that submits a job file takes beside it."""
    add_variables(parser)
    add_warm(parser, "the file's, else DRUMLINE_WARM, else auto")
    add_python(parser)


def add_python(parser: argparse.ArgumentParser) -> None:
    text = "the Python that the job means by python: a path, a virtual environment, or a program on PATH"
    parser.add_argument("--python", metavar="PATH", help=f"{text}; default: the active one")


def use_python(named: str | None) -> None:
    """Have jobs that this command submits mean that Python. Raises UsageError."""
    if named is not None:
        from drumline.control.environments import environment_builds
        from drumline.control.submission import planning

        os.environ[planning.PYTHON] = environment_builds.find_named(named)


def set_warm(job: Any, word: str) -> None:
    """Override what the file says. Raises UsageError for a job whose parts set it themselves."""
    program = getattr(job, "trial", job)
    if not hasattr(program, "drumline"):
        what = (
            "--warm: a pipeline's steps set it themselves"
            if job.type == "pipeline"
            else "--warm: a component cannot set it"
        )
        raise UsageError(what, f"DRUMLINE_WARM={word} applies wherever it is not set")
    program.drumline = {**program.drumline, "warm": word}


def set_ways_to_run(job: Any, arguments: argparse.Namespace) -> None:
    """Apply what ``add_ways_to_run`` took to a job. Raises UsageError, NotFoundError, SpecError."""
    use_python(arguments.python)
    if arguments.env_file or arguments.secret:
        from drumline.cli import variables

        variables.set_variables(job, arguments)
    if arguments.warm:
        set_warm(job, arguments.warm)


def name_experiment(job: Any) -> None:
    """Give a job without an experiment that of the folder, as azure-ai-ml does."""
    if job.experiment_name is None:
        from drumline.spec.paths import default_experiment_name

        job.experiment_name = default_experiment_name(os.getcwd())


def parse_overrides(given: Sequence[str]) -> list[dict[str, Any]]:
    """Convert ``a.b=c`` to azure-ai-ml's ``params_override``. Raises UsageError."""
    changes: list[dict[str, Any]] = []
    for text in given:
        path, equals, value = text.partition("=")
        if not equals or not path.strip(".") or ".." in path:
            raise UsageError(
                f"--set: {text!r} is not of the form PATH=VALUE", "--set resources.instance_count=4"
            )
        changes.append({path: _parse_value(path, value)})
    return changes


def _parse_value(path: str, text: str) -> Any:
    """Return the text, or its value if it is a JSON object, list or null."""
    if text[:1] in ("{", "[") or text == "null":
        import json

        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            if text[:1] == "{" or isinstance(error, RecursionError):
                raise UsageError(f"--set: the value of {path} is not JSON: {error}") from error
    return text


def hide_overrides(given: Sequence[str]) -> None:
    """Hide the environment variables that ``--set`` sets in this process's command line."""
    if given:
        from drumline.cli import variables

        variables.hide_set_values(given)


def load_job_file(file: str, given: Sequence[str]) -> Any:
    """Load the job of ``--file`` with ``--set`` applied. Raises SpecError, UsageError."""
    from drumline.spec.load import check_overrides, load_job

    hide_overrides(given)
    changes = parse_overrides(given)
    is_stdin = file in ("-", "/dev/stdin")
    source, origin = (sys.stdin.buffer, os.getcwd()) if is_stdin else (file, None)
    job = load_job(source, relative_origin=origin, params_override=changes)
    check_overrides(job, changes)
    return job
