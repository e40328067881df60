"""What the nouns ``data``, ``model``, ``environment`` and ``component`` have in common."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import Parser, add_name, add_output, add_set, name_of, overrides
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Sequence

    from drumline.spec.nodes import Mapping
    from drumline.spec.schema.report import Report

    Verb = tuple[str, Callable[[Parser], None], Callable[[Any], int]]

STDIN = ("-", "/dev/stdin")
_ADD_LABELS = "--add labels NAME puts a label on it; nothing else is a list"


def warn(warnings: Iterable[str]) -> None:
    from drumline.control.terminal import clean

    for warning in warnings:
        print(f"warning: {clean(warning)}", file=sys.stderr)


# create


def add_create(parser: Parser, kind: str, *, example: str, short: str = "") -> None:
    """What ``create`` of every kind takes. ``short``: az's letter for the description, where it has one."""
    add_name(parser, kind)
    parser.add_argument("-f", "--file", help=f"the {kind}'s file; - is standard input")
    add_set(parser, example)
    parser.add_argument("-v", "--version", help="default: the file's, or the next whole number")
    parser.add_argument(*filter(None, (short, "--description")))
    parser.add_argument("--tags", nargs="+", metavar="NAME=VALUE")
    text = "put this label on it, and off any other version; may be given again"
    parser.add_argument("--label", action="append", default=[], metavar="NAME", help=text)
    parser.add_argument("--skip-validation", action="store_true", help="do not look into what it leads to")
    parser.add_argument("--datastore", help=argparse.SUPPRESS)
    parser.add_argument("--no-wait", action="store_true", help=argparse.SUPPRESS)
    _add_registry(parser)
    add_output(parser)


def _add_registry(parser: Parser) -> None:
    parser.add_argument("--registry-name", type=_no_registry, help=argparse.SUPPRESS)


def _no_registry(name: str) -> str:
    hint = "leave it out: what is registered without a workspace is there for all workspaces"
    raise UsageError(f"--registry-name: there are no registries here, and so no {name!r}", hint)


def given(arguments: Namespace, *names: str) -> dict[str, Any]:
    """Those flags that were given, by the keys of YAML; of every kind besides ``names``."""
    keys = ("version", "description", "datastore", *names)
    values = {key: getattr(arguments, key) for key in keys if getattr(arguments, key) is not None}
    name = arguments.name or arguments.given
    return {**({"name": name} if name else {}), **values, **tags_of(arguments)}


def tags_of(arguments: Namespace) -> dict[str, Any]:
    tags = {}
    for text in arguments.tags or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--tags: {text!r} is not of the form NAME=VALUE", "--tags team=vision")
        tags[key] = value
    return {"tags": tags} if tags else {}


def in_full(path: str | None) -> str | None:
    """A path of the command line, which a file may not lie beside. An empty one is no path."""
    from drumline.spec.paths import is_remote, local_part

    return path if not path or is_remote(path) else os.path.abspath(local_part(path))


def count(text: str) -> int:
    """Of ``--max-results``. Raises UsageError."""
    if text.isascii() and text.isdigit():
        return int(text[:18])
    raise UsageError(f"--max-results: {text!r} is not a number of results", "-r 10")


def loaded(
    arguments: Namespace,
    values: dict[str, Any],
    load: Callable[..., Any],
    from_tree: Callable[[Mapping, Report], Any],
) -> Any:
    """Of ``--file`` with ``values`` over it, or of ``values`` alone; ``--set`` comes first."""
    changes = overrides(arguments.set)
    if arguments.file in STDIN:
        return load(sys.stdin.buffer, relative_origin=os.getcwd(), params_override=[*changes, values])
    if arguments.file:
        return load(arguments.file, params_override=[*changes, values])
    from drumline.spec.nodes import Mapping, wrap
    from drumline.spec.override import apply
    from drumline.spec.schema.report import Report

    root = wrap({})
    assert isinstance(root, Mapping)
    apply(root, [*changes, values])
    return from_tree(root, Report(os.getcwd()))


def create(arguments: Namespace, kind: str, asset: Any) -> int:
    from drumline.control import assets

    made = assets.create(asset, labels=arguments.label, check=not arguments.skip_validation)
    warn(made._warnings)
    if kind == "component" and arguments.datastore:
        warn(["--datastore: not used; code is kept in the home"])
    output.show(assets.describe(kind, made.name, made.version), arguments.output, arguments.query)
    return 0


# the other verbs


