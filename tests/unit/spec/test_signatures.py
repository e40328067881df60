"""What editors and help show of the functions and classes that build jobs, and what these refuse."""

import inspect
import re
import typing
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import pytest

from drumline import command
from drumline.contract.errors import SpecError
from drumline.entities import (
    Command,
    CommandComponent,
    CommandJobLimits,
    Environment,
    JobResourceConfiguration,
    ManagedIdentityConfiguration,
    ParameterizedCommand,
    PyTorchDistribution,
    RayDistribution,
)
from drumline.parallel import ParallelJob, RunFunction, parallel_run_function
from drumline.sweep import Choice, Objective, RandomSamplingAlgorithm, SweepJob, SweepJobLimits, Uniform

AZURES = {
    command: (
        "name description tags properties display_name command experiment_name environment environment_variables "
        "distribution compute inputs outputs instance_count instance_type locations docker_args shm_size timeout code "
        "identity is_deterministic services job_tier priority parent_job_name"
    ),
    parallel_run_function: (
        "name description tags properties display_name experiment_name compute retry_settings environment_variables "
        "logging_level mini_batch_size error_threshold mini_batch_error_threshold task inputs outputs input_data "
        "partition_keys instance_count instance_type docker_args shm_size identity is_deterministic "
        "max_concurrency_per_instance"
    ),
    Command.sweep: (
        "self primary_metric goal sampling_algorithm compute max_concurrent_trials max_total_trials timeout "
        "trial_timeout early_termination_policy search_space identity queue_settings job_tier priority"
    ),
    Command: (
        "component compute inputs outputs limits identity distribution environment environment_variables resources "
        "services queue_settings"
    ),
    CommandComponent: (
        "name version description tags display_name command code environment distribution resources inputs outputs "
        "instance_count is_deterministic additional_includes properties"
    ),
    SweepJob: (
        "name description tags display_name experiment_name identity inputs outputs compute limits sampling_algorithm "
        "search_space objective trial early_termination queue_settings resources services properties"
    ),
    ParallelJob: "name display_name inputs outputs task mini_batch_size retry_settings compute",
}
"""The parameters of azure-ai-ml 1.35.2."""


@pytest.mark.parametrize("function", AZURES, ids=lambda function: function.__qualname__)
def test_a_signature_has_all_of_azures_parameters(function):
    parameters = inspect.signature(function).parameters
    assert set(AZURES[function].split()) - parameters.keys() == set()
    assert list(parameters.values())[-1].kind is inspect.Parameter.VAR_KEYWORD


def test_the_signature_of_a_job_that_can_be_called_is_that_of_its_call():
    assert list(inspect.signature(command(command="x")).parameters) == ["args", "kwargs"]


def test_a_signature_has_the_name_that_the_constructor_takes():
    assert "resource_id" in inspect.signature(ManagedIdentityConfiguration).parameters
    assert ManagedIdentityConfiguration(resource_id="x").msi_resource_id == "x"


def test_the_types_of_fields_can_be_read_at_run_time():
    for entity in (Command, CommandComponent, Environment, SweepJob, ParallelJob, RunFunction):
        assert typing.get_type_hints(entity).keys() >= entity._declarations.keys()


def test_the_signature_of_a_class_of_the_user_begins_with_its_own_constructor():
    class Flavoured(Environment):
        name: str = "flavoured"

        def __init__(self, flavour, **options):
            super().__init__(**options)
            self.flavour = flavour

    class Fixed(Uniform):
        def __init__(self, low, high):
            super().__init__(min_value=low, max_value=high)

    class Plain(Environment):
        image: str = "python:3.12"

    names = list(inspect.signature(Flavoured).parameters)
    assert (names[0], names[-1], "image" in names) == ("flavour", "options", True)
    assert list(inspect.signature(Fixed).parameters) == ["low", "high"]
    assert inspect.signature(Plain) == inspect.signature(Environment)


def test_a_class_of_the_user_may_have_another_base_that_is_told_of_its_classes():
    class Registry:
        known: ClassVar[dict[str, str]] = {}

        def __init_subclass__(cls, tag="", **options):
            super().__init_subclass__(**options)
            cls.known[cls.__name__] = tag

    class Mine(Environment, Registry, tag="a"):
        pass

    class Distributed(PyTorchDistribution, Registry, tag="b"):
        pass

    assert Registry.known == {"Mine": "a", "Distributed": "b"}
    assert (Mine(image="i").image, Distributed(process_count_per_instance=2).type) == ("i", "pytorch")


