"""Connections of those who have no token: they are closed when they are idle, too many or too slow."""

import contextlib
import http.client
import json
import socket
import ssl
import threading
from typing import NamedTuple

import pytest
import uvicorn
from certificates import make_certificate
from waiting import PATIENCE, wait_until

from drumline.studio import connection_limits, handlers
from drumline.studio.app import make_app
from drumline.studio.security import API, StudioSettings, Tokens

SHORT_S = 0.3
LOGIN = b"POST /login HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\nContent-Type: application/json\r\n"


class Served(NamedTuple):
    port: int
    token: str
    server: uvicorn.Server

    def connect(self):
        made = socket.create_connection(("127.0.0.1", self.port), 20.0 * PATIENCE)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def client(self, context=None):
        if context is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20.0 * PATIENCE)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20.0 * PATIENCE, context=context)

    def ask_me(self, client):
        client.request("GET", f"{API}/me", headers={"Authorization": f"Bearer {self.token}"})
        answer = client.getresponse()
        return answer.status, json.loads(answer.read())


@contextlib.contextmanager
def serving(context=None):
    tokens = Tokens()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    settings = StudioSettings(port, has_tls=context is not None)
    server = connection_limits.make_server(make_app(settings, tokens), context)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_until(lambda: server.started, 20.0, "the server to start")
        yield Served(port, tokens.bearer, server)
    finally:
        server.should_exit = True
        thread.join(20.0 * PATIENCE)
        assert not thread.is_alive()


@pytest.fixture
def served(drumline_home):
    with serving() as one:
        yield one


@pytest.fixture
def keys(tmp_path):
    """The context of a server, and that of a client that trusts it."""
    certificate, key = make_certificate(tmp_path)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=certificate)


@pytest.fixture
def is_hasty(monkeypatch):
    monkeypatch.setattr(connection_limits, "HEAD_S", SHORT_S)


def is_closed(client, drop=b""):
    """Whether the server has closed it, for whoever goes on to send a drop now and then."""
    client.setblocking(False)
    try:
        client.send(drop)
        return client.recv(1 << 16) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


# idle


@pytest.mark.parametrize(
    "begin", [b"", b"GET / HTTP/1.1\r\nHost: ", b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\nG"]
)
def test_whoever_asks_for_nothing_is_not_waited_for(served, is_hasty, begin):
    with served.connect() as client:
        client.sendall(begin)
        wait_until(lambda: is_closed(client), 20.0, "the idle connection to be closed")
    with served.connect() as client:
        client.sendall(begin)
        wait_until(lambda: is_closed(client, b"x"), 20.0, "the connection that drips to be closed")


def test_whoever_has_asked_is_waited_for(served, is_hasty):
    with contextlib.closing(served.client()) as stream, contextlib.closing(served.client()) as client:
        stream.request("GET", f"{API}/stream", headers={"Authorization": f"Bearer {served.token}"})
        answer = stream.getresponse()
        assert answer.readline() == b"retry: 1000\n"
        with served.connect() as idle:
            wait_until(lambda: is_closed(idle), 20.0)
        assert served.ask_me(client)[0] == 200
        assert not is_closed(stream.sock), "an answer that goes on is no idle connection"


# bodies


def read_status(client):
    return int(client.makefile("rb").readline().split()[1])


def test_the_body_of_a_login_is_not_waited_for(served, monkeypatch):
    monkeypatch.setattr(handlers, "PUBLIC_BODY_S", SHORT_S)
    with served.connect() as client:
        client.sendall(LOGIN + b"Content-Length: 100\r\n\r\n{")
        assert read_status(client) == 408


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 4097\r\n\r\n",
        b"Content-Length: 9" + b"9" * 4000 + b"\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n1001\r\n" + b"x" * 4097 + b"\r\n",
    ],
    ids=["announced", "long number", "in pieces"],
)
def test_the_body_of_a_login_is_small(served, body):
    with served.connect() as client:
        client.sendall(LOGIN + body)
        assert read_status(client) in (400, 413)
    with served.connect() as client:
        text = json.dumps({"token": served.token}).encode()
        client.sendall(LOGIN + b"Content-Length: %d\r\n\r\n" % len(text) + text)
        assert read_status(client) == 200


# many


def test_many_who_say_nothing_keep_nobody_out(served):
    with contextlib.ExitStack() as stack:
        known = stack.enter_context(contextlib.closing(served.client()))
        known.request("GET", f"{API}/stream", headers={"Authorization": f"Bearer {served.token}"})
        answer = known.getresponse()
        assert answer.readline() == b"retry: 1000\n"
        idle = [stack.enter_context(served.connect()) for _ in range(400)]
        wait_until(lambda: is_closed(idle[0]), 20.0, "the oldest to be closed")
        later = stack.enter_context(contextlib.closing(served.client()))
        assert served.ask_me(later)[0] == 200
        assert not is_closed(known.sock), "a connection with the token is not closed"
        assert len(served.server.server_state.connections) <= connection_limits.MOST_STRANGERS + 2


# with TLS


def test_a_client_that_trusts_the_certificate_gets_answers(drumline_home, keys):
    context, trusting = keys
    with serving(context) as served, contextlib.closing(served.client(trusting)) as client:
        assert served.ask_me(client)[0] == 200
        body = json.dumps({"token": served.token})
        own = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/json"}
        client.request("POST", "/login", body, own)
        answer = client.getresponse()
        answer.read()
        assert answer.status == 200
        assert "; Secure" in answer.headers["Set-Cookie"]


def test_a_request_may_come_with_the_end_of_the_handshake(drumline_home, keys):
    context, trusting = keys
    question = f"GET {API}/me HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n"
    with serving(context) as served:
        for _ in range(20):
            # Both in one segment: the server has the request before it knows that keys are agreed on.
            arriving, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
            side = trusting.wrap_bio(arriving, leaving, server_hostname="localhost")
            with served.connect() as client:
                while True:
                    try:
                        side.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        client.sendall(leaving.read())
                        arriving.write(receive(client))
                side.write((question % served.token).encode())
                client.sendall(leaving.read())
                assert read_text(side, arriving, client).startswith(b"HTTP/1.1 200")


def read_text(side, arriving, client):
    while True:
        try:
            return side.read(1 << 16)
        except ssl.SSLWantReadError:
            arriving.write(receive(client))


def receive(client):
    data = client.recv(1 << 16)
    assert data, "the server has closed the connection"
    return data


@pytest.mark.parametrize("begin", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_whoever_agrees_on_no_keys_is_not_waited_for(drumline_home, keys, is_hasty, begin, caplog):
    with serving(keys[0]) as served, served.connect() as client:
        client.sendall(begin)
        wait_until(lambda: is_closed(client), 20.0, "the connection to be closed")
    assert not [one for one in caplog.records if one.name == "asyncio"]


def test_many_without_keys_keep_nobody_out(drumline_home, keys):
    context, trusting = keys
    with serving(context) as served, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(served.connect()) for _ in range(400)]
        wait_until(lambda: is_closed(idle[0]), 20.0, "the oldest to be closed")
        with contextlib.closing(served.client(trusting)) as client:
            assert served.ask_me(client)[0] == 200
        assert len([one for one in idle if not is_closed(one)]) <= connection_limits.MOST_STRANGERS
