"""
v1's ``ScriptRunConfig`` and what it is as a job of today; and the estimators, which it took the place of.

Source: https://learn.microsoft.com/python/api/azureml-core/azureml.core.scriptrunconfig and
https://learn.microsoft.com/python/api/azureml-train-core/azureml.train.dnn
"""

from __future__ import annotations

import os
import re

from drumline.compat.run_configuration import configuration
from drumline.compat.run_configuration.configuration import RunConfiguration
from drumline.compat.run_configuration.environment import (
    Environment,
    MpiConfiguration,
    PyTorchConfiguration,
    TensorflowConfiguration,
    to_environment,
)
from drumline.contract.errors import SpecError
from drumline.spec.entity import read_signature, whole
from drumline.spec.hints import did_you_mean
from drumline.spec.jobs.command import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from drumline.spec.parts.io import Input, Output


# Keyword arguments that the classes of older SDKs never had: a typo makes another job of it.


def refuse_unknown(given: Iterable[str], kind: type, unused: tuple[str, ...] = ()) -> None:
    """
    Raise SpecError for the first keyword that neither the constructors of ``kind`` nor ``unused`` have.

    ``unused``: what the older SDK knows and says nothing here. Private keywords, with an underscore, pass.
    """
    for name in given:
        if name in unused or name.startswith("_"):
            continue
        known = (*_list_keywords(kind), *unused)
        if name not in known:
            raise SpecError(f"unknown keyword {name!r} in {kind.__name__}", did_you_mean(name, known))


def _list_keywords(kind: type) -> list[str]:
    """List the keywords of a class's constructor, and of those that it extends."""
    parameters = [
        one
        for base in kind.__mro__[:-1]
        if "__init__" in vars(base)
        for one in read_signature(vars(base)["__init__"]).parameters.values()
    ]
    return [one.name for one in parameters if one.name != "self" and one.kind != one.VAR_KEYWORD]


# Arguments as one line of shell, in which ``$NAME`` is still a variable of the rank, as v1 has it.

_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
_VARIABLE = re.compile(r"(\$(?:\{[A-Za-z_]\w*\}|[A-Za-z_]\w*))", re.ASCII)
_OPERATORS = frozenset(("&&", "||", ";", "|", "&", ">", ">>", "<", "2>", "2>>", "2>&1", "(", ")", "{", "}"))
_PLACEHOLDER = re.compile(r"\{\{|\{(?:inputs|outputs|search_space)\.|\[\[")


def word(text: str) -> str:
    """
    Return the argument as one word, whatever characters it has; ``$NAME`` and ``${NAME}`` alone mean something.

    >>> print(word("a b"), word("$AZ_BATCHAI_TASK_INDEX"), word("it's"))
    'a b' "$AZ_BATCHAI_TASK_INDEX" 'it'"'"'s'
    """
    if _PLAIN.fullmatch(text):
        return text
    if not _VARIABLE.search(text):
        return "'" + _apart(text.replace("'", "'\"'\"'"), "''") + "'"
    # Every second part is a variable.
    parts = [
        part if index % 2 else _apart(re.sub(r'([\\`"$])', r"\\\1", part), '""')
        for index, part in enumerate(_VARIABLE.split(text))
    ]
    return '"' + "".join(parts) + '"'


def line(words: Iterable[str]) -> str:
    """Return the line of a command that was given as a list; an operator of the shell, such as ``&&``, stays one."""
    return " ".join(text if text in _OPERATORS else word(text) for text in words)


def _apart(text: str, nothing: str) -> str:
    """Cut user's text that looks like a placeholder of today's, so that only the shell puts it together."""
    if not _PLACEHOLDER.search(text):
        return text
    return text.replace("{", "{" + nothing).replace("[", "[" + nothing)


_REFERENCE = re.compile(r"\$\{?AZURE_ML_INPUT_(\w+)")
NO_LIMIT_S = 2592000
"""``max_run_duration_seconds`` of who states none: 30 days."""


