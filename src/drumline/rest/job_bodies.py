"""
Bodies of jobs: what Microsoft's client sends becomes a job file of ours, and a job of ours what that client reads.

A body is the job file in other spellings: keys in camel case, ids of ARM for names, ISO 8601 for seconds. Nodes of a
pipeline are in snake case already. A key that is not known here passes under its name in YAML, so that the tables of
job files refuse it with their own sentence: nothing is dropped in silence but what the client adds by itself.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from drumline.azure import explain_lack
from drumline.contract.errors import SpecError
from drumline.rest.resource_ids import (
    check_mapping,
    check_text,
    read_code_id,
    read_keys,
    read_named,
    read_path,
    read_properties,
    read_reference,
    read_seconds,
    read_word,
    to_camel,
    to_snake,
    write_keys,
    write_named,
    write_reference,
    write_seconds,
    write_word,
)
from drumline.spec.parts.search import EXPRESSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ARTIFACT_STORE = "workspaceartifactstore"
"""The datastore that Azure shows the files of jobs in."""

ANONYMOUS = "azureml_anonymous"
"""The name that the client gives to components that have none."""

_IDS = {
    "code_id": "code",
    "environment_id": "environment",
    "compute_id": "compute",
    "component_id": "component",
}
_TYPE_KEYS = {
    "distribution": "distribution_type",
    "identity": "identity_type",
    "early_termination": "policy_type",
    "sampling_algorithm": "sampling_algorithm_type",
}
"""Where bodies say which type a part has."""

_PRIORITIES = {1: "low", 2: "medium", 3: "high"}
_OUTPUT_NAMES = {"uri": "path", "asset_name": "name", "asset_version": "version", "job_output_type": "type"}
_SERVICE_PROPERTIES = {"logDir": "log_dir", "sshPublicKeys": "ssh_public_keys"}
_SERVER_FIELDS = ("job_type", "is_archived", "status", "parameters", "_source", "source_job_id")
"""What the client sends back of a job that it has fetched, or tells its own service of itself."""

_PAGES = ("Tracking", "Studio")
_IS_LOCAL = "IsLocal"
_COMMON_RUNTIME = "AZUREML_COMPUTE_USE_COMMON_RUNTIME"
"""What the client sets for a job on this machine: a property of ``resources``, and a variable."""


# reading


def read_job(name: str, body: Mapping[str, Any], find_code: Callable[[str, str], str]) -> dict[str, Any]:
    """
    Return the job file that a body stands for, for ``spec.load.load_job_values``.

    find_code: returns the folder of stored code, by name and version. Raises SpecError, and what ``find_code`` raises.
    """
    properties = read_properties(body)
    kind = read_word(check_text(properties.get("jobType"), "properties.jobType"))
    values = BodyReader(find_code).read_fields(properties, "properties")
    if _remove_local_marks(values):
        values.setdefault("compute", "local")
    return {"name": name, "type": kind, **values}


def _remove_local_marks(values: dict[str, Any]) -> bool:
    """Remove the marks of a job for the local machine; return whether they were there."""
    resources = values.get("resources") or {}
    properties = resources.get("properties")
    if not isinstance(properties, dict) or properties.pop(_IS_LOCAL, None) is None:
        return False
    if not any(resources.values()):
        del values["resources"]
    if isinstance(values.get("environment_variables"), dict):
        values["environment_variables"].pop(_COMMON_RUNTIME, None)
    return True


class BodyReader:
    """Reads the fields of a job, a trial, a node or a component; ``find_code``: as of ``read_job``."""

    def __init__(self, find_code: Callable[[str, str], str]) -> None:
        self._find_code = find_code
        self._readers: dict[str, Callable[[Any, str], Any]] = {
            "code": self._read_code,
            "environment": lambda value, place: read_reference(check_text(value, place)),
            "component": lambda value, place: read_reference(check_text(value, place)),
            "compute": lambda value, place: read_named(check_text(value, place)),
            "inputs": lambda value, place: _read_each(value, place, _read_input),
            "outputs": lambda value, place: _read_each(value, place, _read_output),
            "search_space": lambda value, place: _read_each(value, place, _read_expression),
            "services": _read_services,
            "distribution": _read_typed,
            "identity": _read_typed,
            "early_termination": _read_typed,
            "sampling_algorithm": _read_typed,
            "objective": read_keys,
            "retry_settings": read_keys,
            "limits": _read_limits,
            "resources": _read_resources,
            "queue_settings": _read_queue_settings,
            "settings": _read_settings,
            "partition_keys": _read_list,
            "mini_batch_size": lambda value, _: str(value),
            "task": self.read_fields,
            "trial": self._read_trial,
            "jobs": lambda value, place: _read_each(value, place, self._read_node),
        }

    def read_fields(self, given: object, place: str) -> dict[str, Any]:
        """Return the fields with the keys and values of YAML. ``place``: of the fields in the body."""
        values = {}
        for key, value in check_mapping(given, place).items():
            name = _IDS.get(to_snake(key)) or to_snake(key)
            if name not in _SERVER_FIELDS:
                read = self._readers.get(name)
                values[name] = read(value, f"{place}.{name}".removeprefix("properties.")) if read else value
        return values

    def _read_code(self, value: object, place: str) -> str:
        text = check_text(value, place)
        stored = read_code_id(text)
        return self._find_code(*stored) if stored else text

    def _read_node(self, value: object, place: str) -> dict[str, Any]:
        kind = check_mapping(value, place).get("type")
        if reason := explain_lack(str(kind)):
            raise SpecError(f"{place}: type {kind!r}: {reason}")
        node = self.read_fields(value, place)
        node.pop("name", None)  # The key that it stands under.
        return node

    def _read_trial(self, value: object, place: str) -> Any:
        trial = self.read_fields({"componentId": value} if isinstance(value, str) else value, place)
        return trial["component"] if trial.keys() == {"component"} else trial


def _read_list(value: object, place: str) -> Any:
    """Return a list that bodies hold as JSON in a text."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise SpecError(f"{place}: {value!r} is not a list in JSON") from None


