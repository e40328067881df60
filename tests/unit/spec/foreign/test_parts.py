"""Objects of azure-ai-ml, told by their class's module; tests/integration/azure_ai_ml has the package's own."""

from enum import Enum

import pytest

from drumline import AmlCompute, Input, MLClient, PyTorchDistribution, command
from drumline.entities import Environment, JobResourceConfiguration, SshJobService
from drumline.exceptions import ValidationException
from drumline.spec.foreign import translate_object
from drumline.spec.foreign_parts import is_foreign, ours, read_attribute
from drumline.sweep import Randint


def theirs(name, /, roots=(object,), module="azure.ai.ml.entities._any", **fields):
    made = type(name, roots, {"__module__": module})()
    made.__dict__.update(fields)
    return made


def test_a_part_becomes_ours_with_the_same_fields():
    found = ours(theirs("PyTorchDistribution", type="pytorch", process_count_per_instance=4))
    assert found == PyTorchDistribution(process_count_per_instance=4)


def test_search_spaces_within_a_choice_are_ours_too():
    module = "azure.ai.ml.entities._job.sweep.search_space"
    depth = theirs("Randint", module=module, type="randint", upper=4)
    choice = ours(theirs("Choice", module=module, type="choice", values=[1, {"net": "deep", "depth": depth}]))
    assert choice.values == [1, {"net": "deep", "depth": Randint(upper=4)}]


def test_a_class_made_from_one_of_theirs_is_taken_too():
    base = type(theirs("Environment"))
    made = type("OurEnvironment", (base,), {"__module__": "scripts"})()
    made.__dict__.update(image="ubuntu", name="e")
    assert is_foreign(made)
    assert ours(made) == Environment(image="ubuntu", name="e")


@pytest.mark.parametrize("module", ["azure.ai.mlops", "mldesigners", "scripts", "drumline.spec.parts.io"])
def test_an_equal_name_of_another_module_is_not_theirs(module):
    value = theirs("Input", module=module, path="data")
    assert ours(value) is value
    assert translate_object(value) is value


def test_an_unnamed_environment_has_no_name():
    value = theirs(
        "Environment", image="i", name="CliV2AnonymousEnvironment", version="0ff14fc", _is_anonymous=True
    )
    assert ours(value)._values() == {"image": "i"}


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("digits:1", "azureml:digits:1"),
        ("digits@latest", "azureml:digits@latest"),
        ("azureml:digits:1", "azureml:digits:1"),
        ("https://example.org/a:b", "https://example.org/a:b"),
        ("azureml://datastores/d/paths/a:b", "azureml://datastores/d/paths/a:b"),
        ("/data/a:b", "/data/a:b"),
        ("file:data", "file:data"),
        ("./data", "./data"),
        ("${{parent.inputs.x}}", "${{parent.inputs.x}}"),
    ],
)
def test_a_path_with_a_colon_is_an_asset_as_theirs_takes_it(path, written):
    assert ours(theirs("Input", type="uri_folder", path=path)).path == written


def test_they_are_taken_where_ours_are():
    job = command(
        command="true",
        environment=theirs("Environment", image="ubuntu"),
        distribution=theirs("MpiDistribution", process_count_per_instance=2),
        resources=theirs("ResourceConfiguration", instance_count=3),
        limits=theirs("CommandJobLimits", timeout=9),
        queue_settings=theirs("QueueSettings", job_tier="Spot"),
        identity=theirs("UserIdentityConfiguration"),
        inputs={"data": theirs("Input", type="uri_file", path="a.csv", mode="download")},
        outputs={"o": theirs("Output", type="uri_folder", name="n", version="1")},
        services={"shell": theirs("SshJobService", ssh_public_keys="key", nodes="all")},
    )
    assert job.environment == Environment(image="ubuntu")
    assert job.distribution.type == "mpi"
    assert job.resources == JobResourceConfiguration(instance_count=3)
    assert job.limits.timeout == 9
    assert job.queue_settings.job_tier == "spot"
    assert job.identity.type == "user_identity"
    assert job.inputs.data == Input(type="uri_file", path="a.csv", mode="download")
    assert (job.outputs.o.name, job.outputs.o.version) == ("n", "1")
    assert job.services.shell == SshJobService(ssh_public_keys="key", nodes="all")


def test_an_amlcompute_has_its_mappings():
    network = theirs("NetworkSettings", vnet_name="v", subnet=None, _hidden=1)
    found = ours(theirs("AmlCompute", name="cpu", size="S", tier="LowPriority", network_settings=network))
    assert isinstance(found, AmlCompute)
    assert found.network_settings == {"vnet_name": "v"}


def test_what_nothing_stands_for_is_refused_by_its_name():
    with pytest.raises(
        ValidationException, match=r"azure\.ai\.ml\.entities\._any\.BatchEndpoint is not supported"
    ):
        translate_object(theirs("BatchEndpoint"))


def test_a_job_of_another_kind_is_refused_by_its_name():
    job = type(theirs("Job"))
    with pytest.raises(ValidationException, match="AutoMLJob is not supported") as caught:
        translate_object(theirs("AutoMLJob", roots=(job,)))
    assert "commands, sweeps and pipelines are" in str(caught.value)


def test_an_enumeration_of_theirs_is_a_value():
    colour = Enum("Mode", {"DOWNLOAD": "download"}, module="azure.ai.ml.constants")
    assert translate_object(colour.DOWNLOAD) is colour.DOWNLOAD


def test_any_credential_is_taken():
    credential = theirs("DefaultAzureCredential", module="azure.identity._credentials.default")
    assert list(MLClient(credential, "subscription", "group", "workspace").jobs.list()) == []


def test_reading_an_attribute_brings_none_about():
    asked = []
    value = theirs("Command")
    type(value).__getattr__ = lambda self, name: asked.append(name)
    assert read_attribute(value, "limits", "none") == "none"
    assert asked == []
