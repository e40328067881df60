"""What the studio tells its pages as it happens."""

import contextlib
import http.client
import json
import socket
from typing import NamedTuple

import pytest
from cli_jobs import WAIT_FOR_SIGNAL, one_rank, wait_for_status, write_job
from studio_server import API, run_studio
from waiting import PATIENCE, wait_until

from drumline.contract import events as e
from drumline.contract.folder import RunFolder


class Told(NamedTuple):
    kind: str
    id: str
    data: dict


class Stream:
    """The messages of one stream in order."""

    def __init__(self, studio, path, cursor=""):
        self._connection = http.client.HTTPConnection("127.0.0.1", studio.port, timeout=20.0 * PATIENCE)
        headers = {**studio.own_headers, **({"Last-Event-ID": cursor} if cursor else {})}
        self._connection.request("GET", API + path, headers=headers)
        self.answer = self._connection.getresponse()
        assert self.answer.status == 200, self.answer.read()
        self.last = None

    def next(self):
        fields = {}
        while True:
            line = self.answer.readline()
            assert line, "the stream has ended"
            line = line.decode().rstrip("\n")
            if not line and "data" in fields:
                self.last = Told(fields["event"], fields["id"], json.loads(fields["data"]))
                return self.last
            name, colon, value = line.partition(": ")
            if colon and name:
                fields[name] = value

    def until(self, wanted):
        """The first message that is wanted, and all before it."""
        found = []
        while not found or not wanted(found[-1]):
            found.append(self.next())
        return found

    def close(self):
        self.answer.close()
        self._connection.close()


@pytest.fixture
def studio():
    with run_studio() as server:
        yield server


@contextlib.contextmanager
def stream(studio, path="/stream", cursor=""):
    found = Stream(studio, path, cursor)
    try:
        assert found.next().kind == "hello"
        yield found
    finally:
        found.close()


def is_row(name, status):
    return lambda one: one.kind == "row" and (one.data["name"], one.data["status"]) == (name, status)


def test_a_page_hears_of_jobs_from_their_beginning_to_their_end(studio, cli, tmp_path):
    write_job(tmp_path, f'python -c "{WAIT_FOR_SIGNAL}"', **one_rank())
    with stream(studio) as page:
        cli("job", "create", "-f", "job.yml", "-n", "job")
        page.until(is_row("job", "Running"))
        cli("job", "cancel", "-n", "job", "--at-once")
        page.until(is_row("job", "Canceled"))


def test_a_page_of_a_job_hears_its_events_and_which_logs_grow(studio, cli, tmp_path):
    write_job(tmp_path, f'python -c "{WAIT_FOR_SIGNAL}"', **one_rank())
    cli("job", "create", "-f", "job.yml", "-n", "job")
    cli("job", "create", "-f", "job.yml", "-n", "other")
    log = RunFolder.for_job("job")
    with stream(studio, "/stream?jobs=job") as page:
        wait_until(lambda: "Running" in str(studio.get("/jobs/job")["row"]["status"]), 20.0)
        before = studio.get("/jobs/job/events")["events"]
        path = next(iter((tmp_path / "drumline home" / "jobs" / "job" / "user_logs").glob("*.txt")))
        with path.open("a") as file:
            file.write("one more line\n")
        size = path.stat().st_size
        page.until(lambda one: one.kind == "log" and one.data["sizes"] == {"0": size})
        log.append(e.JobEdited(1.0, {"description": "x"}))
        told = page.until(lambda one: one.kind == "event" and one.data["kind"] == "JobEdited")
        assert told[-1].data["seq"] > before[-1]["seq"]
        assert {one.data["job"] for one in told if one.kind == "event"} == {"job"}
    for name in ("job", "other"):
        cli("job", "cancel", "-n", name, "--at-once")


