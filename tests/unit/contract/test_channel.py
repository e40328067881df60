"""Lines of JSON over a socket."""

import pytest

from drumline.contract import channel


def test_messages_come_whole_however_the_bytes_come():
    lines = channel.Lines()
    data = b'{"type": "a", "n": 1}\n{"type": "b"}\n'
    heard = [message for byte in data for message in lines.feed(bytes([byte]))]
    assert heard == [{"type": "a", "n": 1}, {"type": "b"}]


def test_several_messages_in_one_read_keep_their_order():
    assert [message["type"] for message in channel.Lines().feed(b'{"type": "a"}\n{"type": "b"}\n{"ty')] == [
        "a",
        "b",
    ]


@pytest.mark.parametrize(
    "line", [b"GET / HTTP/1.1\n", b"[1]\n", b"{}\n", b'{"type": 1}\n', b"\xff\xfe\n", b"\n"]
)
def test_what_no_agent_says_ends_the_connection(line):
    with pytest.raises(channel.ChannelError):
        channel.Lines().feed(line)


def test_a_peer_cannot_fill_our_memory():
    with pytest.raises(channel.ChannelError, match="more than 10 bytes"):
        channel.Lines(limit=10).feed(b"x" * 11)


@pytest.mark.parametrize(
    ("theirs", "same"),
    [
        ("secret", True),
        ("secreT", False),
        ("secre", False),
        ("secrets", False),
        ("", False),
        (None, False),
        (1, False),
    ],
)
def test_secrets_are_compared_whole(theirs, same):
    assert channel.same_secret("secret", theirs) is same
