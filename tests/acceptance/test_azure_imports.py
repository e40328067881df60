"""Scripts that are written for Azure's SDKs, with no line changed; nothing of Azure is installed but what is said."""

import json
import os
import re
import shutil
import subprocess
import sys

import guides
import pytest
from interpreters import oldest_and_this

from drumline.azure import explain_lack

TRAIN = "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], 'lr', os.sys.argv[1])"
V2 = """
from azure.ai.ml import Input, MLClient, command, dsl
from azure.ai.ml.constants import AssetTypes, TimeZone
from azure.ai.ml.entities import CronTrigger, JobSchedule, ManagedOnlineEndpoint
from azure.ai.ml.sweep import Choice
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.identity import ChainedTokenCredential, DefaultAzureCredential, InteractiveBrowserCredential

credential = ChainedTokenCredential(DefaultAzureCredential(), InteractiveBrowserCredential())
credential.get_token("https://management.azure.com/.default")
client = MLClient(credential, "<SUBSCRIPTION_ID>", "group", "vision")
try:
    client.jobs.get("not_there")
except ResourceNotFoundError as error:
    assert isinstance(error, HttpResponseError)
job = command(
    code="./src", command="python train.py ${{inputs.lr}}", inputs={"lr": 0.5}, instance_count=2,
    distribution={"type": "PyTorch", "process_count_per_instance": 2},
)
returned = client.jobs.create_or_update(job)
client.jobs.stream(returned.name)
for use in (lambda: ManagedOnlineEndpoint(name="digits"), lambda: client.online_endpoints):
    try:
        use()
    except Exception as error:
        print(f"refused: {error}")
assert not hasattr(client, "schedules") and not isinstance(job, ManagedOnlineEndpoint)
"""
V1 = """
import urllib
import azureml.core
from azureml.core import Environment, Experiment, ScriptRunConfig, Workspace
from azureml.core.runconfig import PyTorchConfiguration
from azureml.exceptions import UserErrorException
from azureml.train.hyperdrive import HyperDriveConfig

assert urllib.request
print("SDK", azureml.core.VERSION, azureml.core.compute.ComputeTarget.__name__)
env = Environment("mine")
env.python.user_managed_dependencies = True
config = ScriptRunConfig(
    source_directory="src", script="log.py", environment=env, compute_target="cluster",
    distributed_job_config=PyTorchConfiguration(process_count=4, node_count=2),
)
run = Experiment(Workspace.get("vision", "s", "g"), "digits").submit(config)
run.wait_for_completion(show_output=True)
assert run.get_metrics() == {"loss": 0.25}, run.get_metrics()
assert run.get_tags()["kind"] == "v1"
"""
LOG = """
import os
from azureml.core.run import Run
run = Run.get_context()
if os.environ["RANK"] == "0":
    run.log("loss", 0.25)
    run.tag("kind", "v1")
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(TRAIN)
    (tmp_path / "src" / "log.py").write_text(LOG)
    return tmp_path


def run_python(place, *words, **variables):
    """Run ``drumline python`` there."""
    command = (sys.executable, "-P", "-m", "drumline", "python", *words)
    environ = {**os.environ, **variables}
    done = subprocess.run(command, cwd=place, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_script_of_v2(place):
    (place / "submit.py").write_text(V2)
    shown = run_python(place, "submit.py")
    assert "lr 0.5" in shown
    assert "refused: ManagedOnlineEndpoint: Drumline trains; it has no endpoints" in shown
    assert "refused: online_endpoints: Drumline trains; it has no endpoints" in shown


def test_a_script_of_v1_and_its_ranks(place):
    (place / "submit.py").write_text(V1)
    assert "ComputeTarget" in run_python(place, "submit.py")


def test_parts_of_v1_are_attributes_after_the_import_of_its_core(place):
    parts = (
        "core.script_run_config.ScriptRunConfig",
        "core.runconfig.RunConfiguration",
        "data.data_reference",
    )
    program = "; ".join(["import azureml.core", *(f"print(azureml.{part})" for part in parts)])
    shown = run_python(place, "-c", program)
    assert shown.count("\n") == 3


AZURES = {
    "drumline.v1": "azureml.core",
    "drumline.component": "azure.ml.component",
    "drumline.identity": "azure.identity",
}


def write_azures_imports(text):
    return re.sub(
        r"^from (drumline[.\w]*)",
        lambda line: f"from {AZURES.get(line[1], 'azure.ai.ml' + line[1][8:])}",
        text,
        flags=re.MULTILINE,
    )


@pytest.mark.timeout(600)
def test_the_guide_with_the_imports_that_it_says_to_change(tmp_path):
    python = (sys.executable, "-m", "drumline", "python")
    guides.follow("tutorials/from-azure-ml", tmp_path, rewrite=write_azures_imports, python=python)


@pytest.mark.parametrize("words", [["python"], ["azure", "python"]])
def test_options_behind_the_word_are_the_programs(cli, place, words):
    options = ["--debug", "--color", "red", "--", "--help"]
    done = cli(*words, "-c", "import sys; print(sys.argv[1:])", *options, cwd=place)
    assert done.out == f"{options}\n", done.err


def test_names_that_azure_lacks_too_are_told_at_the_import(place):
    program = (
        "for name in ('Comand', 'nonsense', 'Command'):\n"
        "    try: exec(f'from azure.ai.ml.entities import {name}'); print(name, 'is there')\n"
        "    except ImportError as error: print(error)\n"
    )
    shown = run_python(place, "-c", program)
    for words in ("cannot import name 'Comand'", "cannot import name 'nonsense'", "Command is there"):
        assert words in shown


PRIVATE = """
import importlib.util
import urllib
from azure.ai.ml.constants._common import AssetTypes
from azure.ai.ml.entities._job.pipeline._io import PipelineInput
from azure.ai.ml.entities import ComputeInstance, Data, ManagedNetwork, PatTokenConfiguration
from azure.ai.ml import MLClient, load_deployment_template
from azure.identity import AzureAuthorityHosts, DefaultAzureCredential
from azureml.automl.core.shared import constants
from azureml.contrib.notebook import NotebookRunnerStep
from azureml.opendatasets import MNIST

