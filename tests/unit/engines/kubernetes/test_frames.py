"""Files of a run folder that leave a pod as lines, and arrive where the job was submitted."""

import json
import os

import pytest

from drumline.engines.kubernetes import frames
from drumline.engines.kubernetes.receiver import Receiver


@pytest.fixture
def there(tmp_path):
    folder = tmp_path / "there"
    (folder / "user_logs").mkdir(parents=True)
    return folder


@pytest.fixture
def here(tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


def carry(sender, here, **how):
    """The paths that were news."""
    receiver, paths = Receiver(str(here)), []
    for frame in sender.find_news(**how):
        decoded = frames.decode(frames.encode(frame))
        assert decoded == frame
        receiver.take(decoded)
        paths.append(frame.path)
    return paths


def test_what_is_written_arrives_once(there, here):
    sender = frames.Sender(str(there), limit=100)
    log = there / "user_logs" / "std_log_process_00.txt"
    log.write_bytes(b"a\xff\n")
    (there / "events.jsonl").write_text("{}\n")
    assert sorted(carry(sender, here)) == ["events.jsonl", "user_logs/std_log_process_00.txt"]
    assert carry(sender, here) == []
    with log.open("ab") as file:
        file.write(b"x" * (2 * frames.PIECE))
    assert carry(sender, here) == ["user_logs/std_log_process_00.txt"] * 2
    for path in ("events.jsonl", "user_logs/std_log_process_00.txt"):
        assert (here / path).read_bytes() == (there / path).read_bytes()


def test_an_empty_file_and_one_that_was_replaced_arrive_too(there, here):
    sender = frames.Sender(str(there), limit=100)
    (there / "user_logs" / "a").touch()
    (there / "clocks.json").write_text('{"a": 1234}')
    carry(sender, here)
    assert (here / "user_logs" / "a").read_bytes() == b""
    (there / "new").write_text("{}")
    os.rename(there / "new", there / "clocks.json")
    carry(sender, here)
    assert (here / "clocks.json").read_text() == "{}"


def test_reading_all_of_it_again_changes_nothing(there, here):
    (there / "events.jsonl").write_text("1\n2\n")
    lines = [frames.encode(one) for one in frames.Sender(str(there), 0).find_news()]
    for line in lines + lines:
        frame = frames.decode(line)
        assert frame is not None
        Receiver(str(here)).take(frame)
    assert (here / "events.jsonl").read_text() == "1\n2\n"


def test_outputs_come_at_the_end_as_far_as_they_fit(there, here):
    (there / "outputs").mkdir()
    (there / "outputs" / "small").write_text("1234")
    (there / "outputs" / "tiny").write_text("12")
    (there / "named-outputs" / "model").mkdir(parents=True)
    (there / "named-outputs" / "model" / "big").write_bytes(bytes(3 << 20))
    sender = frames.Sender(str(there), limit=2 << 20)
    assert carry(sender, here) == []
    assert carry(sender, here, with_results=True) == ["outputs/small", "outputs/tiny"]
    assert sender.left_out == {
        "named-outputs/model/big": "3 MiB, and 2 MiB of 2 MiB is left in its pod's log"
    }


def test_what_is_the_pods_own_stays_there(there, here):
    for name in ("agents.json", "secrets.pad", "supervisor.json", "cancel", "plan.json", "scratch"):
        (there / name).write_text("x")
    (there / "system_logs").mkdir()
    (there / "system_logs" / "reserve").write_text("x")
    (there / "user_logs" / "link").symlink_to("/etc/passwd")
    os.mkfifo(there / "user_logs" / "pipe")
    (there / "system_metrics").mkdir()
    (there / "system_metrics" / "node-0.1234abcd.partial").write_text("x")
    assert carry(frames.Sender(str(there), 100), here, with_results=True) == []


def test_links_in_outputs_are_followed_as_far_as_their_output(there, here, tmp_path):
    outputs, model = there / "outputs", there / "named-outputs" / "model"
    (outputs / "epochs").mkdir(parents=True)
    model.mkdir(parents=True)
    (tmp_path / "secret").write_text("x")
    (outputs / "epochs" / "epoch=9.ckpt").write_text("1234")
    (outputs / "last.ckpt").symlink_to("epochs/epoch=9.ckpt")
    (outputs / "chain").symlink_to(outputs / "last.ckpt")
    (outputs / "latest").symlink_to("epochs")
    (outputs / "gone").symlink_to("nothing")
    (outputs / "round").symlink_to("round")
    (outputs / "out").symlink_to(tmp_path / "secret")
    (outputs / "up").symlink_to("../../secret")
    (model / "other").symlink_to("../../outputs/last.ckpt")
    os.mkfifo(outputs / "pipe")
    sender = frames.Sender(str(there), 100)
    sent = carry(sender, here, with_results=True)
    # What links lead to goes first, should there be no room for all.
    assert sent == ["outputs/epochs/epoch=9.ckpt", "outputs/chain", "outputs/last.ckpt"]
    assert (here / "outputs" / "last.ckpt").read_text() == "1234"
    assert not (here / "outputs" / "last.ckpt").is_symlink()
    assert sender.left_out.pop("outputs/round") in ("a link to nothing", "Too many levels of symbolic links")
    assert sender.left_out == {
        "outputs/latest": "a link to a folder",
        "outputs/gone": "a link to nothing",
        "outputs/out": "a link out of its output",
        "outputs/up": "a link out of its output",
        "outputs/pipe": "no plain file",
        "named-outputs/model/other": "a link out of its output",
    }


def test_a_folder_of_outputs_that_becomes_a_link_leads_nowhere(there, here, tmp_path):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "a").write_text("x")
    (there / "outputs").symlink_to(tmp_path / "secrets")
    sender = frames.Sender(str(there), 100)
    assert carry(sender, here, with_results=True) == []
    assert list(sender.left_out) == ["outputs/a"]


