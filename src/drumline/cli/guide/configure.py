"""``drumline configure``: the defaults of ``az configure``. ``workspace`` and ``tracking_uri`` have a meaning here."""

from __future__ import annotations

import sys

from drumline.cli import output, variables
from drumline.cli.arguments import Parser, add_output
from drumline.contract.errors import UsageError
from drumline.control.settings import defaults, receivers

_COLUMNS = ("name", "value", "source")
_EXAMPLE = "drumline configure --defaults workspace=vision"


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="drumline configure",
        description="Set the default workspace, and tracking_uri, the MLflow server that jobs log to. "
        "Group, location and others are stored for compatibility with az, without effect.",
    )
    parser.add_argument(
        "-d", "--defaults", nargs="+", metavar="NAME=VALUE", help=f"{_EXAMPLE}; an empty value removes it"
    )
    parser.add_argument("-l", "--list-defaults", action="store_true", help="list the defaults that are set")
    parser.add_argument(
        "--notify",
        metavar="NAME=TARGET",
        help="whom your jobs tell of their end and troubles: a URL or command:PROGRAM; - reads it from input; "
        "an empty target removes it",
    )
    parser.add_argument(
        "--on",
        metavar="KINDS",
        help=f"with --notify: of which, with commas: {', '.join(receivers.KINDS_OF_NOTICES)}",
    )
    parser.add_argument(
        "--list-notify", action="store_true", help="list whom your jobs tell, without addresses"
    )
    parser.add_argument("--test-notify", metavar="NAME", help="send a test to one of them")
    parser.add_argument("--scope", choices=("global", "local"), help="accepted, without effect")
    add_output(parser)
    arguments = parser.parse_args(argv)
    if arguments.on and not arguments.notify:
        raise UsageError("--on needs --notify", "--notify NAME=TARGET --on failure,hang")
    wishes = (arguments.defaults, arguments.list_defaults, arguments.notify)
    if not any((*wishes, arguments.list_notify, arguments.test_notify)):
        raise UsageError("there is nothing to configure", _EXAMPLE)
    if arguments.notify:
        _change_receiver(arguments.notify, arguments.on)
    if arguments.test_notify:
        receivers.send_test(arguments.test_notify)
        print(f"{arguments.test_notify} was told", file=sys.stderr)
    if arguments.list_notify:
        listed = [
            {"name": name, "kind": one["kind"], "on": ",".join(one["on"])}
            for name, one in receivers.read().items()
        ]
        output.show(listed, arguments.output, arguments.query, ("name", "kind", "on"))
    if arguments.defaults:
        defaults.change(_parse_defaults(arguments.defaults))
    if arguments.list_defaults:
        shown = [
            {"name": name, "value": value, "source": defaults.path()}
            for name, value in defaults.read().items()
        ]
        output.show(shown, arguments.output, arguments.query, _COLUMNS)
    return 0


def _change_receiver(word: str, on: str | None) -> None:
    variables.hide_values([word])
    name, equals, target = word.partition("=")
    if not equals or not name:
        raise UsageError("--notify: NAME=TARGET is wanted", "--notify team=https://hooks.example.org/...")
    if target == "-":
        import getpass

        try:
            is_typed = sys.stdin.isatty()
            target = getpass.getpass("URL: ", stream=sys.stderr) if is_typed else sys.stdin.readline()
        except EOFError:
            target = ""
        target = target.strip()
        if not target:
            raise UsageError("--notify: there is no URL on standard input")
    kinds = tuple(dict.fromkeys(filter(None, (on or "").split(","))))
    odd = next((kind for kind in kinds if kind not in receivers.KINDS_OF_NOTICES), "")
    if odd:
        raise UsageError(
            f"--on: {odd!r} is no kind of notice", f"one of {', '.join(receivers.KINDS_OF_NOTICES)}"
        )
    receivers.change(name, target, kinds or receivers.ALL)


def _parse_defaults(texts: list[str]) -> dict[str, str]:
    given = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--defaults: {text!r} is not of the form NAME=VALUE", _EXAMPLE)
        given[name] = value
    return given