assert urllib.request and AssetTypes.URI_FILE == "uri_file" and constants.__name__.startswith("azureml.automl")
assert AzureAuthorityHosts.AZURE_CHINA and not isinstance(Data(name="a", path="."), PipelineInput)
assert importlib.util.find_spec("azure.ai.ml.dsl._mldesigner") is None
client = MLClient(None, "s", "g", "vision", registry_name="azureml")
assert client._operation_scope.workspace_name == client._workspaces.get().name == "vision"
for use in (
    ComputeInstance, ManagedNetwork, PatTokenConfiguration, NotebookRunnerStep, lambda: MNIST.get_file_dataset(),
    lambda: client.workspace_outbound_rules, lambda: client.compute.begin_stop("name"),
):
    try:
        use()
    except AttributeError as error:
        print(error)
"""


def test_a_service_is_named_by_a_whole_word():
    named = (
        "AksCompute",
        "attach_adla",
        "azureml.core.compute.aks",
        "aks",
        "load_language",
        "Breaks",
        "breaks",
    )
    lacks = [explain_lack(name).startswith("Drumline has no services of Azure's") for name in named]
    assert lacks == [True] * 4 + [False] * 3


def test_names_that_public_scripts_import_can_be_imported(place):
    """Private modules too; what Drumline lacks has a reason, and what is installed is not covered."""
    shown = run_python(place, "-c", PRIVATE)
    for words in (
        "ComputeInstance: Drumline starts and stops no machines",
        "ManagedNetwork: Drumline makes no networks",
        "PatTokenConfiguration: Drumline has no hubs, connections",
        "MNIST: Drumline has no open datasets",
        "NotebookRunnerStep: Drumline has no such steps",
        "workspace_outbound_rules: Drumline makes no networks",
        "begin_stop: Drumline starts and stops no machines",
    ):
        assert words in shown
    path = place / "installed" / "azureml" / "opendatasets.py"
    path.parent.mkdir(parents=True)
    path.write_text("MNIST = 'theirs'\n")
    program = "from azureml.opendatasets import MNIST; print(MNIST)"
    assert run_python(place, "-c", program, PYTHONPATH=str(place / "installed")) == "theirs\n"


def test_an_extension_of_a_notebook_answers_its_cells_and_their_programs(place):
    program = (
        "import subprocess, sys\nfrom drumline.azure import load_ipython_extension\nload_ipython_extension(None)\n"
        "from azure.ai.ml import MLClient; print(MLClient.__module__, flush=True)\n"
        "for words in (['az', 'account', 'show', '--query', 'name'], [sys.executable, '-c', 'import azure.ai.ml']):\n"
        "    subprocess.run(words, check=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=place
    )
    assert done.stdout == 'drumline.sdk.ml_client\n"this machine"\n', done.stderr


def test_without_the_switch_there_is_no_azure(place):
    program = "import importlib.util as u, sys; print([n for n in sys.modules if n.startswith('drumline')])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=place
    )
    assert done.stdout == "[]\n"


INSTALLED = {
    "azure/core/__init__.py": "",
    "azure/core/exceptions.py": (
        "class AzureError(Exception):\n    def __init__(self, message, error): raise RuntimeError\n"
        "class HttpResponseError(AzureError): pass\nclass ResourceNotFoundError(HttpResponseError): pass\n"
    ),
    "azure/ai/ml/__init__.py": "raise SystemExit('theirs')\n",
    "azure/ai/mlother.py": "name = 'other'\n",
    "azure/identity/__init__.py": "class DefaultAzureCredential: pass\nclass OtherCredential: pass\n",
    "azure/storage/__init__.py": "name = 'storage'\n",
}
"""As the packages of Azure are laid out."""


def test_installed_packages_keep_what_is_theirs(place):
    """All of azure-ai-ml but its name gives way to ours, and ``except`` with errors of azure-core finds ours."""
    for name, text in INSTALLED.items():
        path = place / "installed" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    program = """