class ScriptRunConfig:
    """
    A script or a command to run. ``script`` is run with ``python`` in ``source_directory``; ``command`` instead of it
    is a line of shell, or a list of words. What the keywords say is kept in ``run_config``, which may be changed until
    it is submitted.
    """

    def __init__(  # noqa: PLR0913 - azureml's signature
        self,
        source_directory: str | os.PathLike[str] | None = None,
        script: str | os.PathLike[str] | None = None,
        arguments: Any = None,
        run_config: RunConfiguration | None = None,
        _telemetry_values: Any = None,
        compute_target: Any = None,
        environment: Environment | None = None,
        distributed_job_config: Any = None,
        resume_from: Any = None,
        max_run_duration_seconds: Any = NO_LIMIT_S,
        command: Any = None,
        docker_runtime_config: Any = None,
    ) -> None:
        config = run_config if run_config is not None else RunConfiguration()
        self.run_config = config
        self.source_directory = os.fspath(source_directory or config.source_directory or ".")
        self.script = os.fspath(script) if script else config.script
        self.command = command or config.command
        if arguments is not None and not isinstance(arguments, (list, tuple)):
            raise SpecError(
                f"arguments must be a list, got {type(arguments).__name__}", "arguments=['--epochs', 3]"
            )
        self.arguments: list[Any] = list(config.arguments if arguments is None else arguments)
        self.resume_from = resume_from
        self.max_run_duration_seconds = max_run_duration_seconds
        if script and command:
            raise SpecError("script and command exclude each other", "give one of the two")
        if not self.script and not self.command:
            raise SpecError("a ScriptRunConfig needs a script or a command")
        if not isinstance(self.command or "", (str, list, tuple)):
            raise SpecError(
                f"command must be text or a list, got {type(command).__name__}",
                "command=['python', 'train.py']",
            )
        if command:
            self.script = None
        if compute_target is not None:
            config.target = compute_target
        if environment is not None:
            config.environment = environment
        if docker_runtime_config is not None:
            config.docker = docker_runtime_config
        if distributed_job_config is not None:
            configuration.apply_distributed_job(config, distributed_job_config)


def to_command(config: ScriptRunConfig, words: Words | None = None) -> Command:
    """Return the job; nothing is read from disk. ``words``: what makes text of its arguments. Raises SpecError."""
    words = words if words is not None else Words()
    run_config = config.run_config
    distribution, nodes = configuration.distribution_of(run_config)
    environment, warnings = _environment_of(run_config)
    for reference in (run_config.data_references or {}).values():
        words.text(reference)
    exports = "".join(words.data(name, given) for name, given in (run_config.data or {}).items())
    line = exports + _command_line(config, words)
    for name in _REFERENCE.findall(line):
        if name not in words.inputs:
            raise SpecError(
                f"an argument is the text of data {name!r}, which is not in run_config.data_references",
                "give the data itself: arguments=['--data', data]",
            )
    job = Command(
        command=line,
        code=config.source_directory,
        environment=environment,
        environment_variables=_variables_of(run_config),
        compute=_target_name(run_config.target),
        distribution=distribution,
        inputs=words.inputs,
        outputs=words.outputs,
    )
    if nodes > 1 or distribution is not None:
        job.set_resources(instance_count=nodes)
    for docker in (getattr(run_config.environment, "docker", None), run_config.docker):
        size, docker_args = getattr(docker, "shm_size", None), getattr(docker, "arguments", None)
        if size or docker_args:
            job.set_resources(shm_size=size or None, docker_args=list(docker_args or ()) or None)
    seconds = _seconds(config.max_run_duration_seconds, run_config.max_run_duration_seconds)
    if seconds:
        job.set_limits(timeout=seconds)
    if config.resume_from is not None:
        warnings.append("resume_from: not used; give the earlier run's outputs as an input")
    job._warnings += [*run_config._warnings, *warnings]
    return job


class Words:
    """Arguments as text; data among them becomes inputs and outputs of the job."""

    def __init__(self) -> None:
        self.inputs: dict[str, Input] = {}
        self.outputs: dict[str, Output] = {}
        self._names: dict[int, str] = {}
        """Of what was given none, by identity: the same data twice is one."""

    def text(self, value: Any) -> str:
        """Return one word for the shell."""
        if hasattr(value, "_as_input"):
            return self._data(value, self.inputs, value._as_input(), "inputs")
        if hasattr(value, "_as_output"):
            return self._data(value, self.outputs, value._as_output(), "outputs")
        return word(_plain(value))

    def data(self, name: str, given: Any) -> str:
        """Add an input of ``run_config.data``; return what the shell sets so that a rank finds it. Raises SpecError."""
        if not hasattr(given, "_as_input"):
            raise SpecError(
                f"run_config.data[{name!r}] cannot be of type {type(given).__name__!r}",
                "give Data(DataLocation(dataset=dataset))",
            )
        self.inputs[str(name)] = given._as_input()
        variable = getattr(given, "environment_variable_name", None)
        if variable and not re.fullmatch(r"[A-Za-z_]\w*", variable, re.ASCII):
            raise SpecError(f"environment_variable_name: {variable!r} cannot be a variable's name")
        return f'export {variable}="${{{{inputs.{name}}}}}"; ' if variable else ""

    def _data(self, value: Any, known: dict[str, Any], made: Any, group: str) -> str:
        unnamed = self._names.get(id(value), f"{group[:-1]}_{len(known)}")
        name = self._names[id(value)] = str(getattr(value, "name", None) or unnamed)
        before = known.setdefault(name, made)
        if before != made:
            raise SpecError(
                f"two different {group} have the name {name!r}", "as_named_input('...') names them apart"
            )
        return f"${{{{{group}.{name}}}}}"