def _read_each(value: object, place: str, read: Callable[[Any, str], Any]) -> dict[str, Any]:
    return {name: read(item, f"{place}.{name}") for name, item in check_mapping(value, place).items()}


def _read_typed(value: object, place: str) -> Any:
    """Return a part whose type stands under a key of its own; nodes may have the type alone."""
    if isinstance(value, str):
        return value
    part = read_keys(value, place)
    kind = part.pop(_TYPE_KEYS[place.rpartition(".")[2]], None) or part.get("type")
    return part if kind is None else {**part, "type": read_word(kind)}


def _read_input(value: object, place: str) -> Any:
    """Return a value, a binding, or data; a binding of a node may have a mode."""
    if not isinstance(value, dict):
        return value
    part = read_keys(value, place)
    kind = part.pop("job_input_type", None) or part.pop("type", None)
    if "mode" in part:
        part["mode"] = read_word(part["mode"])
    if kind == "literal":
        literal = part.pop("value", "")
        return {"path": literal, **part} if part else literal
    if "uri" in part:
        part["path"] = read_path(check_text(part.pop("uri"), f"{place}.uri"))
    return {"type": kind, **part} if kind else part


def _read_output(value: object, place: str) -> Any:
    part = {_OUTPUT_NAMES.get(key, key): item for key, item in read_keys(value, place).items()}
    if part.get("type") == "literal":
        return part.get("value", "")
    if "path" in part:
        part["path"] = read_path(check_text(part["path"], f"{place}.uri"))
    if "mode" in part:
        part["mode"] = read_word(part["mode"])
    part.pop("description", None)  # No job file has it.
    return part


def _read_expression(value: object, place: str) -> Any:
    """Return a search space, which jobs have as a list of its type and its arguments, and nodes as YAML."""
    if not isinstance(value, list):
        return value
    kind = EXPRESSIONS.get(value[0]) if len(value) == 2 and isinstance(value[0], str) else None
    arguments = value[1] if kind and isinstance(value[1], list) else []
    if kind is None or len(arguments) != len(kind._fields[1:]):
        what = f"{place}: {value!r} is not a search space"
        raise SpecError(what, 'such as ["uniform", [0.1, 0.9]]; the types: ' + ", ".join(EXPRESSIONS))
    made = {"type": value[0], **dict(zip(kind._fields[1:], arguments, strict=True))}
    if isinstance(made.get("values"), list):
        made["values"] = [
            _read_each(item, place, _read_expression) if isinstance(item, dict) else item
            for item in made["values"]
        ]
    return made


