"""Signs of life of a process that neither prints nor computes, as they are read from outside."""

import contextlib
import os
import signal
import socket
import subprocess
import sys

import pytest
from waiting import wait_until

from drumline.linux import descendants
from drumline.node.diagnostics.activity import ActivityReader


@pytest.fixture
def program():
    """Starts a program, of which each line of its input is a statement."""
    with contextlib.ExitStack() as stack:

        def start(first=""):
            code = f"import sys\n{first}\nfor line in sys.stdin: exec(line)"
            argv, pipe = [sys.executable, "-c", code], subprocess.PIPE
            process = stack.enter_context(
                subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, bufsize=1)
            )
            stack.callback(process.kill)
            return process

        yield start


def read(reader, process, looks=0):
    return reader.read({0: process.pid}, {0: looks})[0]


def do(process, statement):
    """Have the program do something, and wait until it is done."""
    process.stdin.write(f"{statement}; print('done', flush=True)\n")
    assert process.stdout.readline() == "done\n"


@pytest.fixture
def writer(program, tmp_path):
    """A program, a reader of it, and what writes a hundred bytes into a file of the program's."""
    process, reader = program("import os, socket"), ActivityReader()
    do(process, f"file = open({str(tmp_path / 'own')!r}, 'ab', buffering=0)")
    return process, reader, lambda: do(process, "file.write(bytes(100))")


DONE = len("done\n")
"""Each answer of the program is written too."""


def test_bytes_written_count(writer):
    process, reader, write = writer
    before = read(reader, process).written_bytes
    write()
    assert read(reader, process).written_bytes == before + 100 + DONE


def test_bytes_sent_are_not_written_to_a_file(writer):
    """PyTorch's store writes its answers, and is asked all the time while ranks wait for another one."""
    process, reader, write = writer
    with socket.create_server(("127.0.0.1", 0)) as server:
        do(process, f"peer = socket.create_connection({server.getsockname()})")
        before = read(reader, process)
        with server.accept()[0] as peer:
            do(process, "os.write(peer.fileno(), bytes(50_000))")
            peer.recv(50_000, socket.MSG_WAITALL)
            now = read(reader, process)
            assert now.net_bytes == before.net_bytes + 50_000
            assert now.written_bytes <= before.written_bytes + DONE
            write()
            assert read(reader, process).written_bytes > now.written_bytes


def test_what_the_hook_writes_of_its_looks_is_not_the_programs(writer):
    process, reader, write = writer
    before = read(reader, process).written_bytes
    write()
    assert read(reader, process, looks=100 + DONE).written_bytes == before


def test_what_is_written_while_ranks_are_asked_does_not_count(writer):
    process, reader, write = writer
    before = read(reader, process).written_bytes
    write()
    reader.leave_out_writes({0: process.pid})
    assert read(reader, process).written_bytes == before


def test_each_request_counts_whether_it_comes_over_a_new_connection_or_the_same(program):
    process, reader = (
        program("import socket\nserver = socket.create_server(('127.0.0.1', 0))"),
        ActivityReader(),
    )
    process.stdin.write("print(server.getsockname()[1], flush=True)\n")
    address = ("127.0.0.1", int(process.stdout.readline()))
    counts = [read(reader, process).requests]
    for _ in range(2):
        with socket.create_connection(address) as peer:
            do(process, "peer = server.accept()[0]")
            counts.append(read(reader, process).requests)
            for _ in range(2):
                do(process, "peer.sendall(b'ok')")
                assert peer.recv(2) == b"ok"
                counts.append(read(reader, process).requests)
        do(process, "peer.close()")
        assert read(reader, process).requests == counts[-1], "the end of a connection is no request"
    assert counts == sorted(set(counts))
    assert read(reader, process, looks=1).requests == counts[-1]


def test_bytes_received_count(program):
    with socket.create_server(("127.0.0.1", 0)) as server:
        process, reader = program("import socket"), ActivityReader()
        do(process, f"peer = socket.create_connection({server.getsockname()})")
        before = read(reader, process).net_bytes
        with server.accept()[0] as peer:
            peer.sendall(bytes(5000))
            do(process, "peer.recv(5000, socket.MSG_WAITALL)")
            assert read(reader, process).net_bytes == before + 5000


@pytest.mark.parametrize(
    "sleep",
    [
        "time.sleep(50)",
        "select.epoll().poll(50)",
        "subprocess.run(['sh', '-c', 'sleep 50; :'])",
    ],
)
def test_a_sleep_has_an_end(program, sleep):
    process, reader = program("import select, subprocess, time"), ActivityReader()
    do(process, "pass")
    assert read(reader, process).sleep_s == 0.0, "it waits for input"
    process.stdin.write(f"{sleep}\n")
    # sleep(1) of coreutils 9.10 sleeps a nanosecond longer.
    wait_until(lambda: 1.0 < read(reader, process).sleep_s < 50.1, 20.0, "the sleep")
    # Its end ends the shell above it too.
    for below in descendants.list_descendants(process.pid)[-1:]:
        os.kill(below, signal.SIGKILL)


def test_a_process_that_is_gone_does_nothing():
    process = subprocess.Popen(["true"])
    process.wait()
    assert read(ActivityReader(), process) == (0, 0, 0, 0, 0, 0.0)
