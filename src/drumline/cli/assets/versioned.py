"""The verbs that ``data``, ``model``, ``environment`` and ``component`` have in common: assets with versions."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import Parser, add_name, add_output, add_set, get_name, parse_count
from drumline.cli.entity_flags import parse_edits, parse_tags
from drumline.contract.errors import UsageError
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    Verb = tuple[str, Callable[[Parser], None], Callable[[Any], int]]

_ADD_LABELS = "--add labels NAME adds a label; no other field is a list"


# create


def add_create(parser: Parser, kind: str, *, example: str, short: str = "") -> None:
    """Add the arguments of every ``create``. ``short``: az's letter for the description, where it has one."""
    add_name(parser, kind)
    parser.add_argument("-f", "--file", help=f"the {kind}'s file; - for standard input")
    add_set(parser, example)
    parser.add_argument("-v", "--version", help="default: the file's, else the next number")
    parser.add_argument(*filter(None, (short, "--description")))
    parser.add_argument("--tags", nargs="+", metavar="NAME=VALUE")
    text = "move this label to the new version; can be repeated"
    parser.add_argument("--label", action="append", default=[], metavar="NAME", help=text)
    parser.add_argument("--skip-validation", action="store_true", help="do not check what it refers to")
    parser.add_argument("--datastore", help=argparse.SUPPRESS)
    parser.add_argument("--no-wait", action="store_true", help=argparse.SUPPRESS)
    _add_registry(parser)
    add_output(parser)


def _add_registry(parser: Parser) -> None:
    def refuse(name: str) -> str:
        hint = "leave it out: assets registered without a workspace are visible in all workspaces"
        raise UsageError(f"--registry-name: registries are not supported; got {name!r}", hint)

    parser.add_argument("--registry-name", type=refuse, help=argparse.SUPPRESS)


def collect_flags(arguments: Namespace, *names: str) -> dict[str, Any]:
    """Return the flags that were given, by the keys of YAML: those of every kind, and ``names``."""
    keys = ("version", "description", "datastore", *names)
    values = {key: getattr(arguments, key) for key in keys if getattr(arguments, key) is not None}
    name = arguments.name or arguments.given
    return {**({"name": name} if name else {}), **values, **parse_tags(arguments)}


def register(arguments: Namespace, kind: str, asset: Any) -> int:
    from drumline.control.assets import asset_verbs

    made = asset_verbs.create(asset, labels=arguments.label, check=not arguments.skip_validation)
    output.print_warnings(made._warnings)
    if kind == "component" and arguments.datastore:
        output.print_warnings(["--datastore: not used; code is stored in DRUMLINE_HOME"])
    output.show(asset_verbs.describe(kind, made.name, made.version), arguments.output, arguments.query)
    return 0


# download


def make_download(kind: str) -> tuple[Callable[[Parser], None], Callable[[Any], int]]:
    """Return the arguments and the action of ``download`` of a model or a component."""

    def add_arguments(parser: Parser) -> None:
        add_name(parser, kind)
        add_which(parser)
        parser.add_argument("-p", "--download-path", default=".", help="default: the current folder")

    def run(arguments: Namespace) -> int:
        from drumline.control.assets import asset_files

        copy = {"model": asset_files.download_model, "component": asset_files.download_component}[kind]
        name = get_name(arguments, kind)
        path = copy(name, arguments.version, arguments.label, arguments.download_path)
        print(clean(f"downloaded to {path}"), file=sys.stderr)
        return 0

    return add_arguments, run


# the other verbs


