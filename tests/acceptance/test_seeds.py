"""Scripts and job files written for Azure ML, with their import lines changed: those that need no framework."""

import ast
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from drumline import identity

ROOT = Path(__file__).parents[2]
AZURE = ROOT / "examples" / "azure"
SCRIPTS = [path for path in sorted(AZURE.rglob("*.py")) if "from drumline" in path.read_text()]
STAND_IN = ROOT / "tests" / "jobs" / "tf_workers.py"


def names_bound_by(imports):
    return sorted(alias.asname or alias.name for node in imports for alias in node.names)


def test_there_is_a_script_for_each_sdk():
    assert {path.parent.name for path in SCRIPTS if path.name == "submit.py"} == {
        "cifar-pair",
        "tensorflow-mnist",
        "component-pipeline",
        "lightning-mpi",
    }


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(AZURE)))
def test_nothing_but_the_import_lines_differs_from_azures_script(path):
    """The comment has Azure's lines: they bind the names that ours bind, and nothing else speaks of Drumline."""
    text = path.read_text()
    comment = "\n".join(re.findall(r"^#   ((?:from|import) .+)$", text, re.MULTILINE))
    theirs = [node for node in ast.parse(comment).body if isinstance(node, ast.ImportFrom)]
    assert all(re.match(r"azure(ml)?\.", node.module) for node in theirs)
    ours = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and re.match(r"drumline\b", node.module or "")
    ]
    assert names_bound_by(ours) == names_bound_by(theirs)
    lines = text.splitlines()
    for node in ours:
        lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    assert "drumline" not in "\n".join(lines).lower()


def test_each_folder_has_its_page():
    folders = [path for path in AZURE.iterdir() if path.is_dir()]
    assert len(folders) == 6
    for folder in folders:
        assert (folder / "README.md").is_file()


def test_credentials_are_made_as_in_azure_and_keep_nothing():
    for name in identity.__all__:
        if not name.endswith("Credential"):
            continue
        credential = getattr(identity, name)(exclude_interactive_browser_credential=False)
        token = credential.get_token("https://management.azure.com/.default")
        assert (token.token, token.expires_on > time.time()) == ("", True)
    assert vars(identity.ClientSecretCredential("tenant", "client", "secret")) == {}


# The two pipelines that print what their ranks find in the environment


def printed_by(cli, name):
    """What the ranks of the only step print, as the pipeline streams it."""
    done = cli("job", "create", "-f", "pipeline.yml", "--stream", cwd=AZURE / name)
    assert done.rc == 0, done.out + done.err
    step = name.replace("-world", "").replace("-", "_")
    assert f"step {step} completed" in done.out
    return re.findall(rf"^\[{step}\] \[\d\|node-(\d)\] (.*)$", done.out, re.MULTILINE)


def test_hello_world_of_pytorch(cli):
    found = [
        (int(node), dict(word.split("=") for word in line.split()))
        for node, line in printed_by(cli, "hello-world-pytorch")
    ]
    found.sort(key=lambda one: one[1]["RANK"])
    assert [(node, seen["RANK"], seen["LOCAL_RANK"], seen["NODE_RANK"]) for node, seen in found] == [
        (0, "0", "0", "0"),
        (0, "1", "1", "0"),
        (1, "2", "0", "1"),
        (1, "3", "1", "1"),
    ]
    assert {seen["WORLD_SIZE"] for _, seen in found} == {"4"}
    ((address, port),) = {(seen["MASTER_ADDR"], seen["MASTER_PORT"]) for _, seen in found}
    assert address
    assert int(port)


def test_hello_world_of_tensorflow(cli):
    found = {int(node): json.loads(line) for node, line in printed_by(cli, "hello-world-tensorflow")}
    assert {node: seen["task"] for node, seen in found.items()} == {
        index: {"type": "worker", "index": index} for index in range(2)
    }
    assert found[0]["cluster"] == found[1]["cluster"]
    assert len(set(found[0]["cluster"]["worker"])) == 2


# The job of TensorFlow's workers


def test_the_tensorflow_script_submits_workers_that_find_each_other(tmp_path, drumline_home):
    """As submitted for TensorFlow; where TensorFlow itself is, tests/frameworks runs its own program as well."""
    examples = tmp_path / "the examples"
    folder = shutil.copytree(AZURE / "tensorflow-mnist", examples / "azure" / "tensorflow-mnist")
    shutil.copytree(ROOT / "examples" / "digits-ddp" / "data", examples / "digits-ddp" / "data")
    shutil.copyfile(STAND_IN, folder / "src" / "main.py")
    with tempfile.TemporaryFile("w+") as out:
        done = subprocess.run(
            [sys.executable, "submit.py"], cwd=folder, stdout=out, stderr=subprocess.STDOUT, timeout=200
        )
        out.seek(0)
        text = out.read()
    assert done.returncode == 0, text
    (name,) = re.findall(r"^(\S+): Completed$", text, re.MULTILINE)
    digits = (examples / "digits-ddp" / "data" / "digits.csv").read_text().splitlines()
    total = sum(int(line.split(",")[-1]) for line in digits)
    for index in range(2):
        assert f"[{index}|node-{index}] worker {index} of 2: {total}" in text
    kept = drumline_home / "workspaces" / "examples" / "jobs" / name / "outputs" / "keras-model"
    assert sum(json.loads((kept / "gathered.json").read_text())) == total
