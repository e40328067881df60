"""Code that is larger than a Secret reaches a pod in parts."""

import base64
import os
import subprocess
import sys

import pytest
from planning import plan

from drumline.contract.folder import RunFolder
from drumline.engines.kubernetes import bundle
from drumline.engines.kubernetes.manifests import pod_files

CODE = os.urandom(3 << 20)
"""No archive makes it smaller."""


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(str(tmp_path / "home" / "jobs" / "calm_drum"))
    os.makedirs(folder.path)
    for path in (folder.job, folder.events):
        folder.write(path, "")
    code = tmp_path / "home" / "snapshots" / "a1b2"
    code.mkdir(parents=True)
    (code / "weights.bin").write_bytes(CODE)
    return folder


def make(folder, secrets=""):
    job = plan(2, at={"engine": "kubernetes", "folder": folder})._replace(snapshot="a1b2")
    return bundle.make_bundle(job, folder, secrets)


def test_a_pod_unpacks_the_parts_of_all_secrets(folder, tmp_path):
    made = make(folder, "the secrets")
    values = [[base64.b64decode(value) for value in data.values()] for data in made]
    assert len(made) == 4
    assert all(sum(map(len, one)) <= bundle.MOST_BYTES for one in values)
    assert [name for name in made[0] if name in made[1]] == []
    there = tmp_path / "mounted"
    there.mkdir()
    for data in made:
        for name, value in data.items():
            (there / name).write_bytes(base64.b64decode(value))
    unpacks = pod_files.boot(str(tmp_path / "pod"), str(there), str(tmp_path / "lib")).split("os.environ", 1)[
        0
    ]
    subprocess.run([sys.executable, "-c", unpacks], check=True)
    assert (tmp_path / "pod" / "snapshots" / "a1b2" / "weights.bin").read_bytes() == CODE
    assert (tmp_path / "lib" / "drumline" / "__init__.py").exists()


@pytest.mark.parametrize("most", [1, 3])
def test_code_for_which_there_is_no_room_is_refused(folder, monkeypatch, most):
    monkeypatch.setattr(bundle, "MOST_SECRETS", most)
    with pytest.raises(bundle.TooLargeError, match=f"more than {most - 1} MB compressed") as refused:
        make(folder)
    assert refused.value.exit_code == 2
