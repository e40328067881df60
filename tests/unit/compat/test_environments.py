"""v1's environments and conda dependencies."""

import sys

import pytest

from drumline.compat.run_configuration.configuration import RunConfiguration
from drumline.compat.run_configuration.environment import (
    DEFAULT_CPU_IMAGE,
    CondaDependencies,
    Environment,
    to_environment,
)
from drumline.contract.errors import SpecError

CONDA = "name: e\nchannels: [conda-forge]\ndependencies: [python=3.11, {pip: [torch]}]\n"


def test_a_conda_specification_is_read_at_once(tmp_path):
    (tmp_path / "conda.yml").write_text(CONDA)
    made, warnings = to_environment(Environment.from_conda_specification("mine", tmp_path / "conda.yml"))
    assert (made.name, made.image, warnings) == ("mine", DEFAULT_CPU_IMAGE, [])
    assert made.conda_file["dependencies"] == ["python=3.11", {"pip": ["torch"]}]


@pytest.mark.parametrize(
    ("text", "message"), [(None, "no such file"), ("a: [", "conda.yml:2:1"), ("- a\n", "a list")]
)
def test_a_bad_conda_specification(tmp_path, text, message):
    file = tmp_path / "conda.yml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SpecError, match=message):
        Environment.from_conda_specification("mine", file)


def test_requirements_and_images(tmp_path):
    (tmp_path / "r.txt").write_text("# ours\ntorch==2.2\n\nnumpy\n")
    made = Environment.from_docker_image("mine", "image", pip_requirements=tmp_path / "r.txt")
    assert made.python.conda_dependencies.pip_packages == ["torch==2.2", "numpy"]
    assert to_environment(made)[0].image == "image"
    plain, _ = to_environment(Environment.from_docker_image("mine", "image"))
    assert plain.conda_file is None
    with pytest.raises(SpecError, match="exclude each other"):
        Environment.from_docker_image("m", "i", conda_specification="a", pip_requirements="b")
    with pytest.raises(SpecError, match="cannot read"):
        Environment.from_pip_requirements("m", tmp_path / "none.txt")


def test_a_dockerfile_is_not_built(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    for given in (tmp_path / "Dockerfile", "FROM scratch\n"):
        made = Environment.from_dockerfile("mine", given)
        assert made.docker.base_dockerfile == "FROM scratch\n"
        assert to_environment(made)[1] == ["environment.docker.base_dockerfile: not built"]


def test_an_interpreter_of_this_machine_is_used():
    made = Environment("mine")
    made.python.user_managed_dependencies = True
    made.python.interpreter_path = sys.executable
    assert to_environment(made)[0].python == sys.executable
    made.python.interpreter_path = "/opt/nowhere/python"
    today, warnings = to_environment(made)
    assert today.python is None
    assert warnings == [
        "environment.python.interpreter_path: there is no /opt/nowhere/python on this machine"
    ]


def test_what_has_no_name_says_nothing():
    assert to_environment(Environment("")) == (None, [])


def test_a_clone_is_another():
    first = Environment("a")
    first.reference = "azureml:a:1"
    other = first.clone("b")
    other.environment_variables["X"] = "1"
    assert (other.name, other.reference, first.environment_variables) == ("b", "", {})


def test_conda_dependencies_as_scripts_build_them(tmp_path):
    made = CondaDependencies.create(conda_packages=["numpy"], pip_packages=["torch"], python_version="3.11")
    made.add_pip_package("lightning")
    made.add_conda_package("scipy")
    made.remove_pip_package("torch")
    made.add_channel("pytorch")
    made.set_pip_option("--no-cache-dir")
    assert made.conda_packages == ["python=3.11", "numpy", "scipy"]
    assert made.pip_packages == ["lightning"]
    made.save_to_file(tmp_path, "c.yml")
    assert CondaDependencies(tmp_path / "c.yml").content == made.content
    assert "pytorch" in CondaDependencies(tmp_path / "c.yml").conda_channels


def test_an_interpreter_needs_no_name_of_its_environment():
    made = RunConfiguration().environment
    assert to_environment(made) == (None, [])
    made.python.user_managed_dependencies = True
    made.python.interpreter_path = sys.executable
    today, _ = to_environment(made)
    assert (today.name, today.python) == (None, sys.executable)
    made.python.interpreter_path = "/opt/nowhere/python"
    assert to_environment(made)[1]


def test_a_registry_may_be_set_and_says_nothing():
    made = Environment("mine")
    made.docker.base_image_registry.address = "example.azurecr.io"
    made.docker.base_image_registry.password = "secret"
    assert "secret" not in str(to_environment(made.clone("other"))[0]._values())


def test_the_packages_of_a_run_configuration_without_a_named_environment_are_not_lost():
    config = RunConfiguration()
    assert to_environment(config.environment)[0] is None
    config.environment.python.conda_dependencies = CondaDependencies.create(pip_packages=["numpy"])
    made, warnings = to_environment(config.environment)
    assert (made.name, made.conda_file["dependencies"], warnings) == (None, [{"pip": ["numpy"]}], [])
    config.environment.python.user_managed_dependencies = True
    assert to_environment(config.environment)[0] is None
