"""The functions of the verbs of ``drumline datastore``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import get_name, parse_overrides
from drumline.cli.entity_flags import load_entity, make_absolute, parse_tags
from drumline.contract.errors import UsageError
from drumline.contract.hiding import hide_in_job
from drumline.control.assets import datastore_verbs
from drumline.spec.registered.datastores import from_dict, from_tree, mask_secrets, to_dict

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.spec.registered.datastores import Datastore

_COLUMNS = ("name", "type", "path", "is_default", "description")


_EXAMPLE = "drumline datastore create --name NAME --type local --path /FOLDER"


def create_datastore(arguments: Namespace) -> int:
    from drumline.spec.load import load_datastore

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
    values = to_dict(datastore)
    return {
        **(values if secrets else hide_in_job(mask_secrets(values))),
        "id": datastore.id,
        "is_default": datastore.is_default,
    }


def show_datastore(arguments: Namespace) -> int:
    _print(datastore_verbs.get(get_name(arguments, "datastore")), arguments)
    return 0


def list_datastores(arguments: Namespace) -> int:
    found = datastore_verbs.all(damaged=lambda said: output.print_warnings([said]))
    shown = [_describe(one) for one in found[: arguments.max_results]]
    output.show(shown, arguments.output, arguments.query, _COLUMNS)
    return 0


def update_datastore(arguments: Namespace) -> int:
    if arguments.add:
        raise UsageError("--add: no field of a datastore is a list", "--set tags.NAME=VALUE")
    if arguments.file:
        return create_datastore(arguments)
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
