"""What the links of nodes carried, kept for each compute: shown by df, removed by prune and with the compute."""

import json
import os
import time

import pytest

from drumline.cli.main import main
from drumline.control.machine import computes
from drumline.spec.registered.compute import LocalCompute, SlurmCompute
from drumline.store.link_history import NodeLink, add_job, read_history

LONG_AGO = (time.time() - 40 * 86400,) * 2


@pytest.fixture
def keep(drumline_home):
    """Keep links of a compute, and return their file. ``home``: another than the test's."""

    def keep(compute, home=None, times=LONG_AGO):
        add_job(str(home or drumline_home), compute, "calm_drum", 1e9, {"n1": NodeLink(100, 7, 1e-4)})
        path = (home or drumline_home) / "node-links" / f"{compute}.jsonl"
        os.utime(path, times)
        return path

    return keep


@pytest.fixture
def show(capsys):
    def show(*words):
        assert main([*words, "-o", "json"]) == 0
        return json.loads(capsys.readouterr().out)

    return show


def test_df_counts_those_of_attached_computes_as_in_use(keep, show):
    computes.attach(LocalCompute(name="lab"))
    sizes = {path.stem: path.lstat().st_blocks * 512 for path in (keep("lab"), keep("gone"))}
    rows = {row["type"]: row for row in show("df")}
    row = rows["links of nodes"]
    assert (row["count"], row["in_use"], row["reclaimable_bytes"]) == (2, 1, sizes["gone"])
    assert sum(sizes.values()) <= row["size_bytes"] < sum(sizes.values()) + 100_000
    # Each file counts in one row.
    assert rows["assets and indexes"]["count"] == 1


def test_prune_removes_those_of_computes_that_are_gone_when_they_are_old(keep, show):
    computes.attach(LocalCompute(name="lab"))
    attached, gone, young = keep("lab"), keep("gone"), keep("young", times=None)
    words = ("prune", "--older-than", "30d")
    said = show(*words, "--dry-run")["removed"]["links"]
    assert (said["count"], gone.exists()) == (1, True)
    # Those who remove some jobs alone do not ask for this.
    show(*words, "--experiment", "digits", "--yes")
    show(*words, "--keep-outputs", "--yes")
    assert gone.exists()
    show(*words, "--yes")
    assert (attached.exists(), gone.exists(), young.exists()) == (True, False, True)


def test_prune_names_what_it_removes(keep, capsys):
    keep("gone")
    assert main(["prune", "--older-than", "30d", "--dry-run", "-o", "table"]) == 0
    assert "not used for 30d, and nothing needs them" in capsys.readouterr().out
    assert main(["prune", "--older-than", "30d", "--yes", "-o", "table"]) == 0
    assert "removed: 1 record of links; " in capsys.readouterr().out


def test_a_compute_takes_its_own_along_from_every_home(keep, drumline_home, tmp_path):
    computes.attach(SlurmCompute(name="gpu", folder=str(tmp_path / "shared")), check=False)
    computes.attach(LocalCompute(name="lab"))
    of_workspace, shared = drumline_home / "workspaces" / "team", tmp_path / "shared"
    files = [keep("gpu"), keep("gpu", of_workspace), keep("gpu", shared)]
    files += [keep("gpu", shared / "workspaces" / "team")]
    other = keep("lab")
    computes.detach("gpu")
    assert [path.exists() for path in files] == [False] * 4
    assert other.exists()
    # One of this name that is attached later begins anew.
    assert read_history(str(drumline_home), "gpu") == {}


def test_a_record_that_cannot_be_removed_keeps_no_compute(keep, drumline_home):
    computes.attach(LocalCompute(name="lab"))
    (drumline_home / "node-links").mkdir()
    (drumline_home / "node-links" / "lab.jsonl").mkdir()
    computes.detach("lab")
    assert computes.names() == []