class Noun:
    """``columns``: of a table of several. ``stages``: whether they have a stage."""

    def __init__(self, kind: str, columns: Sequence[str], *, stages: bool = False) -> None:
        self.kind = kind
        self.columns = tuple(columns)
        self.stages = stages

    def verbs(self) -> dict[str, Verb]:
        return {
            "show": ("one version: the latest unless told otherwise", self._show_arguments, self._show),
            "list": ("the latest of each name, or all versions of one", self._list_arguments, self._list),
            "update": ("change description, tags, labels and the like", self._update_arguments, self._update),
            "archive": ("hide a version, or a name with all versions", self._which, self._archive),
            "restore": ("undo archive", self._which, self._restore),
        }

    def _which(self, parser: Parser) -> None:
        add_name(parser, self.kind)
        add_which(parser)

    def _name(self, arguments: Namespace) -> str:
        return name_of(arguments, self.kind)

    def _show_arguments(self, parser: Parser) -> None:
        self._which(parser)
        add_output(parser)

    def _show(self, arguments: Namespace) -> int:
        from drumline.control import assets

        shown = assets.describe(self.kind, self._name(arguments), arguments.version, arguments.label)
        output.show(shown, arguments.output, arguments.query)
        return 0

    def _list_arguments(self, parser: Parser) -> None:
        add_name(parser, self.kind)
        parser.add_argument("-r", "--max-results", type=count, help="default: all")
        parser.add_argument("--archived-only", action="store_true")
        parser.add_argument("--include-archived", action="store_true")
        if self.stages:
            parser.add_argument("-s", "--stage", help="those of this stage alone")
        _add_registry(parser)
        add_output(parser)

    def _list(self, arguments: Namespace) -> int:
        found = _described(self.kind, arguments)
        if self.stages and arguments.stage:
            found = [one for one in found if one.get("stage") == arguments.stage]
        output.show(found[: arguments.max_results], arguments.output, arguments.query, self.columns)
        return 0

    def _update_arguments(self, parser: Parser) -> None:
        self._show_arguments(parser)
        parser.add_argument("--set", action="extend", nargs="+", default=[], metavar="PATH=VALUE")
        parser.add_argument(
            "--remove", action="extend", nargs="+", default=[], metavar="PATH", help="or labels.NAME"
        )
        parser.add_argument(
            "--add", action="append", nargs="+", default=[], metavar="WORD", help="labels NAME"
        )
        parser.add_argument("--force-string", action="store_true", help=argparse.SUPPRESS)
        if self.stages:
            parser.add_argument("-s", "--stage")

    def _update(self, arguments: Namespace) -> int:
        _update(self.kind, arguments, {"stage": arguments.stage} if self.stages and arguments.stage else {})
        return self._show(arguments)

    def _archive(self, arguments: Namespace) -> int:
        from drumline.control import assets

        assets.archive(self.kind, self._name(arguments), arguments.version, arguments.label)
        return 0

    def _restore(self, arguments: Namespace) -> int:
        from drumline.control import assets

        assets.restore(self.kind, self._name(arguments), arguments.version, arguments.label)
        return 0


def add_which(parser: Parser) -> None:
    parser.add_argument("-v", "--version")
    parser.add_argument("-l", "--label", help="instead of a version, such as latest")
    _add_registry(parser)


def _described(kind: str, arguments: Namespace) -> list[dict[str, Any]]:
    from drumline.control import assets

    if arguments.archived_only and arguments.include_archived:
        raise UsageError("--archived-only and --include-archived exclude each other")
    archived = True if arguments.archived_only else None if arguments.include_archived else False
    name = arguments.name or arguments.given
    return assets.described(kind, name, archived=archived, damaged=lambda said: warn([said]))


def _update(kind: str, arguments: Namespace, changes: dict[str, Any]) -> None:
    from drumline.cli.edits import changes_of
    from drumline.control import assets

    name = name_of(arguments, kind)
    before = assets.describe(kind, name, arguments.version, arguments.label)
    removed = [path for path in arguments.remove if not path.startswith("labels.")]
    editable = assets.EDITABLE[kind]
    changes = {**changes_of(before, arguments.set, removed, editable=editable, noun=kind), **changes}
    labels = _added(arguments)
    unlabel = [path.removeprefix("labels.") for path in arguments.remove if path.startswith("labels.")]
    if not changes and not labels and not unlabel:
        raise UsageError("nothing to change", f"drumline {kind} update -n {name} --set description=...")
    version = before["version"]
    assets.update(kind, name, version, changes=changes, labels=labels, unlabel=unlabel)
    # A label may be on another version now.
    arguments.version, arguments.label = version, None


def _added(arguments: Namespace) -> list[str]:
    labels: list[str] = []
    for field, *values in arguments.add:
        if field != "labels" or not values:
            raise UsageError(f"--add {field}: not a list, or nothing to add to it", _ADD_LABELS)
        labels += values
    return labels


def refused(what: str, why: str, instead: str) -> Verb:
    """A verb of ``az ml`` that has no meaning here."""

    def arguments(_: Parser) -> None:
        raise UsageError(why, instead)

    return what, arguments, lambda _: 2