def _read_limits(value: object, place: str) -> dict[str, Any]:
    part = read_keys(value, place)
    part.pop("job_limits_type", None)
    return {
        key: read_seconds(item, f"{place}.{key}") if key.endswith("timeout") else item
        for key, item in part.items()
    }


def _read_resources(value: object, place: str) -> dict[str, Any]:
    part = read_keys(value, place)
    arguments = part.pop("docker_args_list", None)
    if arguments:
        part["docker_args"] = arguments
    return {key: item for key, item in part.items() if key != "properties" or item}


def _read_queue_settings(value: object, place: str) -> dict[str, Any]:
    part = {key: read_word(item) for key, item in read_keys(value, place).items()}
    if isinstance(part.get("priority"), int):
        part["priority"] = _PRIORITIES.get(part["priority"], part["priority"])
    return part


def _read_services(value: object, place: str) -> dict[str, Any]:
    """Return the programs that a job asks for; the pages of a job that was fetched are none."""
    services = {name: read_keys(item, place) for name, item in check_mapping(value, place).items()}
    return {
        name: _read_service(service, f"{place}.{name}")
        for name, service in services.items()
        if service.get("job_service_type") not in _PAGES
    }


def _read_service(service: dict[str, Any], place: str) -> dict[str, Any]:
    properties = check_mapping(service.pop("properties", {}), f"{place}.properties")
    kind = service.pop("job_service_type", None)
    if kind is not None:
        service["type"] = read_word(kind)
    service |= {
        ours: properties.pop(theirs) for theirs, ours in _SERVICE_PROPERTIES.items() if theirs in properties
    }
    if properties:
        service["properties"] = properties
    if isinstance(service.get("nodes"), dict):
        service["nodes"] = read_word(read_keys(service["nodes"], place).get("nodes_value_type"))
    return service


def _read_settings(value: object, place: str) -> dict[str, Any]:
    part = {key: item for key, item in read_keys(value, place).items() if key not in _SERVER_FIELDS}
    named = [key for key in ("default_compute", "default_datastore") if key in part]
    return {**part, **{key: read_named(check_text(part[key], f"{place}.{key}")) for key in named}}


# writing


_WRITTEN = (
    *("display_name", "experiment_name", "description", "parent_job_name", "command", "code", "environment"),
    *("compute", "component", "distribution", "resources", "limits", "queue_settings", "identity"),
    *("environment_variables", "services", "trial", "search_space", "objective", "sampling_algorithm"),
    *("early_termination", "settings", "jobs"),
)
"""The fields of a job file that a body has; what else ``drumline job show`` prints stays here."""

_PROGRAM = ("command", "code", "environment", "task", "component", "trial", "jobs")
"""What a node runs, in place of which it has a component in a body."""

_NODE_PARTS = ("distribution", "resources", "queue_settings", "identity", "early_termination", "services")


def write_job(described: Mapping[str, Any], workspace_id: str, pages: Mapping[str, str]) -> dict[str, Any]:
    """
    Return the body of a job, as ``show_job(name, is_whole=True)`` describes it.

    pages: the addresses of ``Tracking`` and ``Studio``. Code in a folder has the id ``codes/job.NAME/versions/1``: the
    client takes nothing but ids.
    """
    name, kind = str(described["name"]), str(described["type"])
    writer = BodyWriter(workspace_id)
    properties = writer.write_fields({key: value for key, value in described.items() if value})
    if properties.get("computeId", "").endswith("/computes/local"):
        del properties["computeId"]
        resources = properties.setdefault("resources", {"properties": {}})
        resources["properties"] = {**resources["properties"], _IS_LOCAL: {_IS_LOCAL: True}}
    outputs = {key: item for key, item in (described.get("outputs") or {}).items() if key != "default"}
    shown = {page: {"jobServiceType": page, "endpoint": address} for page, address in pages.items()}
    properties |= {
        "jobType": write_word(kind) if kind in ("sweep", "pipeline") else "Command",
        "isArchived": bool(described.get("archived")),
        "status": described.get("status"),
        "tags": dict(described.get("tags") or {}),
        "properties": dict(described.get("properties") or {}),
        "inputs": _write_each(described.get("inputs"), writer.write_input),
        "outputs": {key: _write_stored_output(item, name, key) for key, item in outputs.items()},
        "services": {**properties.get("services", {}), **shown},
    }
    if kind == "pipeline":
        properties = {"jobs": {}, "settings": {}, **properties}
    else:
        program = properties.setdefault("trial", {}) if kind == "sweep" else properties
        program.setdefault("command", "")
        program.setdefault("environmentVariables", {})
        if "codeId" in program and read_code_id(program["codeId"]) is None:
            program["codeId"] = f"{workspace_id}/codes/job.{name}/versions/1"
    return write_resource(described, f"{workspace_id}/jobs/{name}", properties)