def _command_line(config: ScriptRunConfig, words: Words) -> str:
    if config.command is None or config.command == "":
        assert config.script is not None
        return " ".join(["python", word(config.script), *map(words.text, config.arguments)])
    if isinstance(config.command, str):
        return " ".join([config.command, *map(words.text, config.arguments)])
    if len(config.command) == 1 and isinstance(config.command[0], str) and " " in config.command[0].strip():
        # No program's name has a blank: it is a line.
        return " ".join([config.command[0], *map(words.text, config.arguments)])
    listed = [*config.command, *config.arguments]
    return " ".join(line([one]) if isinstance(one, str) else words.text(one) for one in listed)


def _plain(value: Any) -> str:
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, str) or hasattr(value, "__float__"):  # NumPy's numbers too
        return str(value)
    hint = (
        "as_mount() or as_download() of it"
        if hasattr(value, "as_mount")
        else "text, a number, a path or data"
    )
    raise SpecError(f"an argument cannot be of type {type(value).__name__!r}", f"give {hint}")


def _environment_of(config: RunConfiguration) -> tuple[Any, list[str]]:
    given = config.environment
    if given is None or isinstance(given, str):
        return given, []
    if not isinstance(given, Environment):
        raise SpecError(
            f"environment cannot be of type {type(given).__name__!r}", "give drumline.v1's Environment(...)"
        )
    return to_environment(given)


def _variables_of(config: RunConfiguration) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for given in (getattr(config.environment, "environment_variables", None), config.environment_variables):
        if not isinstance(given or {}, dict):
            raise SpecError(
                f"environment_variables must be a dict, got {type(given).__name__}",
                "environment_variables={'NAME': 'value'}",
            )
        found |= given or {}
    return found


def _target_name(target: Any) -> str:
    """Return the name of a compute, given as such or as an object; none is this machine, as in v1."""
    if target is None:
        return "local"
    name = target if isinstance(target, str) else getattr(target, "name", None)
    if not isinstance(name, str):
        raise SpecError(f"compute_target cannot be of type {type(target).__name__!r}", "give its name")
    return name or "local"


def _seconds(*given: Any) -> int | None:
    for value in given:
        number: Any = whole(value)
        if number is None or number == NO_LIMIT_S:
            continue
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise SpecError(f"max_run_duration_seconds must be a number of seconds, got {value!r}")
        return int(number)
    return None


_PACKAGES = (
    "conda_packages", "pip_packages", "conda_dependencies_file", "conda_dependencies_file_path",
    "pip_requirements_file", "pip_requirements_file_path",
)  # fmt: skip
_SAYS_NOTHING = ("use_gpu", "use_docker", "user_managed", "framework_version", "vm_size", "vm_priority")
UNUSED = (
    *_PACKAGES, *_SAYS_NOTHING, "custom_docker_base_image", "image_registry_details",
    "source_directory_data_store", "resume_from",
)  # fmt: skip
"""Keywords that azureml's estimators know, and that change nothing here."""


class Mpi(MpiConfiguration):
    """The older name of MpiConfiguration, without the number of nodes."""

    def __init__(self, process_count_per_node: int = 1) -> None:
        super().__init__(process_count_per_node)


class ParameterServer(TensorflowConfiguration):
    """The older name of TensorflowConfiguration."""

    def __init__(self, worker_count: int = 1, parameter_server_count: int = 1) -> None:
        super().__init__(worker_count, parameter_server_count)


class Gloo:
    """One process a node, which find each other by PyTorch's variables."""


