"""``drumline cache``: where it is, what is in it, and making room."""

import json
import os
import pty
import subprocess
import sys
import time

import pytest
from shelf import Shelf, fetch

from drumline.contract import events as e
from drumline.contract import process_identity
from drumline.contract.folder import RunFolder


@pytest.fixture
def asked(cli):
    """What a verb prints, as JSON."""

    def run(*arguments):
        result = cli("cache", *arguments, "-o", "json")
        assert result.rc == 0, result.err
        return json.loads(result.out)

    return run


@pytest.fixture
def filled(tmp_path):
    """100 kB that a job reads, whose supervisor is this process, and 200 kB that nobody does."""
    for name, size, writable in (("used", 100_000, False), ("free", 200_000, True)):
        (tmp_path / name).write_bytes(os.urandom(size))
        folder = RunFolder(str(tmp_path / "jobs" / name))
        os.makedirs(folder.path)
        folder.begin(e.JobSubmitted(time.time(), "somebody"))
        folder.write(folder.supervisor, json.dumps(process_identity.identify_process(os.getpid())))
        fetch(folder.path, "d", Shelf(tmp_path / name), kind="file", writable=writable)


def test_before_anything_was_fetched(asked, drumline_home):
    shown = asked("show")
    assert (shown["path"], shown["size"], shown["files"]) == (str(drumline_home / "cache"), "0 B", 0)
    assert asked("list") == []
    assert asked("prune")["files"] == asked("clear", "--yes")["files"] == 0
    assert not drumline_home.exists()


def test_show_and_list(filled, asked, cli):
    shown = asked("show")
    assert (shown["size_bytes"], shown["files"], shown["limit_from"]) == (300_000, 2, "default")
    assert shown["used_by"] == ["used"]
    entries = asked("list")
    assert [(one["uri"], one["size"], one["files"], one["used_by"]) for one in entries] == [
        ("s3://shelf/data", "195 KiB", 1, []),
        ("s3://shelf/data", "97.7 KiB", 1, ["used"]),
    ]
    assert len(asked("list", "-r", "1")) == 1
    assert cli("cache", "list", "--query", "[0].files", "-o", "tsv").out == "1\n"
    assert "s3://shelf/data  195 KiB" in cli("cache", "list", "-o", "table").out


def test_prune_and_clear_leave_what_a_job_uses(filled, asked):
    would = asked("prune", "--to", "50kB", "--dry-run")
    assert (would["size"], would["left"]) == ("195 KiB", "97.7 KiB")
    assert asked("show")["files"] == 2
    assert asked("prune", "--older-than", "1d")["files"] == 0
    assert asked("prune", "--to", "50kB") == would
    assert asked("clear", "--yes")["left"] == "97.7 KiB"


def test_the_limit_is_kept(asked, cli):
    assert asked("limit", "200GiB") == {
        "limit": "200 GiB",
        "limit_bytes": 200 << 30,
        "limit_from": "settings",
    }
    assert asked("limit")["limit"] == "200 GiB"
    assert asked("limit", "default")["limit_from"] == "default"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["limit", "much"], "limit: 'much' is not a size"),
        (["prune", "--to", "-1"], "--to"),
        (["prune", "--to", "x"], "--to: 'x' is not a size"),
        (["prune", "--older-than", "30"], "--older-than: '30' has no unit"),
        (["clear"], "drumline cache clear --yes"),
    ],
)
def test_what_cannot_be_used_is_said(cli, arguments, words):
    result = cli("cache", *arguments)
    assert result.rc == 2
    assert words in result.err


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 1), ("n", 1, 2), ("", 1, 2)])
def test_clear_asks_on_a_terminal(filled, asked, answer, code, left):
    ours, theirs = pty.openpty()
    os.write(ours, answer.encode() + b"\n")
    done = subprocess.run(
        [sys.executable, "-m", "drumline", "cache", "clear"], stdin=theirs, capture_output=True, text=True
    )
    os.close(ours)
    os.close(theirs)
    assert done.returncode == code
    assert "[y/N]" in done.stderr
    assert asked("show")["files"] == left
