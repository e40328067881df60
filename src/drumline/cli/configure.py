"""``drumline configure``: the defaults of ``az configure``. ``workspace`` and ``tracking_uri`` have a meaning here."""

from __future__ import annotations

from drumline.cli import output
from drumline.cli.arguments import Parser, add_output
from drumline.contract.errors import UsageError
from drumline.control import defaults

_COLUMNS = ("name", "value", "source")
_EXAMPLE = "drumline configure --defaults workspace=vision"


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="drumline configure",
        description="Set the workspace that commands are for when they name none, and tracking_uri, the MLflow server "
        "that jobs log to. Group, location and others are kept for scripts written for az, without effect.",
    )
    parser.add_argument(
        "-d", "--defaults", nargs="+", metavar="NAME=VALUE", help=f"{_EXAMPLE}; an empty value takes it away"
    )
    parser.add_argument("-l", "--list-defaults", action="store_true", help="those that are set")
    parser.add_argument("--scope", choices=("global", "local"), help="accepted, without effect")
    add_output(parser)
    arguments = parser.parse_args(argv)
    if not arguments.defaults and not arguments.list_defaults:
        raise UsageError("there is nothing to configure", _EXAMPLE)
    if arguments.defaults:
        defaults.change(_given(arguments.defaults))
    if arguments.list_defaults:
        shown = [
            {"name": name, "value": value, "source": defaults.path()}
            for name, value in defaults.read().items()
        ]
        output.show(shown, arguments.output, arguments.query, _COLUMNS)
    return 0


def _given(texts: list[str]) -> dict[str, str]:
    given = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--defaults: {text!r} is not of the form NAME=VALUE", _EXAMPLE)
        given[name] = value
    return given