def test_a_page_that_comes_back_misses_nothing_and_hears_nothing_twice(studio, cli, tmp_path):
    write_job(tmp_path, "true")
    cli("job", "create", "-f", "job.yml", "-n", "job", "--stream")
    folder = RunFolder.for_job("job")
    wait_until(lambda: studio.get("/jobs")["total"] == 1, 20.0)
    with stream(studio, "/stream?jobs=job") as page:
        folder.append(e.JobEdited(1.0, {"description": "first"}))
        page.until(lambda one: one.kind == "event")
        cursor = page.last.id
    folder.append(e.JobEdited(2.0, {"description": "second"}))
    folder.append(e.JobArchived(3.0))
    for again in (
        lambda: stream(studio, "/stream?jobs=job", cursor),
        lambda: stream(studio, f"/stream?jobs=job&cursor={cursor}"),
    ):
        with again() as page:
            told = page.until(lambda one: one.kind == "event" and one.data["kind"] == "JobArchived")
            events = [one.data for one in told if one.kind == "event"]
            assert [one["kind"] for one in events] == ["JobEdited", "JobArchived"]
            assert events[0]["changes"] == {"description": "second"}


def test_a_page_of_an_earlier_server_is_told_to_ask_anew(studio, cli, tmp_path):
    write_job(tmp_path, "true", name="job")
    cli("job", "create", "-f", "job.yml", "--stream")
    wait_until(lambda: studio.get("/jobs")["total"] == 1, 20.0)
    for cursor in ("deadbeef.0", "deadbeef.3", "nonsense", "a.b|c:d"):
        with stream(studio, cursor=cursor) as page:
            assert page.next().kind == "reset"


def test_a_job_that_is_gone_is_told_of(studio, cli, tmp_path):
    write_job(tmp_path, "true")
    cli("job", "create", "-f", "job.yml", "-n", "job", "--stream")
    with stream(studio) as page:
        wait_until(lambda: studio.get("/jobs")["total"] == 1, 20.0)
        assert cli("job", "delete", "-n", "job", "--yes").rc == 0
        told = page.until(lambda one: one.kind == "gone")
        assert told[-1].data == {"name": "job"}


def test_only_jobs_of_ones_own_are_told_of(studio):
    assert studio.ask(f"{API}/stream?jobs=missing").status == 404
    assert studio.ask(f"{API}/stream?jobs=a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q").status == 400


def test_more_pages_than_anybody_opens_are_refused(studio):
    with contextlib.ExitStack() as stack:
        pages = [stack.enter_context(stream(studio)) for _ in range(50)]
        answer = studio.ask(f"{API}/stream")
        assert answer.status == 503
        assert "50 pages" in answer.json["error"]["message"]
        pages.pop().close()
        wait_until(lambda: can_open(studio), 20.0)


def can_open(studio):
    connection = http.client.HTTPConnection("127.0.0.1", studio.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", f"{API}/stream", headers=studio.own_headers)
        return connection.getresponse().status == 200


def test_a_page_that_reads_nothing_is_dropped_and_the_others_go_on(studio, cli, tmp_path):
    write_job(tmp_path, "true")
    cli("job", "create", "-f", "job.yml", "-n", "job", "--stream")
    folder = RunFolder.for_job("job")
    with socket.socket() as stuck, stream(studio, "/stream?jobs=job") as page:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect(("127.0.0.1", studio.port))
        lines = (
            f"GET {API}/stream?jobs=job HTTP/1.1",
            "Host: localhost",
            f"Authorization: Bearer {studio.token}",
        )
        stuck.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode())
        assert b"200 OK" in stuck.recv(100)
        for begin in range(0, 1000, 50):
            for number in range(begin, begin + 50):
                folder.append(e.JobEdited(1.0, {"description": "x" * 5000, "number": number}))
            page.until(lambda one, n=begin + 49: one.kind == "event" and one.data["changes"]["number"] == n)
        # What is still on its way arrives, and then the end.
        stuck.settimeout(20.0 * PATIENCE)
        wait_until(lambda: ends(stuck), 20.0)


def ends(connection):
    try:
        return not connection.recv(1 << 20)
    except ConnectionResetError:
        return True


def test_an_open_page_does_not_keep_the_server_from_ending(studio):
    with stream(studio):
        studio.process.terminate()
        wait_until(lambda: studio.process.poll() is not None, 20.0)
        assert studio.process.returncode == 0


def test_a_busy_job_is_told_of_while_it_runs(studio, cli, tmp_path):
    write_job(tmp_path, "true", name="job")
    with stream(studio) as page:
        cli("job", "create", "-f", "job.yml")
        page.until(is_row("job", "Completed"))
    wait_for_status("job", "Completed")
