"""The links of nodes over time: kept for their owner, bounded, and whole whatever was cut off."""

import json
import os

import pytest

from drumline.store import link_history
from drumline.store.link_history import NodeLink, add_job, read_history


def add(home, count=1, host="n1", rate=100):
    for number in range(count):
        add_job(str(home), "lab", f"job-{number}", 1e9 + number, {host: NodeLink(rate + number, 7, 1e-4)})


def test_what_was_added_is_read_by_node_oldest_first(tmp_path):
    assert read_history(str(tmp_path), "lab") == {}
    add(tmp_path, 3)
    add(tmp_path, host="n2")
    found = read_history(str(tmp_path), "lab")
    assert [one.to_bytes_per_s for one in found["n1"]] == [100, 101, 102]
    assert found["n2"] == [NodeLink(100, 7, 1e-4)]
    assert read_history(str(tmp_path), "another") == {}


def test_it_is_for_its_owner_alone_and_stays_in_its_folder(tmp_path):
    add_job(str(tmp_path), "../../etc", "job", 1e9, {"n1": NodeLink(1, 1, 0.0)})
    (file,) = (tmp_path / "node-links").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert read_history(str(tmp_path), "../../etc")["n1"]


def test_a_line_that_was_cut_off_costs_itself_alone(tmp_path):
    add(tmp_path)
    file = tmp_path / "node-links" / "lab.jsonl"
    with file.open("a") as opened:
        opened.write('{"nodes": {"n1": [1,')
    add(tmp_path)
    for text in ("[]", '{"nodes": 3}', '{"nodes": {"n1": [1]}}', '{"nodes": {"n1": ["x", 1, 1]}}', "\x00"):
        with file.open("a") as opened:
            opened.write(text + "\n")
    assert len(read_history(str(tmp_path), "lab")["n1"]) == 2


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "node-links").mkdir()
    (tmp_path / "mine").write_text("mine\n")
    os.symlink(tmp_path / "mine", tmp_path / "node-links" / "lab.jsonl")
    with pytest.raises(OSError, match=r"symbolic|loop"):
        add(tmp_path)
    assert (tmp_path / "mine").read_text() == "mine\n"
    assert read_history(str(tmp_path), "lab") == {}


def test_it_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(link_history, "_MOST_BYTES", 2000)
    monkeypatch.setattr(link_history, "MOST_RUNS", 5)
    add(tmp_path, 60)
    file = tmp_path / "node-links" / "lab.jsonl"
    assert file.stat().st_size < 3000
    assert json.loads(file.read_text().splitlines()[-1])["job"] == "job-59"
    links = read_history(str(tmp_path), "lab")["n1"]
    assert [one.to_bytes_per_s for one in links] == [155, 156, 157, 158, 159]
