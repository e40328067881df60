"""``drumline datastore``: the verbs of ``az ml datastore``, and datastores that are folders."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import (
    Parser,
    add_name,
    add_output,
    add_set,
    get_name,
    parse_count,
    parse_overrides,
    run_verb,
)
from drumline.cli.assets.versioned import refuse_verb
from drumline.cli.entity_flags import load_entity, make_absolute, parse_tags
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.spec.registered.datastores import Datastore

_COLUMNS = ("name", "type", "path", "is_default", "description")
_EXAMPLE = "drumline datastore create --name NAME --type local --path /FOLDER"


def main(argv: list[str]) -> int:
    return run_verb(
        "datastore", "Manage datastores, which azureml://datastores/NAME/paths/... refers to.", VERBS, argv
    )


def _create_arguments(parser: Parser) -> None:
    add_name(parser, "datastore")
    parser.add_argument("-f", "--file", help="the datastore's file; - for standard input")
    add_set(parser, "tags.team=vision")
    parser.add_argument("-t", "--type", type=str.lower, help="local; Azure's types need --file")
    parser.add_argument("-p", "--path", help="the folder of a local datastore")
    parser.add_argument("--description")
    parser.add_argument("--tags", nargs="+", metavar="NAME=VALUE")
    add_output(parser)


def _create(arguments: Namespace) -> int:
    from drumline.control.assets import datastore_verbs
    from drumline.spec.load import load_datastore
    from drumline.spec.registered.datastores import from_tree

    if not arguments.file and not arguments.type:
        raise UsageError("create needs --type or --file", _EXAMPLE)
    made = datastore_verbs.create(
        load_entity(arguments, _collect_flags(arguments), load_datastore, from_tree)
    )
    output.print_warnings(made._warnings)
    return _print(made, arguments)


def _collect_flags(arguments: Namespace) -> dict[str, Any]:
    """Return the flags that were given, by the keys of YAML."""
    values = {
        "name": arguments.name or arguments.given,
        "type": arguments.type,
        "path": make_absolute(arguments.path),
        "description": arguments.description,
    }
    return {**{key: value for key, value in values.items() if value is not None}, **parse_tags(arguments)}


def _print(datastore: Datastore, arguments: Namespace) -> int:
    secrets = getattr(arguments, "include_secrets", False)
    output.show(_describe(datastore, secrets=secrets), arguments.output, arguments.query)
    return 0


def _describe(datastore: Datastore, *, secrets: bool = False) -> dict[str, Any]:
    from drumline.contract.hiding import hide_in_job
    from drumline.spec.registered.datastores import mask_secrets, to_dict

    values = to_dict(datastore)
    return {
        **(values if secrets else hide_in_job(mask_secrets(values))),
        "id": datastore.id,
        "is_default": datastore.is_default,
    }


def _show_arguments(parser: Parser) -> None:
    add_name(parser, "datastore")
    parser.add_argument("--include-secrets", action="store_true", help="include keys and tokens")
    add_output(parser)


def _show(arguments: Namespace) -> int:
    from drumline.control.assets import datastore_verbs

    _print(datastore_verbs.get(get_name(arguments, "datastore")), arguments)
    return 0


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("-r", "--max-results", type=parse_count, help="default: all")
    add_output(parser)


def _list(arguments: Namespace) -> int:
    from drumline.control.assets import datastore_verbs

    found = datastore_verbs.all(damaged=lambda said: output.print_warnings([said]))
    shown = [_describe(one) for one in found[: arguments.max_results]]
    output.show(shown, arguments.output, arguments.query, _COLUMNS)
    return 0


def _update_arguments(parser: Parser) -> None:
    _create_arguments(parser)
    parser.add_argument("--remove", action="extend", nargs="+", default=[], metavar="FIELD")
    parser.add_argument("--add", action="extend", nargs="+", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--force-string", action="store_true", help=argparse.SUPPRESS)


def _update(arguments: Namespace) -> int:
    from drumline.control.assets import datastore_verbs
    from drumline.spec.registered.datastores import from_dict, to_dict

    if arguments.add:
        raise UsageError("--add: no field of a datastore is a list", "--set tags.NAME=VALUE")
    if arguments.file:
        return _create(arguments)
    name = get_name(arguments, "datastore")
    before = datastore_verbs.get(name)
    if arguments.type not in (None, before.type):
        raise UsageError("the type of a datastore cannot be changed", "drumline datastore create replaces it")
    values = _remove_fields(to_dict(before), arguments.remove)
    changes = [*parse_overrides(arguments.set), _collect_flags(arguments)]
    return _print(datastore_verbs.create(from_dict(values, params_override=changes)), arguments)


def _remove_fields(values: dict[str, Any], removed: list[str]) -> dict[str, Any]:
    """Remove fields; of ``tags.NAME`` that tag alone. Raises UsageError for one that does not exist."""
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
    add_name(parser, "datastore")
    parser.add_argument("-y", "--yes", action="store_true", help=argparse.SUPPRESS)


def _delete(arguments: Namespace) -> int:
    from drumline.control.assets import datastore_verbs

    datastore_verbs.delete(get_name(arguments, "datastore"))
    return 0


VERBS = {
    "create": ("create or replace a datastore", _create_arguments, _create),
    "show": ("show a datastore", _show_arguments, _show),
    "list": ("list datastores", _list_arguments, _list),
    "update": ("change settings", _update_arguments, _update),
    "delete": ("delete a datastore; its files are kept", _delete_arguments, _delete),
    "mount": refuse_verb(
        "not supported",
        "datastores are not mounted here: each is a folder",
        "drumline datastore show prints the path",
    ),
}
