"""A job as plain data with the keys of YAML, and as YAML that loads back to the same job."""

from __future__ import annotations

import os

from drumline.spec.bindings import PATTERN
from drumline.spec.entity import Entity
from drumline.spec.environment import Environment
from drumline.spec.io import Input, Output
from drumline.spec.paths import is_remote, resolve
from drumline.spec.services import FoundService

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

    from drumline.spec.job import Job

_INPUT_KEYS = ("type", "path", "mode", "path_on_compute", "datastore")
_NOT_IN_YAML = {"Output": ("description",), "Environment": ("properties",)}


def to_dict(job: Job, *, absolute: bool = False) -> dict[str, Any]:
    """
    The job as a mapping that JSON can hold, without what is not set.

    absolute: write local paths in full, for a file that is to lie elsewhere.
    """
    values = plain(job)
    assert isinstance(values, dict)
    if job._comment:
        values["comment"] = job._comment
    component = values.get("component")
    if absolute and isinstance(component, str) and not component.startswith("azureml:"):
        values["component"] = resolve(job, component)
    jobs = getattr(job, "jobs", None)
    if jobs:
        values["jobs"] = nodes_to_dict(jobs, job.base_path, absolute=absolute)
    settle(values, job, absolute=absolute)
    if isinstance(values.get("task"), dict):
        settle_task(values["task"], job, absolute=absolute)
    if job.type == "sweep":
        from drumline.spec.trial import settled

        settled(values, job, absolute=absolute)  # type: ignore[arg-type]
    return values


def settle(values: dict[str, Any], owner: Any, *, absolute: bool) -> None:
    """Environment and paths of a job, or of the trial of one."""
    environment = getattr(owner, "environment", None)
    if isinstance(environment, Environment):
        is_elsewhere = bool(environment._base_path) and environment._base_path != owner._base_path
        pin_environment(values["environment"], environment, always=absolute or is_elsewhere)
    elif isinstance(environment, str):
        values["environment"] = _reference(environment)
    if absolute:
        _pin_paths(values, owner)


def settle_task(values: dict[str, Any], owner: Any, *, absolute: bool) -> None:
    """Environment and code of the task of a parallel job, or component."""
    environment = owner.task.environment
    if isinstance(environment, Environment):
        whose = environment if environment._base_path else owner
        is_elsewhere = bool(environment._base_path) and environment._base_path != owner._base_path
        pin_environment(values["environment"], whose, always=absolute or is_elsewhere)
    elif isinstance(environment, str):
        values["environment"] = _reference(environment)
    if absolute and isinstance(values.get("code"), str) and not is_remote(values["code"]):
        values["code"] = resolve(owner, values["code"])


def nodes_to_dict(jobs: dict[str, Any], base_path: str, *, absolute: bool) -> dict[str, Any]:
    """The nodes of a pipeline that lies in ``base_path``; one from another folder has its paths in full."""
    return {
        name: to_dict(node, absolute=absolute or node.base_path != base_path) for name, node in jobs.items()
    }


def to_yaml(job: Job, *, absolute: bool = False) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Text of several lines as a block, as people write commands."""

    def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.ignore_aliases = lambda self, data: True  # type: ignore[method-assign]
    Dumper.add_representer(str, represent_text)
    values = to_dict(job, absolute=absolute)
    return yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10_000)


def write(job: Job, dest: str | os.PathLike[str] | IO[str], *, overwrite: bool = True) -> None:
    """
    Write the job as YAML; local paths in full when the file lies in another folder than the
    job's.
    """
    if not isinstance(dest, (str, os.PathLike)):
        dest.write(to_yaml(job))
        return
    folder = os.path.dirname(os.path.abspath(dest))
    text = to_yaml(job, absolute=folder != job.base_path)
    with open(dest, "w" if overwrite else "x", encoding="utf-8") as file:
        file.write(text)


def plain(value: Any) -> Any:
    if isinstance(value, Input):
        return _plain_input(value)
    if isinstance(value, Entity):
        whole = value._plain()
        if whole is not None:
            return whole
        hidden = _NOT_IN_YAML.get(type(value).__name__, ())
        fields = {key: plain(item) for key, item in value._values().items() if key not in hidden}
        return {key: item for key, item in fields.items() if not _is_unset(value, key, item)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items() if not isinstance(item, FoundService)}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value)


def _plain_input(value: Input) -> dict[str, Any]:
    values = value._values()
    if isinstance(value.type, str) and value.type in ("string", "integer", "number", "boolean"):
        return values
    return {key: values[key] for key in _INPUT_KEYS if key in values}


def _is_unset(owner: Entity, key: str, value: Any) -> bool:
    return value == {} and not isinstance(owner, (Output, Environment)) and key != "environment"


def _reference(environment: str) -> str:
    is_written_out = environment.startswith(("azureml:", "file:"))
    return environment if is_written_out else f"azureml:{environment}"


def pin_environment(values: dict[str, Any], environment: Environment, *, always: bool) -> None:
    if not always:
        return
    if isinstance(values.get("conda_file"), str):
        values["conda_file"] = resolve(environment, values["conda_file"])
    build = values.get("build") or {}
    if isinstance(build.get("path"), str):
        build["path"] = resolve(environment, build["path"])


def _pin_paths(values: dict[str, Any], job: Job) -> None:
    code = values.get("code")
    if isinstance(code, str) and not is_remote(code):
        values["code"] = resolve(job, code)
    for group in ("inputs", "outputs"):
        for item in (values.get(group) or {}).values():
            path = item.get("path") if isinstance(item, dict) else None
            if isinstance(path, str) and not PATTERN.search(path):
                item["path"] = resolve(job, path)
