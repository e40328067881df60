"""Keywords of v1's classes: those that azureml knows are accepted, all others refused."""

import sys
from typing import Any

import pytest

from drumline.compat.pipeline_steps import CommandStep, EstimatorStep, MpiStep, PipelineData, PythonScriptStep
from drumline.compat.script_run_config import Estimator, PyTorch, TensorFlow
from drumline.contract.errors import SpecError
from drumline.sdk.v1.pipeline import Pipeline

STEP = PythonScriptStep("a.py")
ESTIMATOR = Estimator("src", entry_script="a.py")


@pytest.mark.parametrize(
    ("make", "problem", "hint"),
    [
        (lambda: Estimator("src", nod_count=2), "'nod_count' in Estimator", "'node_count'?"),
        (lambda: PyTorch("src", pip_package=[]), "'pip_package' in PyTorch", "'pip_packages'?"),
        (lambda: PythonScriptStep(script_nme="a.py"), "'script_nme' in PythonScriptStep", "'script_name'?"),
        (lambda: CommandStep("true", comand="x"), "'comand' in CommandStep", "'command'?"),
        (lambda: MpiStep("a", "src", "a.py", nod_count=2), "'nod_count' in MpiStep", "'node_count'?"),
        (lambda: EstimatorStep("a", ESTIMATOR, input=[]), "'input' in EstimatorStep", "'inputs'?"),
        (lambda: PipelineData("d", datastor=None), "'datastor' in PipelineData", "'datastore'?"),
        (lambda: Pipeline(None, [STEP], continue_on_fail=True), "'continue_on_fail'", ".submit("),
        (lambda: Pipeline(None, [STEP], descripton="x"), "'descripton' in Pipeline", "'description'?"),
    ],
)
def test_an_unknown_keyword_is_refused(make, problem, hint):
    with pytest.raises(SpecError, match="unknown keyword") as caught:
        make()
    assert problem in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="older Pythons look the names up at the definition")
def test_a_class_of_the_users_may_have_annotations_for_a_type_checker_alone():
    scope: dict[str, Any] = {"Estimator": Estimator}
    exec(
        "class Mine(Estimator):\n"
        "    def __init__(self, rows: NDArray, **kwargs):\n"
        "        super().__init__('src', entry_script='a.py', **kwargs)\n",
        scope,
    )
    assert scope["Mine"](rows=1, node_count=2).run_config.node_count == 2
    with pytest.raises(SpecError, match="'nod_count' in Mine"):
        scope["Mine"](rows=1, nod_count=2)


def test_keywords_that_azureml_knows_are_accepted():
    """Source: https://learn.microsoft.com/python/api/azureml-train-core/azureml.train.estimator.estimator"""
    of_estimators = {
        "vm_size": "x", "vm_priority": "x", "use_gpu": True, "use_docker": True, "custom_docker_base_image": "x",
        "image_registry_details": None, "user_managed": True, "conda_packages": ["x"], "pip_packages": ["x"],
        "conda_dependencies_file_path": "x", "pip_requirements_file_path": "x", "conda_dependencies_file": "x",
        "pip_requirements_file": "x", "source_directory_data_store": None, "resume_from": None,
    }  # fmt: skip
    for kind in (Estimator, PyTorch, TensorFlow):
        kind("src", entry_script="a.py", framework_version="2", _disable_validation=True, **of_estimators)
    MpiStep("a", "src", "a.py", shm_size="2g", environment_variables={"A": "b"}, **of_estimators)
    PythonScriptStep("a.py", version="1", hash_paths=["x"])
    PipelineData("d", training_output=None, output_overwrite=True, pipeline_output_name="x")
    Pipeline(None, [STEP], resolve_closure=True, _workflow_provider=None)