def test_all_of_azures_parameters_are_accepted():
    job = command(
        name="n", description="d", tags={"a": "1"}, properties={"b": "2"}, display_name="e", command="c",
        experiment_name="x", environment="azureml:e:1", environment_variables={"A": "1"}, distribution={"type": "mpi"},
        compute="local", inputs={"i": 1}, outputs={"o": None}, instance_count=2, instance_type="t", locations=["l"],
        docker_args="--ipc=host", shm_size="2g", timeout=60, code=".", identity={"type": "aml_token"},
        is_deterministic=False, services={"s": {"type": "ssh"}}, job_tier="spot", priority="low", parent_job_name="p",
    )  # fmt: skip
    assert (job.resources.instance_count, job.limits.timeout, job.parent_job_name) == (2, 60, "p")
    assert (job.name, job.tags, job.component.is_deterministic) == ("n", {"a": "1"}, False)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: command(command="x", instance_cuont=2),
            "unknown keyword 'instance_cuont'; did you mean 'instance_count'?",
        ),
        (
            lambda: command(command="x").sweep(primary_metric="m", goal="minimize", max_trials=3),
            "unknown keyword 'max_trials' in sweep; did you mean 'max_total_trials'?",
        ),
        (
            lambda: parallel_run_function(mini_batchsize=3),
            "unknown keyword 'mini_batchsize'; did you mean 'mini_batch_size'?",
        ),
        (
            lambda: SweepJobLimits(max_totl_trials=3),  # type: ignore[call-arg]
            "unknown keyword 'max_totl_trials' in limits; did you mean 'max_total_trials'?",
        ),
        (lambda: Objective("minimize", primary_metrics="m"), "in objective; did you mean 'primary_metric'?"),  # type: ignore[call-arg]
        (lambda: ParameterizedCommand("x", distrbution={}), "in trial; did you mean 'distribution'?"),  # type: ignore[call-arg]
        (lambda: RandomSamplingAlgorithm(sed=3), "in sampling_algorithm; did you mean 'seed'?"),  # type: ignore[call-arg]
        (lambda: Uniform(min_vaue=3), "in search_space; did you mean 'min_value'?"),  # type: ignore[call-arg]
        (lambda: Choice([1], valus=3), "in search_space; did you mean 'values'?"),  # type: ignore[call-arg]
        (lambda: RunFunction(entry_scrip="x"), "in task; did you mean 'entry_script'?"),  # type: ignore[call-arg]
    ],
)
def test_an_unknown_keyword_is_refused_with_the_nearest_known_one(make, said):
    with pytest.raises(SpecError) as raised:
        make()
    assert said in re.sub(r"\s+hint: ", "; ", str(raised.value))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: command(command="x", resources={"instance_count": "two"}),
            "resources.instance_count must be a whole number, got 'two'",
        ),
        (lambda: command(command="x", resources={"shm_size": 2}), "resources.shm_size must be text, got 2"),
        (
            lambda: command(command="x", limits={"timeout": "1h"}),
            "limits.timeout must be a whole number, got '1h'",
        ),
        (lambda: command(command="x", limits={"timout": 3}), "unknown keyword 'timout' in limits"),
        (
            lambda: command(
                command="x", distribution={"type": "pytorch", "process_count_per_instance": True}
            ),
            "distribution.process_count_per_instance must be a whole number, got true",
        ),
        (
            lambda: command(command="x", instance_count="many"),
            "instance_count must be a whole number, got 'many'",
        ),
        (lambda: command(command="x", timeout="1h"), "timeout must be a whole number, got '1h'"),
        (lambda: command(command="x").set_limits(timeout="1h"), "timeout must be a whole number, got '1h'"),
        (
            lambda: command(command="x").set_resources(instance_count=[1]),
            "instance_count must be a whole number, got a list",
        ),
        (
            lambda: PyTorchDistribution(process_count_per_instance="x"),
            "distribution.process_count_per_instance must be a whole number, got 'x'",
        ),
        (
            lambda: RayDistribution(include_dashboard="maybe"),
            "distribution.include_dashboard must be true or false",
        ),
        (
            lambda: JobResourceConfiguration(locations="here"),
            "resources.locations must be a list, got 'here'",
        ),
        (lambda: CommandJobLimits(timeout={}), "limits.timeout must be a whole number, got a mapping"),
        (
            lambda: SweepJobLimits(max_total_trials="all"),
            "limits.max_total_trials must be a whole number, got 'all'",
        ),
    ],
)
def test_a_value_of_another_type_is_refused_where_it_is_written(make, said):
    with pytest.raises(SpecError) as raised:
        make()
    assert said in str(raised.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: JobResourceConfiguration(
            instance_count="2", instance_type=["a", "b"], docker_args=["--ipc=host"]
        ),
        lambda: JobResourceConfiguration(
            instance_count=2.0, properties={"a": {"b": [1]}}, max_instance_count=None
        ),
        lambda: command(command="x", timeout="60", resources={"instance_count": "${{parent.inputs.nodes}}"}),
        lambda: PyTorchDistribution(process_count_per_instance=command(command="x", inputs={"i": 1}).inputs),
        lambda: ParameterizedCommand("x", environment_variables=MappingProxyType({"A": "1"})),
    ],
)
def test_what_azure_takes_is_taken(make):
    make()


@pytest.mark.parametrize(
    ("attribute", "value", "kind"),
    [
        ("tags", "x", "'str'"),
        ("properties", 5, "'int'"),
        ("inputs", [], "'list'"),
        ("outputs", "x", "'str'"),
        ("additional_includes", "lib", "'str'"),
        ("additional_includes", 5, "'int'"),
    ],
)
def test_what_is_no_mapping_or_list_is_refused_where_it_is_given_or_set(attribute, value, kind):
    component = CommandComponent(command="x")
    for attempt in (
        lambda: CommandComponent(command="x", **{attribute: value}),
        lambda: setattr(component, attribute, value),
    ):
        with pytest.raises(SpecError, match=f"{attribute} cannot be of type {kind}"):
            attempt()


def test_the_error_points_at_the_line_of_the_user():
    with pytest.raises(SpecError) as raised:
        command(command="x", instance_count="many")
    assert Path(__file__).name in raised.value._render_traceback_()[-1]
