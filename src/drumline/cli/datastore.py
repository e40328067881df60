"""``drumline datastore``: the verbs of ``az ml datastore``, and datastores that are folders."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from drumline.cli import assets, output
from drumline.cli.arguments import Parser, add_name, add_output, add_set, name_of, overrides, run_verb
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.spec.datastores import Datastore

_COLUMNS = ("name", "type", "path", "is_default", "description")
_EXAMPLE = "drumline datastore create --name NAME --type local --path /FOLDER"


def main(argv: list[str]) -> int:
    return run_verb("datastore", "Say which folders azureml://datastores/NAME/paths/... are.", VERBS, argv)


def _name(parser: Parser) -> None:
    add_name(parser, "datastore")


def _name_of(arguments: Namespace) -> str:
    return name_of(arguments, "datastore")


def _create_arguments(parser: Parser) -> None:
    _name(parser)
    parser.add_argument("-f", "--file", help="the datastore's file; - is standard input")
    add_set(parser, "tags.team=vision")
    parser.add_argument("-t", "--type", type=str.lower, help="local; those of Azure are created from files")
    parser.add_argument("-p", "--path", help="the folder of a local datastore")
    parser.add_argument("--description")
    parser.add_argument("--tags", nargs="+", metavar="NAME=VALUE")
    add_output(parser)


def _create(arguments: Namespace) -> int:
    from drumline.control import datastores
    from drumline.spec.datastores import from_tree
    from drumline.spec.load import load_datastore

    if not arguments.file and not arguments.type:
        raise UsageError("create needs --type or --file", _EXAMPLE)
    made = datastores.create(assets.loaded(arguments, _given(arguments), load_datastore, from_tree))
    assets.warn(made._warnings)
    _print(made, arguments)
    return 0


def _given(arguments: Namespace) -> dict[str, Any]:
    """The flags that were given, by the keys of YAML."""
    values = {
        "name": arguments.name or arguments.given,
        "type": arguments.type,
        "path": assets.in_full(arguments.path),
        "description": arguments.description,
    }
    return {**{key: value for key, value in values.items() if value is not None}, **assets.tags_of(arguments)}


def _print(datastore: Datastore, arguments: Namespace) -> None:
    secrets = getattr(arguments, "include_secrets", False)
    output.show(_shown(datastore, secrets=secrets), arguments.output, arguments.query)


def _shown(datastore: Datastore, *, secrets: bool = False) -> dict[str, Any]:
    from drumline.spec.datastores import masked, to_dict

    values = to_dict(datastore)
    return {
        **(values if secrets else masked(values)),
        "id": datastore.id,
        "is_default": datastore.is_default,
    }


def _show_arguments(parser: Parser) -> None:
    _name(parser)
    parser.add_argument("--include-secrets", action="store_true", help="keys and tokens too")
    add_output(parser)


def _show(arguments: Namespace) -> int:
    from drumline.control import datastores

    _print(datastores.get(_name_of(arguments)), arguments)
    return 0


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("-r", "--max-results", type=assets.count, help="default: all")
    add_output(parser)


def _list(arguments: Namespace) -> int:
    from drumline.control import datastores

    found = datastores.all(damaged=lambda said: assets.warn([said]))
    shown = [_shown(one) for one in found[: arguments.max_results]]
    output.show(shown, arguments.output, arguments.query, _COLUMNS)
    return 0


def _update_arguments(parser: Parser) -> None:
    _create_arguments(parser)
    parser.add_argument("--remove", action="extend", nargs="+", default=[], metavar="FIELD")
    parser.add_argument("--add", action="extend", nargs="+", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--force-string", action="store_true", help=argparse.SUPPRESS)


def _update(arguments: Namespace) -> int:
    from drumline.control import datastores
    from drumline.spec.datastores import from_dict, to_dict

    if arguments.add:
        raise UsageError("--add: no field of a datastore is a list", "--set tags.NAME=VALUE")
    if arguments.file:
        return _create(arguments)
    name = _name_of(arguments)
    before = datastores.get(name)
    if arguments.type not in (None, before.type):
        raise UsageError("the type of a datastore cannot be changed", "drumline datastore create replaces it")
    values = _without(to_dict(before), arguments.remove)
    changes = [*overrides(arguments.set), _given(arguments)]
    made = datastores.create(from_dict(values, params_override=changes))
    _print(made, arguments)
    return 0


def _without(values: dict[str, Any], removed: list[str]) -> dict[str, Any]:
    """Of ``tags.NAME`` that name alone. Raises UsageError for what is not there."""
    left = dict(values)
    for path in removed:
        field, dot, key = path.partition(".")
        inner: Any = left.get(field)
        if field not in left or (dot and not (isinstance(inner, dict) and key in inner)):
            raise UsageError(f"--remove: the datastore has no {path!r}")
        if dot:
            left[field] = {name: value for name, value in inner.items() if name != key}
        else:
            del left[field]
    return left


def _delete_arguments(parser: Parser) -> None:
    _name(parser)
    parser.add_argument("-y", "--yes", action="store_true", help=argparse.SUPPRESS)


def _delete(arguments: Namespace) -> int:
    from drumline.control import datastores

    datastores.delete(_name_of(arguments))
    return 0


VERBS = {
    "create": ("create or replace one", _create_arguments, _create),
    "show": ("one datastore", _show_arguments, _show),
    "list": ("the datastores there are", _list_arguments, _list),
    "update": ("change settings", _update_arguments, _update),
    "delete": ("forget one; what is in it stays", _delete_arguments, _delete),
    "mount": assets.refused(
        "not here",
        "there is nothing to mount: a datastore is a folder",
        "drumline datastore show has the path",
    ),
}