def write_resource(described: Mapping[str, Any], place: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body around its properties. ``place``: its id, whose last part is its name."""
    created = write_keys(described.get("creation_context") or {})
    collections = place.partition("/workspaces/")[2].split("/")[1::2]
    return {
        "id": place,
        "name": place.rpartition("/")[2],
        "type": "/".join(["Microsoft.MachineLearningServices/workspaces", *collections]),
        "systemData": {"lastModifiedAt": created["createdAt"], **created}
        if "createdAt" in created
        else created,
        "properties": {key: value for key, value in properties.items() if value is not None},
    }


class BodyWriter:
    """Writes the fields of a job, a trial or a node."""

    def __init__(self, workspace_id: str) -> None:
        self._workspace_id = workspace_id
        self._writers: dict[str, Callable[[Any], Any]] = {
            "compute": lambda value: write_named(value, workspace_id, "computes"),
            "component": lambda value: write_reference(value, workspace_id, "components"),
            "environment": lambda value: write_reference(value, workspace_id, "environments"),
            **{name: _write_typed(name) for name in _TYPE_KEYS},
            "search_space": lambda value: _write_each(value, _write_expression),
            "objective": lambda value: {**write_keys(value), "goal": write_word(value.get("goal"))},
            "limits": _write_limits,
            "resources": _write_resources,
            "queue_settings": _write_queue_settings,
            "services": _write_services,
            "environment_variables": lambda value: _write_each(value, str),
            "trial": self.write_fields,
            "settings": self._write_settings,
            "jobs": lambda value: {name: self.write_node(name, node) for name, node in value.items()},
        }

    def write_fields(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields with the keys and values of a body; an environment that is written out has no id."""
        ids = {ours: to_camel(theirs) for theirs, ours in _IDS.items()}
        fields = {}
        for key, value in values.items():
            if (
                key in _WRITTEN
                and value is not None
                and not (key == "environment" and isinstance(value, dict))
            ):
                write = self._writers.get(key)
                fields[ids.get(key) or to_camel(key)] = write(value) if write else value
        return fields

    def write_input(self, value: Any) -> dict[str, Any]:
        """Return an input: a value or a binding as text, or data."""
        given = value if isinstance(value, dict) else {"value": value}
        mode = given.get("mode")
        held = {"mode": write_word("ro_mount" if mode == "mount" else mode)} if mode else {}
        path = given.get("path")
        if path is None or "${{" in str(path):
            return {
                "jobInputType": "literal",
                "value": str(given.get("value") if path is None else path),
                **held,
            }
        kind = str(given.get("type") or "uri_folder").lower()
        collection = "models" if kind.endswith("_model") else "data"
        written = {
            "jobInputType": kind,
            "uri": write_reference(str(path), self._workspace_id, collection),
            **held,
        }
        if given.get("path_on_compute"):
            written["pathOnCompute"] = given["path_on_compute"]
        return written

    def write_node(self, name: str, node: Mapping[str, Any]) -> dict[str, Any]:
        """Return a node of a pipeline, in snake case; a program that is written out is an anonymous component."""
        kind = str(node.get("type") or "command")
        parts = self.write_fields({key: node[key] for key in _NODE_PARTS if key in node})
        written = {key: item for key, item in node.items() if key not in (*_PROGRAM, "compute")}
        written |= {to_snake(key): read_keys(item, name) for key, item in parts.items()}
        if "services" in written:
            written["services"] = {key: read_keys(item, key) for key, item in parts["services"].items()}
        if "limits" in node and kind != "sweep":
            written["limits"] = read_keys(_write_limits(node["limits"]), name)
        if node.get("compute"):
            written["computeId"] = write_named(node["compute"], self._workspace_id, "computes")
        called = str(node.get("trial" if kind == "sweep" else "component"))
        called = called if called.startswith("azureml:") else f"azureml:{ANONYMOUS}:{name}"
        reference = {"componentId": write_reference(called, self._workspace_id, "components")}
        return {
            **written,
            "name": name,
            "type": kind,
            "inputs": _write_each(node.get("inputs"), lambda item: read_keys(self.write_input(item), name)),
            "outputs": _write_each(node.get("outputs"), _write_node_output),
            **({"trial": reference} if kind == "sweep" else reference),
        }

    def _write_settings(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a pipeline, which are in snake case in bodies too."""
        collections = {"default_compute": "computes", "default_datastore": "datastores"}
        return {
            key: write_named(item, self._workspace_id, collections[key]) if key in collections else item
            for key, item in value.items()
        }


def _write_each(values: Mapping[str, Any] | None, write: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: write(item) for name, item in (values or {}).items() if item is not None}


def _write_typed(name: str) -> Callable[[Any], dict[str, Any]]:
    """Return what writes a part whose type has a key of its own in bodies."""

    def write(value: Any) -> dict[str, Any]:
        given = {"type": value} if isinstance(value, str) else value
        part = write_keys({key: item for key, item in given.items() if key != "type"})
        return {to_camel(_TYPE_KEYS[name]): write_word(given.get("type")), **part}

    return write


def _write_expression(value: Any) -> Any:
    """Return a search space as a list of its type and its arguments; a value within a choice stays."""
    if not isinstance(value, dict):
        return value
    kind = str(value["type"]).lower()
    arguments: list[Any] = [value.get(name) for name in EXPRESSIONS[kind]._fields[1:]]
    if kind == "choice":
        arguments = [
            [_write_each(x, _write_expression) if isinstance(x, dict) else x for x in arguments[0] or ()]
        ]
    return [kind, arguments]


def _write_limits(value: Mapping[str, Any]) -> dict[str, Any]:
    is_sweep = any(key != "timeout" for key in value)
    times = {
        key: write_seconds(item)
        for key, item in value.items()
        if key.endswith("timeout") and item is not None
    }
    return {"jobLimitsType": "Sweep" if is_sweep else "Command", **write_keys({**value, **times})}


def _write_resources(value: Mapping[str, Any]) -> dict[str, Any]:
    is_list = isinstance(value.get("docker_args"), list)
    return {"properties": {}, **write_keys(value, {"docker_args": "dockerArgsList"} if is_list else {})}


def _write_queue_settings(value: Mapping[str, Any]) -> dict[str, Any]:
    numbers: dict[str, Any] = {name: number for number, name in _PRIORITIES.items()}
    return {key: numbers.get(item) or write_word(item) for key, item in write_keys(value).items()}


def _write_services(value: Mapping[str, Any]) -> dict[str, Any]:
    left_out = (*_PAGES, "Notifications")
    return {key: _write_service(item) for key, item in value.items() if item.get("type") not in left_out}


def _write_service(value: Mapping[str, Any]) -> dict[str, Any]:
    written = write_keys({key: value.get(key) for key in ("endpoint", "port", "status")})
    properties = {theirs: value[ours] for theirs, ours in _SERVICE_PROPERTIES.items() if value.get(ours)}
    properties = {**(value.get("properties") or {}), **properties}
    if value.get("error"):
        written["errorMessage"] = value["error"]
    if value.get("nodes"):
        written["nodes"] = {"nodesValueType": write_word(value["nodes"])}
    if properties:
        written["properties"] = properties
    return {"jobServiceType": write_word(value.get("type") or "custom"), **written}


def _write_output(value: Mapping[str, Any]) -> dict[str, Any]:
    names = {ours: to_camel(theirs) for theirs, ours in _OUTPUT_NAMES.items()}
    written = write_keys({"type": "uri_folder", **value}, names)
    if "mode" in written:
        written["mode"] = write_word("rw_mount" if written["mode"] == "mount" else written["mode"])
    return written


def _write_stored_output(value: Mapping[str, Any], job: str, name: str) -> dict[str, Any]:
    """Return an output of a job; one in the job's own folder is a path of the datastore that shows it."""
    written = _write_output(value)
    if written.get("uri") == f"azureml://jobs/{job}/outputs/{name}":
        written["uri"] = (
            f"azureml://datastores/{ARTIFACT_STORE}/paths/ExperimentRun/dcid.{job}/named-outputs/{name}/"
        )
    return written


def _write_node_output(value: Any) -> dict[str, Any]:
    return (
        {"type": "literal", "value": value} if isinstance(value, str) else read_keys(_write_output(value), "")
    )