class VersionedNoun:
    """The verbs of one kind of asset. ``columns``: of a table of several. ``stages``: whether they have a stage."""

    def __init__(self, kind: str, columns: Sequence[str], *, stages: bool = False) -> None:
        self.kind = kind
        self.columns = tuple(columns)
        self.stages = stages

    def verbs(self) -> dict[str, Verb]:
        return {
            "show": ("show one version; default: the latest", self._show_arguments, self._show),
            "list": (
                "list the latest version of each name, or all versions of one",
                self._list_arguments,
                self._list,
            ),
            "update": (
                "change description, tags, labels and other fields",
                self._update_arguments,
                self._update,
            ),
            "archive": ("hide one version, or all versions of a name", self._add_which, self._archive),
            "restore": ("undo archive", self._add_which, self._restore),
        }

    def _add_which(self, parser: Parser) -> None:
        add_name(parser, self.kind)
        add_which(parser)

    def _show_arguments(self, parser: Parser) -> None:
        self._add_which(parser)
        add_output(parser)

    def _show(self, arguments: Namespace) -> int:
        from drumline.control.assets import asset_verbs

        shown = asset_verbs.describe(
            self.kind, get_name(arguments, self.kind), arguments.version, arguments.label
        )
        output.show(shown, arguments.output, arguments.query)
        return 0

    def _list_arguments(self, parser: Parser) -> None:
        add_name(parser, self.kind)
        parser.add_argument("-r", "--max-results", type=parse_count, help="default: all")
        parser.add_argument("--archived-only", action="store_true", help="list only archived ones")
        parser.add_argument("--include-archived", action="store_true", help="list archived ones too")
        if self.stages:
            parser.add_argument("-s", "--stage", help="only models of this stage")
        _add_registry(parser)
        add_output(parser)

    def _list(self, arguments: Namespace) -> int:
        from drumline.control.assets import asset_verbs

        if arguments.archived_only and arguments.include_archived:
            raise UsageError("--archived-only and --include-archived exclude each other")
        archived = True if arguments.archived_only else None if arguments.include_archived else False
        found = asset_verbs.describe_all(
            self.kind,
            arguments.name or arguments.given,
            archived=archived,
            damaged=lambda problem: output.print_warnings([problem]),
        )
        if self.stages and arguments.stage:
            found = [asset for asset in found if asset.get("stage") == arguments.stage]
        output.show(found[: arguments.max_results], arguments.output, arguments.query, self.columns)
        return 0

    def _update_arguments(self, parser: Parser) -> None:
        self._show_arguments(parser)
        parser.add_argument("--set", action="extend", nargs="+", default=[], metavar="PATH=VALUE")
        parser.add_argument(
            "--remove", action="extend", nargs="+", default=[], metavar="PATH", help="a field, or labels.NAME"
        )
        parser.add_argument(
            "--add", action="append", nargs="+", default=[], metavar="WORD", help="labels NAME adds a label"
        )
        parser.add_argument("--force-string", action="store_true", help=argparse.SUPPRESS)
        if self.stages:
            parser.add_argument("-s", "--stage")

    def _update(self, arguments: Namespace) -> int:
        from drumline.control.assets import asset_verbs

        kind, name = self.kind, get_name(arguments, self.kind)
        before = asset_verbs.describe(kind, name, arguments.version, arguments.label, is_whole=True)
        removed = [path for path in arguments.remove if not path.startswith("labels.")]
        editable = asset_verbs.EDITABLE[kind]
        changes = parse_edits(before, arguments.set, removed, editable=editable, noun=kind)
        if self.stages and arguments.stage:
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
        return self._show(arguments)

    def _archive(self, arguments: Namespace) -> int:
        from drumline.control.assets import asset_verbs

        asset_verbs.archive(self.kind, get_name(arguments, self.kind), arguments.version, arguments.label)
        return 0

    def _restore(self, arguments: Namespace) -> int:
        from drumline.control.assets import asset_verbs

        asset_verbs.restore(self.kind, get_name(arguments, self.kind), arguments.version, arguments.label)
        return 0


def add_which(parser: Parser) -> None:
    parser.add_argument("-v", "--version")
    parser.add_argument("-l", "--label", help="a label instead of a version, such as latest")
    _add_registry(parser)


def refuse_verb(what: str, why: str, instead: str) -> Verb:
    """Return a verb of ``az ml`` that is refused: say why, and what to use instead."""

    def arguments(_: Parser) -> None:
        raise UsageError(why, instead)

    return what, arguments, lambda _: 2
