"""
Bodies of jobs: what Microsoft's client sends becomes a job file of ours, and a job of ours what that client reads.

A body is the job file in other spellings: keys in camel case, ids of ARM for names, ISO 8601 for seconds. Nodes of a
pipeline are in snake case already. A key that is not known here passes under its name in YAML, so that the tables of
job files refuse it with their own sentence: nothing is dropped in silence but what the client adds by itself.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import SpecError
from drumline.rest.resource_ids import (
    check_mapping,
    check_text,
    read_code_id,
    read_named,
    read_path,
    read_reference,
    read_seconds,
    rename_keys,
    to_camel,
    to_snake,
    write_named,
    write_reference,
    write_seconds,
)
from drumline.spec.parts.search import EXPRESSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ARTIFACT_STORE = "workspaceartifactstore"
"""The datastore that Azure shows the files of jobs in."""

_JOB_TYPES = {"Command": "command", "Sweep": "sweep", "Pipeline": "pipeline", "AutoML": "automl"}
_DISTRIBUTIONS = {"PyTorch": "pytorch", "Mpi": "mpi", "TensorFlow": "tensorflow", "Ray": "ray"}
_IDENTITIES = {"AMLToken": "aml_token", "Managed": "managed", "UserIdentity": "user_identity"}
_ALGORITHMS = {"Random": "random", "Grid": "grid", "Bayesian": "bayesian"}
_POLICIES = {
    "Bandit": "bandit",
    "MedianStopping": "median_stopping",
    "TruncationSelection": "truncation_selection",
}
_SERVICES = {
    "JupyterLab": "jupyter_lab",
    "SSH": "ssh",
    "TensorBoard": "tensor_board",
    "VSCode": "vs_code",
    "Custom": "custom",
}
_PRIORITIES = {1: "low", 2: "medium", 3: "high"}
_MODES = {
    "ReadOnlyMount": "ro_mount",
    "ReadWriteMount": "rw_mount",
    "Download": "download",
    "Upload": "upload",
    "Direct": "direct",
    "EvalMount": "eval_mount",
    "EvalDownload": "eval_download",
}
_RENAMED = {
    "code_id": "code",
    "environment_id": "environment",
    "compute_id": "compute",
    "component_id": "component",
}
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
    properties = check_mapping(body.get("properties"), "properties")
    kind = check_text(properties.get("jobType"), "properties.jobType")
    values = BodyReader(find_code).read_fields(properties, "")
    if _remove_local_mark(values):
        values.setdefault("compute", "local")
    return {"name": name, "type": _JOB_TYPES.get(kind, to_snake(kind)), **values}


def _remove_local_mark(values: dict[str, Any]) -> bool:
    """Remove the marks of a job for the local machine; return whether they were there."""
    resources = values.get("resources") or {}
    properties = resources.get("properties") or {}
    if not isinstance(properties, dict) or _IS_LOCAL not in properties:
        return False
    resources["properties"] = {key: item for key, item in properties.items() if key != _IS_LOCAL}
    if not any(resources.values()):
        del values["resources"]
    variables = values.get("environment_variables")
    if isinstance(variables, dict):
        variables.pop(_COMMON_RUNTIME, None)
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
            "distribution": lambda value, place: _read_kind(
                value, place, "distribution_type", _DISTRIBUTIONS
            ),
            "identity": lambda value, place: _read_kind(value, place, "identity_type", _IDENTITIES),
            "early_termination": lambda value, place: _read_kind(value, place, "policy_type", _POLICIES),
            "sampling_algorithm": _read_algorithm,
            "search_space": lambda value, place: _read_each(value, place, _read_expression),
            "objective": _read_part,
            "limits": _read_limits,
            "resources": _read_resources,
            "queue_settings": _read_queue_settings,
            "services": _read_services,
            "retry_settings": _read_part,
            "settings": _read_settings,
            "partition_keys": lambda value, _: json.loads(value) if isinstance(value, str) else value,
            "mini_batch_size": lambda value, _: str(value),
            "task": self._read_task,
            "trial": self._read_trial,
            "jobs": lambda value, place: _read_each(value, place, self._read_node),
        }

    def read_fields(self, given: object, place: str) -> dict[str, Any]:
        """Return the fields with the keys and values of YAML. ``place``: of the fields in the body."""
        values = {}
        for key, value in check_mapping(given, place or "properties").items():
            name = key if key.startswith("_") else to_snake(key)
            name = _RENAMED.get(name, name)
            if name in _SERVER_FIELDS:
                continue
            read = self._readers.get(name)
            values[name] = read(value, f"{place}.{name}".lstrip(".")) if read else value
        return values

    def _read_code(self, value: object, place: str) -> str:
        text = check_text(value, place)
        stored = read_code_id(text)
        return self._find_code(*stored) if stored else text

    def _read_node(self, value: object, place: str) -> dict[str, Any]:
        node = self.read_fields(value, place)
        node.pop("name", None)  # The key that it stands under.
        return node

    def _read_trial(self, value: object, place: str) -> Any:
        if isinstance(value, str):
            return read_reference(value)
        trial = self.read_fields(value, place)
        return trial["component"] if trial.keys() == {"component"} else trial

    def _read_task(self, value: object, place: str) -> dict[str, Any]:
        return self.read_fields(value, place)


def _read_each(value: object, place: str, read: Callable[[Any, str], Any]) -> dict[str, Any]:
    return {name: read(item, f"{place}.{name}") for name, item in check_mapping(value, place).items()}


def _read_part(value: object, place: str) -> dict[str, Any]:
    return {to_snake(key): item for key, item in check_mapping(value, place).items()}


def _read_kind(value: object, place: str, key: str, kinds: Mapping[str, str]) -> dict[str, Any]:
    """Return a part whose type stands under ``key``."""
    part = _read_part(value, place)
    kind = part.pop(key, None) or part.get("type")
    return part if kind is None else {**part, "type": kinds.get(kind, kind)}


def _read_input(value: object, place: str) -> Any:
    """Return a value, a binding, or data; a binding of a node may have a mode."""
    if not isinstance(value, dict):
        return value
    part = _read_part(value, place)
    kind = part.pop("job_input_type", None) or part.pop("type", None)
    mode = part.pop("mode", None)
    held = {"mode": _MODES.get(mode, mode)} if mode is not None else {}
    if kind == "literal":
        literal = part.pop("value", "")
        return {"path": literal, **held, **part} if held or part else literal
    path = part.pop("uri", None)
    given = {"path": read_path(check_text(path, f"{place}.uri"))} if path is not None else {}
    return {**({"type": kind} if kind else {}), **given, **held, **part}


def _read_output(value: object, place: str) -> Any:
    part = _read_part(value, place)
    kind = part.pop("job_output_type", None) or part.pop("type", None)
    if kind == "literal":
        return part.get("value", "")
    if kind is not None:
        part["type"] = kind
    for theirs, ours in (("uri", "path"), ("asset_name", "name"), ("asset_version", "version")):
        if theirs in part:
            part[ours] = part.pop(theirs)
    if isinstance(part.get("path"), str):
        part["path"] = read_path(part["path"])
    if "mode" in part:
        part["mode"] = _MODES.get(part["mode"], part["mode"])
    part.pop("description", None)
    return part


def _read_expression(value: object, place: str) -> Any:
    """Return a search space, which jobs have as a list of its type and its arguments, and nodes as YAML."""
    if not isinstance(value, list):
        return value
    kind = EXPRESSIONS.get(value[0]) if len(value) == 2 and isinstance(value[0], str) else None
    arguments = value[1] if kind else None
    fields = kind._fields[1:] if kind else ()
    if not isinstance(arguments, list) or len(arguments) != len(fields):
        what = f"{place}: {value!r} is not a search space"
        raise SpecError(what, 'such as ["uniform", [0.1, 0.9]]; the types: ' + ", ".join(EXPRESSIONS))
    made = {"type": value[0], **dict(zip(fields, arguments, strict=True))}
    if value[0] == "choice" and isinstance(made["values"], list):
        made["values"] = [_read_choice(item, place) for item in made["values"]]
    return made


def _read_choice(item: Any, place: str) -> Any:
    if not isinstance(item, dict):
        return item
    return {name: _read_expression(inner, f"{place}.{name}") for name, inner in item.items()}


def _read_algorithm(value: object, place: str) -> Any:
    if isinstance(value, str):
        return value
    return _read_kind(value, place, "sampling_algorithm_type", _ALGORITHMS)


def _read_limits(value: object, place: str) -> dict[str, Any]:
    part = _read_part(value, place)
    part.pop("job_limits_type", None)
    for key in ("timeout", "trial_timeout"):
        if key in part:
            part[key] = read_seconds(part[key], f"{place}.{key}")
    return part


def _read_resources(value: object, place: str) -> dict[str, Any]:
    part = _read_part(value, place)
    arguments = part.pop("docker_args_list", None)
    if arguments:
        part["docker_args"] = arguments
    return {key: item for key, item in part.items() if key != "properties" or item}


def _read_queue_settings(value: object, place: str) -> dict[str, Any]:
    part = _read_part(value, place)
    if isinstance(part.get("job_tier"), str):
        part["job_tier"] = part["job_tier"].lower()
    if isinstance(part.get("priority"), int):
        part["priority"] = _PRIORITIES.get(part["priority"], part["priority"])
    return part


def _read_services(value: object, place: str) -> dict[str, Any]:
    """Return the programs that a job asks for; the pages of a job that was fetched are none."""
    services = _read_each(value, place, _read_service)
    return {name: service for name, service in services.items() if service.get("type") not in _PAGES}


def _read_service(value: object, place: str) -> dict[str, Any]:
    service = _read_kind(value, place, "job_service_type", _SERVICES)
    properties = dict(service.pop("properties", None) or {})
    for theirs, ours in _SERVICE_PROPERTIES.items():
        if theirs in properties:
            service[ours] = properties.pop(theirs)
    if properties:
        service["properties"] = properties
    if isinstance(service.get("nodes"), dict):
        kind = check_mapping(service["nodes"], f"{place}.nodes")
        service["nodes"] = str(kind.get("nodesValueType") or kind.get("nodes_value_type") or kind).lower()
    return service


def _read_settings(value: object, place: str) -> dict[str, Any]:
    part = {key: item for key, item in _read_part(value, place).items() if key not in _SERVER_FIELDS}
    for key in ("default_compute", "default_datastore"):
        if key in part:
            part[key] = read_named(check_text(part[key], f"{place}.{key}"))
    return part


# writing


def write_job(described: Mapping[str, Any], workspace_id: str, pages: Mapping[str, str]) -> dict[str, Any]:
    """
    Return the body of a job, as ``show_job(name, is_whole=True)`` describes it.

    pages: the addresses of ``Tracking`` and ``Studio``. Code in a folder has the id ``codes/job.NAME/versions/1``: the
    client takes nothing but ids.
    """
    name, kind = str(described["name"]), str(described["type"])
    writer = _BodyWriter(workspace_id)
    properties = writer.write_fields({key: value for key, value in described.items() if value})
    outputs = {key: item for key, item in (described.get("outputs") or {}).items() if key != "default"}
    if properties.get("computeId", "").endswith("/computes/local"):
        del properties["computeId"]
        resources = properties.setdefault("resources", {"properties": {}})
        resources["properties"] = {**resources["properties"], _IS_LOCAL: {_IS_LOCAL: True}}
    properties |= {
        "jobType": {"sweep": "Sweep", "pipeline": "Pipeline"}.get(kind, "Command"),
        "isArchived": bool(described.get("archived")),
        "status": described.get("status"),
        "tags": dict(described.get("tags") or {}),
        "properties": dict(described.get("properties") or {}),
        "inputs": _write_each(described.get("inputs"), writer.write_input),
        "outputs": {key: _write_stored_output(item, name, key) for key, item in outputs.items()},
        "services": {**properties.get("services", {}), **_write_pages(pages)},
    }
    if kind == "pipeline":
        properties.setdefault("jobs", {})
        properties.setdefault("settings", {})
    else:
        program = properties.setdefault("trial", {}) if kind == "sweep" else properties
        program.setdefault("command", "")
        program.setdefault("environmentVariables", {})
        if read_code_id(program.get("codeId", "")) is None and "codeId" in program:
            program["codeId"] = f"{workspace_id}/codes/job.{name}/versions/1"
    return {
        "id": f"{workspace_id}/jobs/{name}",
        "name": name,
        "type": "Microsoft.MachineLearningServices/workspaces/jobs",
        "systemData": write_system_data(described.get("creation_context") or {}),
        "properties": properties,
    }


def write_system_data(creation: Mapping[str, Any]) -> dict[str, Any]:
    """Return who made something and when, from ``creation_context``."""
    made = rename_keys(creation)
    renamed = {"lastModifiedAt": made.get("lastModifiedAt") or made.get("createdAt")}
    return {**made, **{key: item for key, item in renamed.items() if item}}


def _write_pages(pages: Mapping[str, str]) -> dict[str, Any]:
    return {name: {"jobServiceType": name, "endpoint": address} for name, address in pages.items() if address}


_WRITTEN = (
    "display_name",
    "experiment_name",
    "description",
    "parent_job_name",
    "command",
    "code",
    "environment",
    "compute",
    "component",
    "distribution",
    "resources",
    "limits",
    "queue_settings",
    "identity",
    "environment_variables",
    "services",
    "trial",
    "search_space",
    "objective",
    "sampling_algorithm",
    "early_termination",
    "settings",
    "jobs",
)
"""The fields of a job file that a body has; what else ``drumline job show`` prints stays here."""

_IDS = {"code": "codeId", "environment": "environmentId", "compute": "computeId", "component": "componentId"}
_NODE_FIELDS = (
    *("display_name", "compute", "environment_variables", "early_termination"),
    *("distribution", "resources", "limits", "queue_settings", "identity", "services"),
)
_NODE_PARTS = ("distribution", "resources", "limits", "queueSettings", "identity", "earlyTermination")
_AS_WRITTEN = (
    *("tags", "properties", "comment", "retry_settings", "mini_batch_size", "logging_level", "input_data"),
    *("max_concurrency_per_instance", "error_threshold", "mini_batch_error_threshold", "partition_keys"),
)
ANONYMOUS = "azureml_anonymous"
"""The name that the client gives to components that have none."""


class _BodyWriter:
    """Writes the fields of a job, a trial or a node."""

    def __init__(self, workspace_id: str) -> None:
        self._workspace_id = workspace_id
        self._writers: dict[str, Callable[[Any], Any]] = {
            "compute": lambda value: write_named(value, workspace_id, "computes"),
            "component": lambda value: write_reference(value, workspace_id, "components"),
            "environment": lambda value: write_reference(value, workspace_id, "environments"),
            "distribution": lambda value: _write_kind(value, "distributionType", _DISTRIBUTIONS),
            "identity": lambda value: _write_kind(value, "identityType", _IDENTITIES),
            "early_termination": lambda value: _write_kind(value, "policyType", _POLICIES),
            "sampling_algorithm": _write_algorithm,
            "search_space": lambda value: _write_each(value, _write_expression),
            "objective": _write_objective,
            "limits": _write_limits,
            "resources": _write_resources,
            "queue_settings": _write_queue_settings,
            "services": _write_services,
            "environment_variables": lambda value: {key: str(item) for key, item in value.items()},
            "trial": self.write_fields,
            "settings": self._write_settings,
            "jobs": lambda value: {name: self._write_node(name, node) for name, node in value.items()},
        }

    def write_fields(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields with the keys and values of a body; an environment that is written out has no id."""
        fields = {}
        for key, value in values.items():
            if (
                key in _WRITTEN
                and value is not None
                and not (key == "environment" and isinstance(value, dict))
            ):
                write = self._writers.get(key)
                fields[_IDS.get(key) or to_camel(key)] = write(value) if write else value
        return fields

    def write_input(self, value: Any) -> dict[str, Any]:
        """Return an input: a value or a binding as text, or data."""
        path = value.get("path") if isinstance(value, dict) else None
        if path is None or "${{" in str(path):
            literal = path if path is not None else value.get("value") if isinstance(value, dict) else value
            mode = value.get("mode") if isinstance(value, dict) else None
            held = {"mode": _find_word(_MODES, mode)} if mode else {}
            return {"jobInputType": "literal", "value": str(literal), **held}
        kind = str(value.get("type") or "uri_folder").lower()
        collection = "models" if kind.endswith("_model") else "data"
        written = {"jobInputType": kind, "uri": write_reference(str(path), self._workspace_id, collection)}
        if value.get("mode"):
            written["mode"] = _find_word(_MODES, value["mode"])
        if value.get("path_on_compute"):
            written["pathOnCompute"] = value["path_on_compute"]
        return written

    def _write_settings(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a pipeline, which are in snake case in bodies too."""
        settings = dict(value)
        for key, collection in (("default_compute", "computes"), ("default_datastore", "datastores")):
            if settings.get(key):
                settings[key] = write_named(settings[key], self._workspace_id, collection)
        return settings

    def _write_node(self, name: str, node: Mapping[str, Any]) -> dict[str, Any]:
        """Return a node of a pipeline, in snake case; a program that is written out is an anonymous component."""
        kind = str(node.get("type") or "command")
        fields = self.write_fields({key: node[key] for key in _NODE_FIELDS if key in node})
        written: dict[str, Any] = {
            to_snake(key): _to_snake_keys(item) if key in _NODE_PARTS else item
            for key, item in fields.items()
        }
        for key in (
            "search_space",
            "objective",
            "sampling_algorithm",
            *(["limits"] if kind == "sweep" else []),
        ):
            if node.get(key):
                written[key] = node[key]
        if "compute_id" in written:
            written["computeId"] = written.pop("compute_id")
        called = node.get("trial") if kind == "sweep" else node.get("component")
        is_stored = isinstance(called, str) and called.startswith("azureml:")
        component = called if is_stored else f"azureml:{ANONYMOUS}:{name}"
        reference = {"componentId": write_reference(str(component), self._workspace_id, "components")}
        inputs = _write_each(node.get("inputs"), lambda item: _to_snake_keys(self.write_input(item)))
        outputs = _write_each(node.get("outputs"), _write_node_output)
        return {
            **written,
            "name": name,
            "type": kind,
            "inputs": inputs,
            "outputs": outputs,
            **({"trial": reference} if kind == "sweep" else reference),
            **{key: node[key] for key in _AS_WRITTEN if node.get(key) is not None},
        }


def _find_word(kinds: Mapping[Any, str], ours: Any) -> Any:
    """Return Azure's word for ours."""
    word = str(ours).lower()
    word = "ro_mount" if word == "mount" else word
    return next((theirs for theirs, known in kinds.items() if known == word), ours)


def _to_snake_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    return {to_snake(key): item for key, item in values.items()}


def _write_each(values: Mapping[str, Any] | None, write: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: write(item) for name, item in (values or {}).items() if item is not None}


def _write_kind(value: Mapping[str, Any], key: str, kinds: Mapping[str, str]) -> dict[str, Any]:
    part = rename_keys({name: item for name, item in value.items() if name != "type"})
    return {key: _find_word(kinds, value.get("type")), **part}


def _write_algorithm(value: Any) -> dict[str, Any]:
    given = {"type": value} if isinstance(value, str) else value
    return _write_kind(given, "samplingAlgorithmType", _ALGORITHMS)


def _write_expression(value: Mapping[str, Any]) -> list[Any]:
    kind = str(value["type"]).lower()
    arguments = [value.get(name) for name in EXPRESSIONS[kind]._fields[1:]]
    if kind == "choice":
        arguments = [[_write_choice(item) for item in arguments[0] or ()]]
    return [kind, arguments]


def _write_choice(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    return {
        name: _write_expression(inner) if isinstance(inner, dict) else inner for name, inner in item.items()
    }


def _write_objective(value: Mapping[str, Any]) -> dict[str, Any]:
    written = rename_keys(value)
    return {**written, "goal": str(written.get("goal")).capitalize()}


def _write_limits(value: Mapping[str, Any]) -> dict[str, Any]:
    times = {
        key: write_seconds(value[key]) for key in ("timeout", "trial_timeout") if value.get(key) is not None
    }
    is_sweep = any(key.endswith("_trials") or key == "trial_timeout" for key in value)
    return {"jobLimitsType": "Sweep" if is_sweep else "Command", **rename_keys({**value, **times})}


def _write_resources(value: Mapping[str, Any]) -> dict[str, Any]:
    arguments = value.get("docker_args")
    written = rename_keys(value)
    if isinstance(arguments, list):
        written["dockerArgsList"] = written.pop("dockerArgs")
    return {"properties": {}, **written}


def _write_queue_settings(value: Mapping[str, Any]) -> dict[str, Any]:
    written = rename_keys(value)
    if "jobTier" in written:
        written["jobTier"] = str(written["jobTier"]).capitalize()
    if "priority" in written:
        written["priority"] = _find_word(_PRIORITIES, written["priority"])
    return written


def _write_services(value: Mapping[str, Any]) -> dict[str, Any]:
    asked = {
        name: service
        for name, service in value.items()
        if service.get("type") not in (*_PAGES, "Notifications")
    }
    return _write_each(asked, _write_service)


def _write_service(value: Mapping[str, Any]) -> dict[str, Any]:
    kind = str(value.get("type") or "custom")
    words = {known.replace("_", "").lower(): theirs for theirs, known in _SERVICES.items()}
    properties = {theirs: value[ours] for theirs, ours in _SERVICE_PROPERTIES.items() if value.get(ours)}
    written = rename_keys({key: value.get(key) for key in ("endpoint", "port", "status")})
    if value.get("error"):
        written["errorMessage"] = value["error"]
    if value.get("nodes"):
        written["nodes"] = {"nodesValueType": str(value["nodes"]).capitalize()}
    if properties or value.get("properties"):
        written["properties"] = {**(value.get("properties") or {}), **properties}
    return {"jobServiceType": words.get(kind.replace("_", "").lower(), kind), **written}


def _write_output(value: Mapping[str, Any]) -> dict[str, Any]:
    names = {"path": "uri", "name": "assetName", "version": "assetVersion", "type": "jobOutputType"}
    written = rename_keys({"type": "uri_folder", **value}, names)
    if "mode" in written:
        is_mounted = str(written["mode"]).lower() in ("mount", "rw_mount")
        written["mode"] = "ReadWriteMount" if is_mounted else _find_word(_MODES, written["mode"])
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
    if isinstance(value, str):
        return {"type": "literal", "value": value}
    return _to_snake_keys(_write_output(value))
