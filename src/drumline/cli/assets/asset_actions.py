"""The functions of the verbs of assets with versions: ``data``, ``model``, ``environment`` and ``component``."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import get_name
from drumline.cli.entity_flags import load_entity, make_absolute, parse_edits, parse_tags
from drumline.contract.errors import UsageError
from drumline.control.assets import asset_verbs
from drumline.control.environments import environment_builds
from drumline.control.terminal import clean
from drumline.spec.load import load_component, load_data, load_environment, load_model
from drumline.spec.parts import environment
from drumline.spec.registered import assets

if TYPE_CHECKING:
    from argparse import Namespace

_COLUMNS = {
    "data": ("name", "version", "type", "path", "description"),
    "model": ("name", "version", "type", "stage", "path", "description"),
    "environment": ("name", "version", "python", "image", "description"),
    "component": ("name", "version", "type", "display_name", "description"),
}
"""Of a table of several, by kind."""

_ADD_LABELS = "--add labels NAME adds a label; no other field is a list"


# create


def create_environment(arguments: Namespace) -> int:
    arguments.conda_file = make_absolute(arguments.conda_file)
    values = {
        **collect_flags(arguments, "python", "image", "conda_file", "os_type"),
        **_collect_build(arguments),
    }
    return register(
        arguments, "environment", load_entity(arguments, values, load_environment, environment.from_tree)
    )


def _collect_build(arguments: Namespace) -> dict[str, Any]:
    folder, dockerfile = make_absolute(arguments.build_context), arguments.dockerfile_path
    if dockerfile and not folder and not arguments.file:
        raise UsageError("--dockerfile-path needs a build context", "--build-context FOLDER")
    values = {"build.path": folder, "build.dockerfile_path": dockerfile}
    return {path: value for path, value in values.items() if value}


def show_environment(arguments: Namespace) -> int:
    which = (get_name(arguments, "environment"), arguments.version, arguments.label)
    shown = asset_verbs.describe("environment", *which)
    built = environment_builds.state_of(asset_verbs.get("environment", *which))
    output.show({**shown, "built": built} if built else shown, arguments.output, arguments.query)
    return 0


def build_environment(arguments: Namespace) -> int:
    if arguments.file:
        if arguments.name or arguments.given or arguments.version or arguments.label:
            raise UsageError("--file and a name exclude each other", "give one of them")
        built = environment_builds.in_file(arguments.file)
    else:
        name = get_name(arguments, "environment")
        built = asset_verbs.get("environment", name, arguments.version, arguments.label)
    made = environment_builds.build(built, sys.stderr.fileno(), is_forced=arguments.force)
    output.show(made, arguments.output, arguments.query)
    return 0


def create_data(arguments: Namespace) -> int:
    arguments.path = make_absolute(arguments.path)
    values = collect_flags(arguments, "path", "type")
    made = load_entity(arguments, values, load_data, partial(assets.from_tree, "data"))
    return register(arguments, "data", made)


def create_model(arguments: Namespace) -> int:
    arguments.path = make_absolute(arguments.path)
    values = collect_flags(arguments, "path", "type", "stage")
    made = load_entity(arguments, values, load_model, partial(assets.from_tree, "model"))
    return register(arguments, "model", made)


def create_component(arguments: Namespace) -> int:
    if not arguments.file:
        raise UsageError("create needs --file", "drumline component create --file component.yml")
    return register(
        arguments, "component", load_entity(arguments, collect_flags(arguments), load_component, _none)
    )


def _none(*_: object) -> None:
    """Do nothing: a component is always a file."""


def collect_flags(arguments: Namespace, *names: str) -> dict[str, Any]:
    """Return the flags that were given, by the keys of YAML: those of every kind, and ``names``."""
    keys = ("version", "description", "datastore", *names)
    values = {key: getattr(arguments, key) for key in keys if getattr(arguments, key) is not None}
    name = arguments.name or arguments.given
    return {**({"name": name} if name else {}), **values, **parse_tags(arguments)}


def register(arguments: Namespace, kind: str, asset: Any) -> int:
    made = asset_verbs.create(asset, labels=arguments.label, check=not arguments.skip_validation)
    output.print_warnings(made._warnings)
    if kind == "component" and arguments.datastore:
        output.print_warnings(["--datastore: not used; code is stored in DRUMLINE_HOME"])
    output.show(asset_verbs.describe(kind, made.name, made.version), arguments.output, arguments.query)
    return 0


# the other verbs


def show(arguments: Namespace) -> int:
    shown = asset_verbs.describe(
        arguments.noun, get_name(arguments, arguments.noun), arguments.version, arguments.label
    )
    output.show(shown, arguments.output, arguments.query)
    return 0


def list_versions(arguments: Namespace) -> int:
    if arguments.archived_only and arguments.include_archived:
        raise UsageError("--archived-only and --include-archived exclude each other")
    archived = True if arguments.archived_only else None if arguments.include_archived else False
    found = asset_verbs.describe_all(
        arguments.noun,
        arguments.name or arguments.given,
        archived=archived,
        damaged=lambda problem: output.print_warnings([problem]),
    )
    if getattr(arguments, "stage", None):
        found = [asset for asset in found if asset.get("stage") == arguments.stage]
    output.show(found[: arguments.max_results], arguments.output, arguments.query, _COLUMNS[arguments.noun])
    return 0


def update(arguments: Namespace) -> int:
    kind, name = arguments.noun, get_name(arguments, arguments.noun)
    before = asset_verbs.describe(kind, name, arguments.version, arguments.label, is_whole=True)
    removed = [path for path in arguments.remove if not path.startswith("labels.")]
    editable = asset_verbs.EDITABLE[kind]
    changes = parse_edits(before, arguments.set, removed, editable=editable, noun=kind)
    if getattr(arguments, "stage", None):
        changes["stage"] = arguments.stage
    labels: list[str] = []
    for field, *values in arguments.add:
        if field != "labels" or not values:
            raise UsageError(f"--add {field}: not a list, or no value given", _ADD_LABELS)
        labels += values
    unlabel = [path.removeprefix("labels.") for path in arguments.remove if path.startswith("labels.")]
    if not changes and not labels and not unlabel:
        raise UsageError("nothing to change", f"drumline {kind} update -n {name} --set description=...")
    version = before["version"]
    asset_verbs.update(kind, name, version, changes=changes, labels=labels, unlabel=unlabel)
    # A label may be on another version now.
    arguments.version, arguments.label = version, None
    return show(arguments)


def archive(arguments: Namespace) -> int:
    asset_verbs.archive(
        arguments.noun, get_name(arguments, arguments.noun), arguments.version, arguments.label
    )
    return 0


def restore(arguments: Namespace) -> int:
    asset_verbs.restore(
        arguments.noun, get_name(arguments, arguments.noun), arguments.version, arguments.label
    )
    return 0


def download(arguments: Namespace) -> int:
    from drumline.control.assets import asset_files

    copy = {"model": asset_files.download_model, "component": asset_files.download_component}[arguments.noun]
    name = get_name(arguments, arguments.noun)
    path = copy(name, arguments.version, arguments.label, arguments.download_path)
    print(clean(f"downloaded to {path}"), file=sys.stderr)
    return 0