from azure.ai.ml import MLClient
from azure.ai.ml.exceptions import MlException, ValidationException
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.identity import DefaultAzureCredential, OtherCredential
import azure.ai.mlother, azure.storage
print(azure.ai.mlother.name)
print(MLClient.__module__, repr(DefaultAzureCredential().get_token("x").token), OtherCredential.__module__)
print(azure.storage.name)
client = MLClient()
for name, kinds in (("not_there", (ResourceNotFoundError, HttpResponseError, MlException)), ("a b", MlException)):
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        try:
            client.jobs.get(name)
        except kind as error:
            print(kind.__name__, type(error).__module__)
"""
    shown = run_python(place, "-c", program, PYTHONPATH=str(place / "installed"))
    assert shown.splitlines() == [
        "other",
        "drumline.sdk.ml_client '' azure.identity",
        "storage",
        "ResourceNotFoundError drumline.contract.errors",
        "HttpResponseError drumline.contract.errors",
        "DrumlineError drumline.contract.errors",
        "DrumlineError drumline.contract.errors",
    ]


def test_data_at_azure_is_read_with_the_installed_credential(place):
    """Not with the empty one of scripts; and where none is installed, as without it."""
    program = (
        "from drumline.staging.stores import azure\nazure._credential_without_library = lambda: 'no library'\n"
        "found = azure._login_credential()\nprint(found if isinstance(found, str) else found[2]()['token'])\n"
    )
    assert run_python(place, "-c", program) == "no library\n"
    for name, text in {
        "azure/core/exceptions.py": "class ClientAuthenticationError(Exception): pass\n",
        "azure/identity/__init__.py": (
            "from types import SimpleNamespace\nclass DefaultAzureCredential:\n"
            "    def __init__(self, **options): pass\n"
            "    def get_token(self, scope): return SimpleNamespace(token='theirs', expires_on=4000000000)\n"
        ),
    }.items():
        path = place / "installed" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert run_python(place, "-c", program, PYTHONPATH=str(place / "installed")) == "theirs\n"


@pytest.mark.parametrize("python", oldest_and_this())
@pytest.mark.parametrize("is_installed", [True, False])
def test_the_run_of_azureml_core_is_the_jobs(cli, place, python, is_installed):
    """An installed one would print by itself what is logged, and lose it."""
    core = place / "src" / "azureml" / "core"
    core.mkdir(parents=True)
    (core / "__init__.py").write_text("")
    (core / "run.py").write_text(
        "class Run:\n    @classmethod\n    def get_context(cls): raise SystemExit('theirs')\n"
    )
    if not is_installed:
        shutil.rmtree(core.parent)
    done = cli("run", "--name", "job", "--", python, "log.py", cwd=place / "src")
    assert done.rc == 0, done.out + done.err
    assert json.loads(cli("job", "metrics", "-n", "job", "-o", "json").out)[0]["last"] == 0.25


def test_ranks_find_what_is_installed_of_azure_whoever_submits(cli, place, monkeypatch):
    """A rank may have real credentials; and what ``azureml-mlflow`` and others install is not ours to answer."""
    monkeypatch.setenv("DRUMLINE_AZURE", "1")
    program = (
        "import subprocess, sys\n"
        "for name in ('azure.identity', 'azureml.mlflow', 'azureml.core'):\n"
        "    done = subprocess.run([sys.executable, '-c', 'import ' + name], stderr=subprocess.DEVNULL)\n"
        "    print(name, done.returncode)\n"
    )
    done = cli("run", "--", "python", "-c", program, cwd=place)
    assert done.out.splitlines()[:3] == ["azure.identity 1", "azureml.mlflow 1", "azureml.core 0"], done.err


def test_a_shell_script(place):
    (place / "submit.sh").write_text('az login\naz ml job list --query "[0].name"; echo "$1 $?"\n')
    command = (sys.executable, "-m", "drumline", "azure", "shell", "submit.sh", "--debug")
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("--debug 0\n")


def test_a_module_of_that_name_without_a_run_stays_the_programs(cli, place):
    core = place / "src" / "azureml" / "core"
    core.mkdir(parents=True)
    (core / "__init__.py").write_text("")
    (core / "run.py").write_text("own = 1\n")
    program = "from azureml.core.run import own; print('own is', own)"
    done = cli("run", "--", "python", "-c", program, cwd=place / "src")
    assert (done.rc, "own is 1" in done.out) == (0, True), done.out + done.err


AZ = [
    ("az account show --query id -o tsv", 0, "local"),
    ("az account get-access-token --resource https://ml.azure.com --query tokenType -o tsv", 0, "Bearer"),
    ("az login --identity", 0, "there is no cloud"),
    ("az account set -s mine", 0, "there is no cloud"),
    ("az login -p secret -u me", 0, "az login: nothing"),
    ("az storage --account-key secret list", 2, "az storage: Drumline"),
    ("DRUMLINE_HOME=$PWD/home az storage blob list", 2, "no other az is on the PATH"),
    ("az extension add -n ml -y", 0, "there is no cloud"),
    ("az configure --defaults group=g workspace=vision", 0, ""),
    ("az ml job show -n not_there", 3, "there is no job 'not_there'"),
    ("az ml online-endpoint create -n x", 2, "Drumline trains; it has no endpoints"),
    ("az storage blob list", 2, "no other az is on the PATH"),
]


def test_az_answers_what_scripts_ask(place):
    program = "import os, sys; os.dup2(1, 2); os.execl('/bin/sh', 'sh', '-c', sys.argv[1])"
    (place / "argparse.py").write_text("raise SystemExit('of the folder')")
    for line, code, words in AZ:
        command = (sys.executable, "-P", "-m", "drumline", "python", "-c", program, line)
        done = subprocess.run(
            command,
            cwd=place,
            env={**os.environ, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, words in done.stdout) == (code, True), (line, done.stdout, done.stderr)
    az = place / "real" / "az"
    az.parent.mkdir()
    az.write_text('#!/bin/sh\necho "real: $*$DRUMLINE_AZURE"\n')
    az.chmod(0o700)
    path = f"{az.parent}{os.pathsep}/usr/bin:/bin"
    assert run_python(place, "-c", program, "az storage blob list", PATH=path) == "real: storage blob list\n"
    line = "az account get-access-token --query tokenType -o tsv"
    assert run_python(place, "-c", program, line, PATH=path) == f"real: {line[3:]}\n"
    az.write_text("#!/bin/sh\necho 'Please run az login' >&2; exit 1\n")
    assert run_python(place, "-c", program, line, PATH=path) == "Bearer\n"


def test_the_extension_comes_before_azures_own_package(tmp_path):
    (tmp_path / "azure/ai/ml").mkdir(parents=True)
    (tmp_path / "azure/ai/ml/__init__.py").write_text("")
    program = "import azure.ai.ml\nfrom drumline.azure import load_ipython_extension as load\nload(None)\n"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "azure.ai.ml was imported before" in done.stderr, done.stderr
    assert "restart the kernel" in done.stderr
