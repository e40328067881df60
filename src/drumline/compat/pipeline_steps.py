"""
v1's pipeline steps, and the pipeline of today that they are.

Source: https://learn.microsoft.com/python/api/azureml-pipeline-steps/azureml.pipeline.steps
"""

from __future__ import annotations

import re
from copy import copy

from drumline.azure import NotSupportedError
from drumline.compat.run_configuration.configuration import RunConfiguration
from drumline.compat.run_configuration.environment import MpiConfiguration
from drumline.compat.script_run_config import UNUSED, ScriptRunConfig, Words, refuse_unknown, to_command
from drumline.contract.errors import SpecError
from drumline.spec.jobs.pipeline import PipelineJob, PipelineJobSettings
from drumline.spec.parts.io import Input, Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from drumline.spec.jobs.command import Command


# Data that goes from step to step in v1's pipelines, and the pipelines' parameters.
#
# Source: https://learn.microsoft.com/python/api/azureml-pipeline-core/azureml.pipeline.core.pipelinedata


class PipelineData:
    """
    Data that the step writes which has it among its ``outputs``, and that others read. A folder that is there when the
    step starts; ``is_directory=False``: a file.
    """

    def __init__(  # noqa: PLR0913 - azureml's signature
        self,
        name: str,
        datastore: Any = None,
        output_name: str | None = None,
        output_mode: str = "mount",
        output_path_on_compute: str | None = None,
        output_overwrite: bool | None = None,
        data_type: str | None = None,
        is_directory: bool | None = None,
        pipeline_output_name: str | None = None,
        training_output: Any = None,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(kwargs, type(self))
        if not isinstance(name, str) or not name:
            raise SpecError(f"the name of PipelineData must be text, got {name!r}")
        self.name = name
        self.datastore = datastore
        self._output_name = output_name or name
        self._type = "uri_file" if is_directory is False else "uri_folder"
        self._mode = "upload" if output_mode == "upload" else "rw_mount"

    def as_mount(self, *args: Any, **kwargs: Any) -> PipelineData:
        return self

    as_dataset = as_mount

    def as_download(self, *args: Any, **kwargs: Any) -> Passed:
        return Passed(self, mode="download")

    def as_input(self, input_name: str | None = None) -> Passed:
        return Passed(self, input_name)

    as_named_input = as_input

    def _as_output(self) -> Output:
        return Output(type=self._type, mode=self._mode)

    def __getattr__(self, name: str) -> Any:
        return refuse_table(self, name)

    def __str__(self) -> str:
        return f"$AZUREML_DATAREFERENCE_{self.name}"

    def __repr__(self) -> str:
        return f"PipelineData({self.name!r})"


def refuse_table(owner: object, name: str) -> Any:
    """Raise NotSupportedError for a method that reads tables, AttributeError for any other."""
    if name.startswith(("parse_", "read_")):
        raise NotSupportedError(name, "tabular")
    raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")


class Passed:
    """Data of an earlier step as an input of a later one. ``source``: PipelineData, or an OutputFileDatasetConfig."""

    def __init__(self, source: Any, name: str | None = None, mode: str | None = None) -> None:
        self.source = source
        self.name = name
        self.mode = mode

    def as_mount(self, *args: Any, **kwargs: Any) -> Passed:
        return Passed(self.source, self.name)

    as_direct = as_hdfs = as_mount

    def as_download(self, *args: Any, **kwargs: Any) -> Passed:
        return Passed(self.source, self.name, mode="download")

    def as_named_input(self, name: str) -> Passed:
        return Passed(self.source, name, self.mode)


class PipelineParameter:
    """A value, or data, that ``submit(pipeline_parameters={name: value})`` can change."""

    def __init__(self, name: str, default_value: Any) -> None:
        self.name = name
        self.default_value = default_value

    @staticmethod
    def to_today(value: Any) -> Any:
        """Return data as an input of today, anything else as it is."""
        data = value if hasattr(value, "_as_input") or not hasattr(value, "as_mount") else value.as_mount()
        return data._as_input() if hasattr(data, "_as_input") else value

    def __repr__(self) -> str:
        return f"PipelineParameter(name={self.name!r}, default_value={self.default_value!r})"


def identifier(text: str) -> str:
    """
    Return a name as a key of today's jobs has it.

    >>> identifier("Train model-1"), identifier("1st")
    ('Train_model_1', '_1st')
    """
    made = re.sub(r"\W", "_", text, flags=re.ASCII)
    return made if not made[:1].isdigit() else f"_{made}"


_REFERENCE = re.compile(r"\$\{?AZUREML_DATAREFERENCE_(\w+)\}?")
_DONE = "done"
"""The output by which a step that is to run after another one knows of its end."""


class PythonScriptStep:
    """
    A Python script as a step. ``script_name`` in ``source_directory``, with ``arguments``. Data that is in ``outputs``
    is written, all other data is read. ``allow_reuse=False``: the step runs again whatever has run before.

    Raises SpecError for a keyword that azureml does not know.
    """

    _unused: tuple[str, ...] = ()
    """Keywords that azureml knows, and that change nothing here but a warning."""

    def __init__(  # noqa: PLR0913 - azureml's signature
        self,
        script_name: str | None = None,
        name: str | None = None,
        arguments: list[Any] | None = None,
        compute_target: Any = None,
        runconfig: RunConfiguration | None = None,
        runconfig_pipeline_params: dict[str, Any] | None = None,
        inputs: list[Any] | None = None,
        outputs: list[Any] | None = None,
        params: dict[str, Any] | None = None,
        source_directory: str | None = None,
        allow_reuse: bool = True,
        version: str | None = None,
        hash_paths: Any = None,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(kwargs, type(self), self._unused)
        self._command: Any = None
        self._distribution: Any = None
        self.name = str(name or script_name or "step")
        self.script_name = script_name
        self.arguments = list(arguments or [])
        self.compute_target = compute_target
        self.runconfig = runconfig
        self.inputs = list(inputs or [])
        self.outputs = list(outputs or [])
        self.params = dict(params or {})
        self.source_directory = source_directory
        self.allow_reuse = allow_reuse
        self._after: list[PythonScriptStep] = []
        for one in _written_by(self):
            if not isinstance(one, PipelineData) and not _is_output_config(one):
                raise SpecError(
                    f"outputs of step {self.name!r} cannot have a {type(one).__name__}",
                    "give PipelineData(name) or OutputFileDatasetConfig(name)",
                )
            one._producer = self
        self._warnings = [
            f"{key}: not used" for key, value in kwargs.items() if value not in (None, False, [], {})
        ]
        if runconfig_pipeline_params:
            self._warnings.append(
                "runconfig_pipeline_params: not used; give the values in the run configuration"
            )

    def run_after(self, step: PythonScriptStep) -> None:
        self._after.append(step)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class CommandStep(PythonScriptStep):
    """
    A command as a step. ``command``: a line of shell, or a list of words, in the place of a script; ``runconfig`` may
    have it too.
    """

    def __init__(self, command: Any = None, name: str | None = None, **kwargs: Any) -> None:
        runconfig = kwargs.get("runconfig")
        if isinstance(runconfig, ScriptRunConfig):
            command = command or runconfig.command
            kwargs["source_directory"] = kwargs.get("source_directory") or runconfig.source_directory
            kwargs["runconfig"] = runconfig.run_config
        super().__init__(name=name or "command", **kwargs)
        self._command = command


class MpiStep(PythonScriptStep):
    """A script under MPI: ``process_count_per_node`` ranks on each of ``node_count`` nodes."""

    _unused = (*UNUSED, "custom_docker_image", "environment_definition", "environment_variables", "shm_size")

    def __init__(
        self,
        name: str | None = None,
        source_directory: str | None = None,
        script_name: str | None = None,
        arguments: list[Any] | None = None,
        compute_target: Any = None,
        node_count: int | None = None,
        process_count_per_node: int | None = None,
        **kwargs: Any,
    ) -> None:
        environment = kwargs.pop("environment_definition", None)
        if environment is not None:
            kwargs["runconfig"] = RunConfiguration()
            kwargs["runconfig"].environment = environment
        super().__init__(
            script_name, name, arguments, compute_target, source_directory=source_directory, **kwargs
        )
        self._distribution = MpiConfiguration(process_count_per_node or 1, node_count or 1)


class EstimatorStep(PythonScriptStep):
    """An estimator as a step; ``estimator_entry_script_arguments`` are the script's."""

    def __init__(
        self,
        name: str | None = None,
        estimator: Any = None,
        estimator_entry_script_arguments: list[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(estimator, ScriptRunConfig):
            raise SpecError(
                f"estimator must be an Estimator, not a {type(estimator).__name__}",
                "estimator=Estimator(...)",
            )
        given = estimator_entry_script_arguments
        kwargs.setdefault("arguments", estimator.arguments if given is None else given)
        kwargs.setdefault("compute_target", estimator.run_config.target)
        super().__init__(
            estimator.script,
            name,
            source_directory=estimator.source_directory,
            runconfig=estimator.run_config,
            **kwargs,
        )


class StepSequence:
    """Steps that run one after the other; a list among them runs at once."""

    def __init__(self, steps: list[Any] | None = None) -> None:
        self.steps = list(steps or [])
        before: list[PythonScriptStep] = []
        for one in self.steps:
            now = list(flat([one]))
            for step in now:
                for other in before:
                    step.run_after(other)
            before = now


class _StepWords(Words):
    """The words of one step's command: which of its data it writes, which it reads, and from whom."""

    def __init__(self, step: PythonScriptStep, names: dict[int, str], writers: dict[int, str]) -> None:
        super().__init__()
        self._own = set(map(id, _written_by(step)))
        self._node = names[id(step)]
        self._writers = writers
        self.parameters: dict[str, Any] = {}

    def text(self, value: Any) -> str:
        if isinstance(value, PipelineParameter):
            return self.parameter(value)
        if isinstance(value, tuple) and value and isinstance(value[0], PipelineParameter):
            return self.parameter(value[0], mode=getattr(value[1], "mode", ""))
        if getattr(value, "_parameter", None) is not None:
            return self.parameter(value._parameter, value.name, value._mode)
        if not isinstance(value, (PipelineData, Passed)) and not _is_output_config(value):
            return super().text(value)
        source = _source(value)
        written = identifier(_name_of(source))
        if id(source) in self._own and not isinstance(value, Passed):
            return self._data(_Named(source, written), self.outputs, source._as_output(), "outputs")
        if id(source) not in self._writers:
            raise SpecError(
                f"step {self._node}: no step has {written!r} among its outputs",
                "outputs=[...] of the step that writes it",
            )
        bound = f"${{{{parent.jobs.{self._writers[id(source)]}.outputs.{written}}}}}"
        kind = source._as_output().type
        made = Input(type=kind, path=bound, mode=getattr(value, "mode", None))
        name = identifier(getattr(value, "name", None) or written)
        return self._data(_Named(value, name), self.inputs, made, "inputs")

    def parameter(self, given: PipelineParameter, name: str = "", mode: str = "") -> str:
        """Return the word for it. ``name``: of the step's input; ``mode``: of data."""
        name = identifier(name or given.name)
        bound: Any = self.add_parameter(given)
        data = self.parameters[identifier(given.name)]
        if mode and not isinstance(data, Input):
            raise SpecError(
                f"the pipeline's parameter {given.name!r} is no data, and has no mode",
                f"PipelineParameter({given.name!r}, default_value=DataPath(datastore, path))",
            )
        if mode == "download":
            bound = Input(type=data.type, path=bound, mode=mode)
        if mode == "download" or name not in self.inputs:
            self.inputs[name] = bound
        return f"${{{{inputs.{name}}}}}"

    def add_parameter(self, given: PipelineParameter) -> str:
        name = identifier(given.name)
        self.parameters[name] = given.to_today(given.default_value)
        return f"${{{{parent.inputs.{name}}}}}"


class _Named:
    """Data under the name that it has in the step."""

    def __init__(self, value: Any, name: str) -> None:
        self.value = value
        self.name = name


def to_pipeline(
    steps: Iterable[Any], *, description: str | None = None, source_directory: str | None = None
) -> PipelineJob:
    """Return the job; nothing is read from disk. Raises SpecError."""
    listed = _closure(steps)
    names = _names(listed)
    writers: dict[int, str] = {}
    for step in listed:
        for one in _written_by(step):
            if id(one) not in writers and not _name_of(one):
                one._output_name = f"output_{len(writers)}"
            writers[id(one)] = names[id(step)]
    jobs: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    for step in listed:
        words = _StepWords(step, names, writers)
        jobs[names[id(step)]] = _node(step, words, source_directory)
        parameters |= words.parameters
    for step in listed:
        for other in step._after:
            _order(jobs, names[id(other)], names[id(step)])
    settings = PipelineJobSettings(force_rerun=False)
    return PipelineJob(jobs=jobs, inputs=parameters, description=description, settings=settings)


def _node(step: PythonScriptStep, words: _StepWords, source_directory: str | None) -> Command:
    config = copy(step.runconfig) if step.runconfig is not None else RunConfiguration()
    given = ScriptRunConfig(
        step.source_directory or source_directory or ".",
        script=None if step._command else step.script_name,
        command=step._command,
        arguments=step.arguments,
        run_config=config,
        compute_target=step.compute_target,
        distributed_job_config=step._distribution,
    )
    for one in (*step.inputs, *step.outputs):
        words.text(one)
    job = to_command(given, words)
    if step.compute_target is None and (step.runconfig is None or config.target in (None, "local")):
        job.compute = None
    for name, value in step.params.items():
        bound = words.add_parameter(value) if isinstance(value, PipelineParameter) else str(value)
        job.environment_variables = {**job.environment_variables, f"AML_PARAMETER_{name}": bound}
    job.command = _REFERENCE.sub(lambda found: _variable(found[1], job), str(job.command))
    job.display_name = step.name
    job._is_deterministic = step.allow_reuse
    job._warnings += step._warnings
    return job


def _variable(name: str, job: Command) -> str:
    """Return the variable by which a rank finds data that was made text, as in an f-string."""
    kind = "OUTPUT" if name in job.outputs else "INPUT"
    return f"${{AZURE_ML_{kind}_{name}}}"


def _order(jobs: dict[str, Any], first: str, second: str) -> None:
    """Have ``second`` start when ``first`` has completed: it gets an input of it, which it does not read."""
    jobs[first].outputs.setdefault(_DONE, Output(type="uri_folder"))
    bound = f"${{{{parent.jobs.{first}.outputs.{_DONE}}}}}"
    jobs[second].inputs[f"after_{first}"] = Input(type="uri_folder", path=bound)


def flat(steps: Iterable[Any]) -> Iterator[PythonScriptStep]:
    """Yield the steps of nested lists. Raises SpecError for what is no step."""
    for one in steps:
        if isinstance(one, StepSequence):
            yield from flat(one.steps)
        elif isinstance(one, (list, tuple)):
            yield from flat(one)
        elif isinstance(one, PythonScriptStep):
            yield one
        else:
            known = "PythonScriptStep, MpiStep, CommandStep, EstimatorStep and lists of such are"
            raise SpecError(f"a {type(one).__name__} is not supported as a step", known)


def _closure(steps: Iterable[Any]) -> list[PythonScriptStep]:
    """List the steps given, and those whose data they read or that are to run before them, each once."""
    found: dict[int, PythonScriptStep] = {}
    left = list(flat(steps))
    written = {id(one) for step in left for one in _written_by(step)}
    while left:
        step = left.pop(0)
        if id(step) not in found:
            found[id(step)] = step
            read = [_source(one) for one in (*step.inputs, *step.arguments)]
            left += step._after
            left += [
                one._producer
                for one in read
                if id(one) not in written and isinstance(getattr(one, "_producer", None), PythonScriptStep)
            ]
    return list(found.values())


def _names(steps: list[PythonScriptStep]) -> dict[int, str]:
    """Return each step's name: today's names of nodes are lower case, and each is there once."""
    names: dict[int, str] = {}
    for step in steps:
        wanted = identifier(step.name.removesuffix(".py")).lower()
        taken, count = set(names.values()), 1
        name = wanted
        while name in taken:
            count += 1
            name = f"{wanted}_{count}"
        names[id(step)] = name
    return names


def _source(value: Any) -> Any:
    return value.source if isinstance(value, Passed) else value


def _written_by(step: PythonScriptStep) -> list[Any]:
    return [*step.outputs, *filter(_is_output_config, step.arguments)]


def _is_output_config(value: Any) -> bool:
    """Return whether it is an OutputFileDatasetConfig, which stands above this layer."""
    return hasattr(value, "_as_output") and not isinstance(value, PipelineData)


def _name_of(source: Any) -> str:
    """Return the name of a source; empty for an output that was given none."""
    return str(getattr(source, "_output_name", None) or getattr(source, "name", None) or "")
