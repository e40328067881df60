"""The messages between supervisor and agents: what is sent is what is received, or it is refused."""

import base64
import json
import tracemalloc
import zlib

import pytest

from drumline.contract import channel
from drumline.contract import messages as m
from drumline.contract.channel import ChannelError
from drumline.contract.evidence import ExitEvidence

FRAMES = {"pid": 7, "name": "python", "state": "S", "waits_in": "", "frames": [["train.py", 1, "step"]]}
STACK = {**FRAMES, "threads": 1, "collective": None, "went_on": None, "spin": {}}
FAILURE = {"at": 1.0, "pid": 7, "type": "E", "message": "", "file": "", "line": 0, "function": ""}
LAUNCH = m.LaunchRanks(
    [m.RankLaunch(0, ["python", "train.py"], {"RANK": "0"}, "/logs/0.txt")],
    "/code",
    ["RANK"],
    [0, 1],
    {},
    launcher=m.LauncherTask(["mpirun"], {}, "/logs/mpirun.txt"),
    samples=m.SampleFile("/samples", 0),
    warm=m.WarmSettings("auto", "/pool"),
    secrets=["TOKEN"],
)


@pytest.mark.parametrize("message", [m.PrepareNode(["master_port"]), m.ReadClock(), LAUNCH])
def test_an_agent_receives_what_its_supervisor_sent(message):
    line = channel.encode(message)
    assert line.count(b"\n") == 1
    received = channel.decode_for_agent(json.loads(line))
    assert (type(received), received) == (type(message), message)


def test_the_records_in_a_message_are_records_again():
    launch = channel.decode_for_agent(json.loads(channel.encode(LAUNCH)))
    assert isinstance(launch, m.LaunchRanks)
    assert launch.ranks[0].env == {"RANK": "0"}
    assert launch.launcher is not None
    assert (launch.launcher.argv, launch.warm.pool) == (["mpirun"], "/pool")


@pytest.mark.parametrize(
    "message",
    [
        m.Hello("secret", 0, "1", "/lib/drumline", 7, "10.0.0.1", "cgroup"),
        m.RankEnded(3, None, 9, "", 1.5, ExitEvidence(FAILURE, [], reported=[], facts={"said": "bye"})),
        m.RankEnded(3, 127, None, "no such program", 1.5, None),
        m.ProgressPolled(1, [m.RankProgress(0, 10, 0.5, 20, 0.1, 2, [STACK], m.Activity(3))], 0.0, 0),
        m.RanksInspected([m.RankInspection(0, [], None)]),
    ],
)
def test_a_supervisor_receives_what_its_agent_sent(message):
    received = channel.decode_from_agent(json.loads(channel.encode(message)))
    assert type(received) is type(message)
    assert json.dumps(received._asdict()) == json.dumps(message._asdict())


NODES = ",".join(f"10.0.{node >> 8}.{node & 255}" for node in range(2000))


def test_a_long_message_to_many_agents_is_sent_packed():
    message = m.ShareVariables({"AZ_BATCH_HOST_LIST": NODES}, {}, {}, {"TOKEN": "hidden"})
    line = channel.encode_for_many(message)
    assert line.count(b"\n") == 1
    assert len(line) < len(channel.encode(message)) / 2
    assert channel.decode_for_agent(json.loads(line)) == message


def test_a_short_one_is_sent_as_to_one_agent():
    assert channel.encode_for_many(m.KillRanks()) == channel.encode(m.KillRanks())


def compressed(line):
    return json.loads(channel.encode(m.Compressed(base64.b64encode(zlib.compress(line)).decode())))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"type": "Compressed"}, "with the fields none"),
        ({"type": "Compressed", "line": 1}, "with the fields line"),
        ({"type": "Compressed", "line": "x"}, "damaged"),
        ({"type": "Compressed", "line": "\xe9"}, "damaged"),
        ({"type": "Compressed", "line": base64.b64encode(b"no zlib").decode()}, "damaged"),
        ({"type": "Compressed", "line": base64.b64encode(zlib.compress(b"{}")[:-5]).decode()}, "not whole"),
        (compressed(b"[1]"), "a line that is not a message"),
        (compressed(channel.encode(m.Compressed(""))), "a message 'Compressed', which"),
    ],
)
def test_a_damaged_packed_message_is_refused(line, said):
    with pytest.raises(ChannelError, match=said):
        channel.decode_for_agent(line)


def test_a_packed_message_cannot_fill_the_memory(monkeypatch):
    monkeypatch.setattr(channel, "MESSAGE_LIMIT", 100_000)
    line = compressed(b" " * 50_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(ChannelError, match="more than 100000 bytes"):
            channel.decode_for_agent(line)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_an_agent_cannot_send_a_packed_message():
    with pytest.raises(ChannelError, match="a message 'Compressed', which"):
        channel.decode_from_agent(compressed(channel.encode(m.ReadClock())))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"type": "WeatherSeen"}, "a message 'WeatherSeen', which this version does not have"),
        ({"type": "Hello"}, "a message 'Hello', which this version does not have"),
        ({"type": "EndCommand"}, "a message 'EndCommand' with the fields none"),
        ({"type": "EndCommand", "id": 1, "gently": True}, "'EndCommand' with the fields id, gently"),
        ({"type": "LaunchRanks", "ranks": [[0]]}, "a message 'LaunchRanks' with the fields ranks"),
    ],
)
def test_what_this_version_does_not_have_is_refused(line, said):
    """A field that one end does not know is a mistake: both are of one version, or do not come this far."""
    with pytest.raises(ChannelError, match=said):
        channel.decode_for_agent(line)


def test_a_field_more_is_another_version(monkeypatch):
    before = channel.compute_version()
    monkeypatch.setattr(m.LaunchRanks, "_fields", (*m.LaunchRanks._fields, "weather"))
    assert channel.compute_version() != before
    assert channel.describe_difference({"version": before, "package": "/old/drumline"}).startswith(
        "another version of drumline, from /old/drumline, than the one here, from /"
    )
    assert channel.describe_difference({"version": channel.compute_version()}) == ""
    assert channel.describe_difference({}).startswith(
        "another version of drumline, from an unknown folder, than the one here"
    )


@pytest.mark.parametrize(
    "line",
    [
        {"type": "ProgressPolled", "poll": 1, "ranks": [5], "began": 0.0, "took": 0},
        {"type": "ConnectionsListed", "ranks": [7]},
        {"type": "ConnectionsListed", "ranks": [[0, None, 3, 4]]},
        {"type": "RanksInspected", "ranks": None},
    ],
    ids=lambda line: f"{line['type']} {line['ranks']}",
)
def test_a_record_within_a_message_that_is_none_is_refused(line):
    """One agent whose words are wrong is given up, and the job's supervisor goes on."""
    fields = getattr(m, line["type"])._fields
    with pytest.raises(ChannelError):
        channel.decode_from_agent({**dict.fromkeys(fields, 0), **line})