def test_outputs_may_have_any_name_and_those_that_cannot_be_sent_are_told(there, here):
    outputs = there / "outputs"
    deepest = outputs.joinpath(*"abcdefghij")
    (deepest / "k").mkdir(parents=True)
    for path in (outputs / "cuda_reserve", outputs / "reserve", outputs / "a.partial", deepest / "x"):
        path.write_text("x")
    (deepest / "k" / "y").write_text("x")
    with open(os.fsencode(outputs) + b"/\xff", "w") as file:
        file.write("x")
    sender = frames.Sender(str(there), 100)
    sent = carry(sender, here, with_results=True)
    assert sorted(sent) == sorted(
        ["outputs/a.partial", "outputs/cuda_reserve", "outputs/reserve", "outputs/a/b/c/d/e/f/g/h/i/j/x"]
    )
    assert sender.left_out == {
        "outputs/\udcff": "its name is not UTF-8",
        "outputs/a/b/c/d/e/f/g/h/i/j/k/y": "more than 11 folders deep",
    }


def test_a_long_list_of_what_was_left_out_ends_with_how_many_more(there, here):
    sender = frames.Sender(str(there), 0)
    sender.left_out = {f"outputs/{number:0100}": "a link to nothing" for number in range(1234)}
    receiver = Receiver(str(here))
    for frame in sender.list_left_out("pod-a"):
        decoded = frames.decode(frames.encode(frame))
        assert decoded == frame
        receiver.take(decoded)
    lines = (here / "system_logs" / "outputs-left-out-pod-a.jsonl").read_text().splitlines()
    assert (len(lines), json.loads(lines[-1])) == (1001, {"more": 234})
    assert json.loads(lines[0]) == {"path": f"outputs/{0:0100}", "reason": "a link to nothing"}


@pytest.mark.parametrize(
    "change",
    [
        {"path": "../x"},
        {"path": "/etc/passwd"},
        {"path": "user_logs/../../x"},
        {"path": "user_logs//x"},
        {"path": "plan.json"},
        {"path": "code/train.py"},
        {"path": "user_logs/" + "a/" * 20 + "x"},
        {"at": -1},
        {"at": "x"},
        {"at": 1 << 63},
        {"at": float("inf")},
        {"n": -1},
        {"path": "user_logs/\ud800"},
        {"data": "!"},
        {"kind": "mine"},
        {"path": ""},
    ],
)
def test_a_line_that_no_pod_of_ours_writes_is_left_out(change):
    good = {"kind": frames.MARK, "path": "user_logs/a", "at": 0, "data": "eA=="}
    assert frames.decode(json.dumps(good)) == frames.Frame("user_logs/a", 0, b"x")
    assert frames.decode(json.dumps({**good, **change})) is None


@pytest.mark.parametrize("line", ["", "ready", "[]", "1", "{}", '{"kind": "drumline-frame"}', "[" * 100000])
def test_what_a_program_prints_is_left_out(line):
    assert frames.decode(line) is None


def test_nothing_is_written_outside_the_run_folder(here, tmp_path):
    (tmp_path / "out").mkdir()
    (here / "user_logs").symlink_to(tmp_path / "out")
    (here / "events.jsonl").symlink_to(tmp_path / "out" / "events")
    for path in ("user_logs/a", "events.jsonl"):
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            Receiver(str(here)).take(frames.Frame(path, 0, b"x"))
    assert list((tmp_path / "out").iterdir()) == []


def test_a_piece_far_behind_the_end_of_its_file_is_left_out(here):
    receiver = Receiver(str(here))
    receiver.take(frames.Frame("user_logs/a", 1 << 20, b"x"))
    receiver.take(frames.Frame("user_logs/a", 1 << 60, b"x"))
    assert (here / "user_logs" / "a").stat().st_size == (1 << 20) + 1


def test_what_is_missing_ends_with_its_line(here):
    receiver = Receiver(str(here))
    receiver.take(frames.Frame("user_logs/a", 0, b"1\n"))
    receiver.take(frames.Frame("user_logs/a", 10, b"2\n"))
    assert (here / "user_logs" / "a").read_bytes().splitlines()[-1] == b"2"