class Nccl(Gloo):
    """A distribution with NCCL, otherwise as Gloo."""


class Estimator(ScriptRunConfig):
    """
    A script to train with. ``entry_script`` in ``source_directory``, with ``script_params`` as its arguments: a value
    of ``''`` is a flag.

    ``distributed_training``: MpiConfiguration(), Gloo(), Nccl(), TensorflowConfiguration() or their older names;
    ``distributed_backend`` is the word for it. Raises SpecError for a keyword that azureml does not know.
    """

    def __init__(  # noqa: PLR0913 - azureml's signature
        self,
        source_directory: Any,
        *,
        compute_target: Any = None,
        entry_script: str | None = None,
        script_params: dict[str, Any] | None = None,
        node_count: int = 1,
        process_count_per_node: int = 1,
        distributed_backend: str | None = None,
        distributed_training: Any = None,
        environment_variables: dict[str, Any] | None = None,
        environment_definition: Any = None,
        custom_docker_image: str | None = None,
        inputs: list[Any] | None = None,
        shm_size: str | None = None,
        max_run_duration_seconds: Any = NO_LIMIT_S,
        worker_count: int = 1,
        parameter_server_count: int = 1,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(kwargs, type(self), UNUSED)
        config = RunConfiguration()
        if environment_definition is not None:
            config.environment = environment_definition
        if custom_docker_image:
            config.environment.docker.base_image = custom_docker_image
        config.environment_variables = dict(environment_variables or {})
        config.docker.shm_size = shm_size
        config.node_count = node_count
        for one in inputs or ():
            config.data_references[str(getattr(one, "name", len(config.data_references)))] = one
        config._warnings += _list_unused(kwargs)
        workers = TensorflowConfiguration(worker_count, parameter_server_count)
        super().__init__(
            source_directory,
            entry_script,
            _arguments(script_params or {}),
            config,
            compute_target=compute_target,
            distributed_job_config=_distribution(
                distributed_training or distributed_backend, node_count, process_count_per_node, workers
            ),
            max_run_duration_seconds=max_run_duration_seconds,
        )


class PyTorch(Estimator):
    """
    An estimator of PyTorch's. ``framework_version`` has no effect: PyTorch is that of the Python that runs the job.
    """


class TensorFlow(Estimator):
    """
    An estimator of TensorFlow's. ``framework_version`` has no effect: TensorFlow is that of the Python that runs the
    job.
    """


class Chainer(Estimator):
    """An estimator of Chainer's, as PyTorch."""


class SKLearn(Estimator):
    """An estimator of scikit-learn's, as PyTorch."""


def _arguments(params: dict[str, Any]) -> list[Any]:
    """
    Return the words of a command line for parameters.

    >>> _arguments({"--lr": 0.1, "--verbose": ""})
    ['--lr', 0.1, '--verbose']
    """
    return [word for pair in params.items() for word in pair if not (isinstance(word, str) and not word)]


def _distribution(given: Any, nodes: int, per_node: int, workers: TensorflowConfiguration) -> Any:
    """Return the distribution for ScriptRunConfig. Raises SpecError."""
    word = str(given).lower() if isinstance(given, str) else ""
    if isinstance(given, MpiConfiguration) or word in ("mpi", "horovod"):
        count = given.process_count_per_node if isinstance(given, MpiConfiguration) else per_node
        return MpiConfiguration(count if count != 1 else per_node, nodes)
    if isinstance(given, (Gloo, PyTorchConfiguration)) or word in ("gloo", "nccl"):
        count = getattr(given, "process_count", None) or nodes * per_node
        return PyTorchConfiguration(word or "Nccl", count, nodes)
    if isinstance(given, TensorflowConfiguration):
        return given
    if word == "ps":
        return workers
    if given is None:
        return None
    if not isinstance(given, str):
        raise SpecError(
            f"distributed_training cannot be of type {type(given).__name__!r}", "give MpiConfiguration()"
        )
    raise SpecError(f"distributed_backend: {given!r} is not known", "one of 'mpi', 'gloo', 'nccl', 'ps'")


def _list_unused(given: dict[str, Any]) -> list[str]:
    said = []
    for key, value in given.items():
        if value in (None, False, [], "") or key in _SAYS_NOTHING:
            continue
        what = "not built; the Python that runs the job needs them" if key in _PACKAGES else "not used"
        said.append(f"{key}: {what}")
    return said
