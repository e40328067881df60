"""JSON Schemas of the kinds of values, for editors; a record that occurs several times has one definition."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    JsonSchema = dict[str, Any]
    """A JSON Schema, or a part of one: a document that editors read."""

READ_ONLY = "Read-only: accepted, and not used."


class Schemas:
    """
    The definitions that were made so far.

    Draft 7: the newest that the language server of YAML's editors knows.
    """

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._kept: list[object] = []

    def make(self, kind: Any) -> JsonSchema:
        """Return the schema of a kind, which may be null where the kind says so."""
        made: JsonSchema = kind.json_schema(self)
        return {"anyOf": [made, {"type": "null"}]} if kind.nullable and made else made

    def make_by_type(self, tables: Mapping[str, Any]) -> JsonSchema:
        """Make the schema of a mapping of one of several types; the first is that of a mapping without ``type``."""
        rules = [when_type([name], self.make(table)) for name, table in tables.items()]
        rules.append({"if": lacks("type"), "then": self.make(next(iter(tables.values())))})
        return {"type": "object", "properties": {"type": {"enum": list(tables)}}, "allOf": rules}

    def share(self, owner: object, noun: str, make_definition: Callable[[], JsonSchema]) -> JsonSchema:
        """Return a reference to the definition of ``owner``, which is made at its first use, and may contain itself."""
        name = self._names.get(id(owner))
        if name is None:
            # The object is kept, so that no other gets its number.
            self._kept.append(owner)
            name = self._name_definition(noun)
            self._names[id(owner)] = name
            self.definitions[name] = {}
            self.definitions[name] = make_definition()
        return {"$ref": f"#/definitions/{name}"}

    def _name_definition(self, noun: str) -> str:
        name = noun.removeprefix("a ").removeprefix("an ").replace(" ", "_")
        taken = sum(1 for one in self.definitions if one.rstrip("0123456789") == name)
        return f"{name}{taken + 1}" if taken else name

    def describe(self, noun: str, key: str, made: JsonSchema, text: str = "") -> JsonSchema:
        """Return the schema of a key with its description; beside a reference it would not count."""
        text = text or _BY_NOUN.get(f"{noun}.{key}", _TEXTS.get(key, ""))
        if not text:
            return made
        return {"description": text, **({"allOf": [made]} if "$ref" in made else made)}


def match_any_case(words: Iterable[str]) -> str:
    """Return the pattern of these words in any case, with ``_`` or without: ``UserIdentity`` is ``user_identity``."""
    return "^(?:" + "|".join("".join(map(_match_letter, word)) for word in words) + ")$"


def _match_letter(letter: str) -> str:
    if letter == "_":
        return "_?"
    return f"[{letter.upper()}{letter.lower()}]" if letter.isalpha() else letter


def when_type(words: Iterable[str], then: JsonSchema) -> JsonSchema:
    """Return the rule for a mapping whose ``type`` is one of these."""
    given = {
        "properties": {"type": {"type": "string", "pattern": match_any_case(words)}},
        "required": ["type"],
    }
    return {"if": given, "then": then}


def lacks(key: str) -> JsonSchema:
    return {"not": {"required": [key]}}


_TEXTS = {
    # every job
    "type": "The type of this thing.",
    "name": "The name; default: a generated one.",
    "description": "A text of your own.",
    "tags": "Names and values of your own.",
    "properties": "Names and values that programs set.",
    "inputs": "The inputs by name: values, files and folders. ${{inputs.NAME}} in the command stands for one.",
    "outputs": "The outputs by name. ${{outputs.NAME}} in the command is the folder to write to.",
    "environment": "The packages or the image of the job; default: the Python that submits it.",
    "resources": "The number of nodes and what each of them has.",
    # inputs and outputs
    "path": "A local path, a URL, or a reference such as azureml:NAME:VERSION.",
    "mode": "How the data gets to the job, or from it.",
    "value": "The value.",
    "datastore": "The datastore.",
    "version": "The version; default: the next number.",
    # pipelines and sweeps
    "component": "A component: its file, or azureml:NAME:VERSION.",
    "code": "The folder that is copied to the job, and is its working folder; relative to this file.",
    "identity": "The identity that Azure would use; not used here.",
}
_BY_NOUN = {
    "input.type": "uri_file, uri_folder, mltable, or a type of model.",
    "output.type": "uri_file, uri_folder, mltable, or a type of model.",
}
