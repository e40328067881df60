"""Code that is larger than a Secret reaches a pod in parts."""

import base64
import io
import os
import re
import subprocess
import sys
import tarfile

import pytest
from planning import plan

from drumline.contract.folder import RunFolder
from drumline.contract.plan import InputCopy
from drumline.engines.kubernetes import bundle

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


def make(folder, secrets="", **changed):
    job = plan(2, at={"engine": "kubernetes", "folder": folder})._replace(snapshot="a1b2", **changed)
    return bundle.make_bundle(job, folder, secrets)


def list_inputs(made):
    """What is packed of inputs: by path the content, or what a link leads to."""
    parts = {name: value for data in made for name, value in data.items() if name.startswith(bundle.JOB_FILE)}
    whole = b"".join(base64.b64decode(parts[name]) for name in sorted(parts))
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        return {
            one.name.removeprefix("given-inputs/"): archive.extractfile(one).read().decode()
            if one.isreg()
            else one.linkname
            for one in archive.getmembers()
            if one.name.startswith("given-inputs/")
        }


def test_compiled_files_of_an_input_stay_here(folder, tmp_path):
    compiled = tmp_path / "data" / "package" / "__pycache__"
    compiled.mkdir(parents=True)
    (compiled / "a.cpython-311.pyc").write_text("1")
    (compiled.parent / "a.py").write_text("2")
    packed = list_inputs(make(folder, copies=(InputCopy("x", str(tmp_path / "data"), "/t/data"),)))
    assert packed == {"0/data": "", "0/data/package": "", "0/data/package/a.py": "2"}


def test_links_of_an_input_bring_what_they_lead_to(folder, tmp_path):
    data, blobs = tmp_path / "data", tmp_path / "blobs"
    (data / "inner").mkdir(parents=True)
    blobs.mkdir()
    (data / "a").write_text("1")
    (data / "inner" / "up").symlink_to("../a")
    (blobs / "b").write_text("2")
    (blobs / "back").symlink_to(data)
    (data / "b").symlink_to(blobs / "b")
    (data / "absolute").symlink_to(data / "a")
    (data / "blobs").symlink_to(blobs)
    (data / "nothing").symlink_to("none")
    os.mkfifo(data / "pipe")
    link = tmp_path / "link"
    link.symlink_to(data)
    copies = (InputCopy("x", str(link), "/t/link"), InputCopy("y", str(link / "b"), "/t/b"))
    packed = list_inputs(make(folder, copies=copies))
    assert packed == {
        "0/link": "",
        "0/link/a": "1",
        "0/link/absolute": "1",
        "0/link/b": "2",
        "0/link/blobs": "",
        "0/link/blobs/b": "2",
        "0/link/blobs/back": "",
        "0/link/inner": "",
        "0/link/inner/up": "../a",
        "0/link/nothing": "none",
        "1/b": "2",
    }


def test_an_input_on_a_volume_is_not_sent(folder):
    copies = (InputCopy("x", "/data/digits", "/t/digits"),)
    compute = {"volumes": [{"claim": "datasets", "path": "/data"}]}
    assert list_inputs(make(folder, copies=copies, compute=compute)) == {}


def test_what_has_no_room_is_refused_with_its_size(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "MOST_SECRETS", 4)
    data = tmp_path / "data"
    data.mkdir()
    (data / "a").write_bytes(os.urandom(4_000_000))
    with pytest.raises(bundle.TooLargeError) as refused:
        make(folder, copies=(InputCopy("digits", str(data), "/t/data"),))
    sizes = r" MiB compressed: inputs\.digits has 3\.8\d MiB, code has 3 MiB$"
    assert re.search(sizes, refused.value.message), refused.value.message
    assert "volumes: [{claim: NAME, path: /data}]" in refused.value.hint


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
    unpacks = bundle.boot(str(tmp_path / "pod"), str(there), str(tmp_path / "lib")).split("os.environ", 1)[0]
    subprocess.run([sys.executable, "-c", unpacks], check=True)
    assert (tmp_path / "pod" / "snapshots" / "a1b2" / "weights.bin").read_bytes() == CODE
    assert (tmp_path / "lib" / "drumline" / "__init__.py").exists()


@pytest.mark.parametrize("most", [1, 3])
def test_code_for_which_there_is_no_room_is_refused(folder, monkeypatch, most):
    monkeypatch.setattr(bundle, "MOST_SECRETS", most)
    with pytest.raises(
        bundle.TooLargeError, match=r"more than [\d.]+ [KM]iB compressed: code has 3 MiB"
    ) as refused:
        make(folder)
    assert refused.value.exit_code == 2
