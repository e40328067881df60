"""Event files of TensorBoard, as its own writers write them, and as nobody should."""

import math
import os
import struct
import time
from itertools import pairwise

import pytest

from drumline.tracking import event_files
from drumline.tracking.event_files import ReadState, masked_crc, read_scalars
from drumline.tracking.event_files import parse_scalars as scalars_of

tensorboardx = pytest.importorskip("tensorboardX")


def write(folder, count=3, name="loss"):
    """The file of a run with the values 0, 1, 2, ... at those steps."""
    with tensorboardx.SummaryWriter(str(folder)) as writer:
        for step in range(count):
            writer.add_scalar(name, float(step), step)
    (path,) = folder.iterdir()
    return path


def values(points):
    return [(point.step, point.value) for point in points]


def frame(content):
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked_crc(length)) + content + struct.pack("<I", masked_crc(content))


def test_scalars_are_read_with_their_run_in_front(tmp_path):
    with tensorboardx.SummaryWriter(str(tmp_path / "run")) as writer:
        for step in range(3):
            writer.add_scalar("loss", 1 / (step + 1), step, walltime=1000.5 + step)
        writer.add_scalar("odd/nan", math.nan, 7)
        writer.add_text("note", "no scalar")
        writer.add_histogram("weights", [1.0, 2.0], 0)
    found = read_scalars(str(tmp_path))
    assert sorted(found) == ["run/loss", "run/odd/nan"]
    assert values(found["run/loss"]) == [(0, 1.0), (1, 0.5), (2, pytest.approx(1 / 3))]
    assert [point.timestamp_ms for point in found["run/loss"]] == [1000500, 1001500, 1002500]
    assert math.isnan(found["run/odd/nan"][0].value)


def test_a_file_that_grows_is_read_on_from_where_it_ended(tmp_path):
    whole = write(tmp_path / "whole", 4).read_bytes()
    (tmp_path / "growing").mkdir()
    path, state = tmp_path / "growing" / "events.out.tfevents.1.x", ReadState()
    # The last record is torn, as a writer may be seen in its middle.
    path.write_bytes(whole[:-5])
    assert values(read_scalars(str(path.parent), state)["loss"]) == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert read_scalars(str(path.parent), state) == {}
    with path.open("ab") as file:
        file.write(whole[-5:])
    assert values(read_scalars(str(path.parent), state)["loss"]) == [(3, 3.0)]


def test_damage_ends_a_file_and_keeps_what_was_before(tmp_path):
    path = write(tmp_path / "run", 40)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    path.write_bytes(damaged)
    found = values(read_scalars(str(tmp_path))["run/loss"])
    assert 0 < len(found) < 40
    assert found == [(step, float(step)) for step in range(len(found))] or found[-1][0] == 39


def test_a_scalar_that_is_a_tensor(tmp_path):
    """As TensorFlow 2 and Keras write them: the plug-in is named once."""
    tensor = b"\x08\x01\x22\x04" + struct.pack("<f", 0.25)
    metadata = b"\x0a\x09\x0a\x07scalars"
    first = b"\x0a\x04loss\x42" + bytes([len(tensor)]) + tensor + b"\x4a" + bytes([len(metadata)]) + metadata
    later = b"\x0a\x04loss" + b"\x42" + bytes([len(tensor)]) + tensor
    records = b""
    for step, value in enumerate((first, later)):
        summary = b"\x0a" + bytes([len(value)]) + value
        event = (
            b"\x09"
            + struct.pack("<d", 5.0)
            + b"\x10"
            + bytes([step])
            + b"\x2a"
            + bytes([len(summary)])
            + summary
        )
        records += frame(event)
    (tmp_path / "events.out.tfevents.1.v2").write_bytes(records)
    assert values(read_scalars(str(tmp_path))["loss"]) == [(0, 0.25), (1, 0.25)]


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        (b"\x08\x01\x2a\x04" + struct.pack("<f", 1.5), 1.5),
        (b"\x08\x02\x32\x08" + struct.pack("<d", -2.5), -2.5),
        (b"\x08\x03\x3a\x0a" + b"\xff" * 9 + b"\x01", -1.0),
        (b"\x08\x09\x50\x07", 7.0),
        (b"\x08\x13\x22\x02\x00\x3c", 1.0),
        (b"\x08\x0e\x6a\x02\x80\x7f", 1.0),
        (b"\x08\x07\x42\x01x", None),
        (b"\x08\x01\x12\x04\x12\x02\x08\x02\x22\x08" + b"\0" * 8, None),
    ],
    ids=["float", "double", "int32", "int64", "half", "bfloat16", "string", "vector"],
)
def test_tensors_of_every_kind(tensor, value):
    content = b"\x0a\x01x\x42" + bytes([len(tensor)]) + tensor
    summary = b"\x0a" + bytes([len(content)]) + content
    found = list(scalars_of(b"\x2a" + bytes([len(summary)]) + summary, "", {}))
    if value is None:
        assert found == []
    else:
        assert found[0][1].value == pytest.approx(value, rel=0.02)


def test_a_length_of_exabytes_is_not_believed(tmp_path):
    length = struct.pack("<Q", 1 << 62)
    path = tmp_path / "events.out.tfevents.1.x"
    path.write_bytes(length + struct.pack("<I", masked_crc(length)) + b"x" * 100)
    assert read_scalars(str(tmp_path)) == {}


@pytest.mark.parametrize(
    "content", [b"", os.urandom(1 << 16), b"\xff" * 4096, frame(b"\x2a\xff\xff\xff\xff\x0f")]
)
def test_what_is_no_event_file_has_nothing_in_it(tmp_path, content):
    (tmp_path / "events.out.tfevents.1.x").write_bytes(content)
    assert read_scalars(str(tmp_path)) == {}


def test_links_and_pipes_are_passed_by(tmp_path):
    path = write(tmp_path / "run")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "away").symlink_to(tmp_path / "run")
    (inside / "events.out.tfevents.1.link").symlink_to(path)
    os.mkfifo(inside / "events.out.tfevents.2.pipe")
    assert read_scalars(str(inside)) == {}


@pytest.mark.parametrize("count", [4097, 8192, 8193, 16_385])
def test_no_point_is_there_twice_where_points_are_left_out(tmp_path, count):
    write(tmp_path / "run", count)
    steps = [point.step for point in read_scalars(str(tmp_path), limit_s=60)["run/loss"]]
    assert steps == sorted(set(steps))
    assert steps[-1] == count - 1
    assert len({after - before for before, after in pairwise(steps[:-1])}) == 1


def test_a_long_history_takes_bounded_time_and_keeps_its_end(tmp_path):
    write(tmp_path / "run", 20_000)
    state, found = ReadState(), []
    deadline = time.monotonic() + 60
    while True:
        found += read_scalars(str(tmp_path), state, limit_s=0.2).get("run/loss", [])
        if not state.behind or time.monotonic() > deadline:
            break
    assert found[-1].value == 19_999.0
    assert [point.step for point in found] == sorted({point.step for point in found})
    assert len(read_scalars(str(tmp_path), limit_s=60)["run/loss"]) <= event_files.MOST_POINTS + 1
