"""The node program with the four packages that it needs alone, on the oldest Python, without site-packages."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from interpreters import oldest_and_this

import drumline
from drumline.contract import channel
from drumline.contract import events as e
from drumline.contract import messages as m

SERVE = """
import sys
sys.path.insert(0, sys.argv[1])
from drumline.node.agent import agent
agent.serve(("127.0.0.1", int(sys.argv[2])), sys.stdin.readline().strip(), 0, "127.0.0.1", sys.argv[3])
"""
"""An agent as the local engine forks one."""

JOIN = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from drumline.node.__main__ import main
sys.exit(main())
"""
"""``python -m drumline.node``, which ``-I`` keeps from finding a package."""


@pytest.fixture
def tree(tmp_path):
    """A package with the four folders and nothing else."""
    source = Path(drumline.__file__).parent
    tree = tmp_path / "tree"
    for part in ("checks", "contract", "linux", "node"):
        shutil.copytree(source / part, tree / "drumline" / part, ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "drumline" / "__init__.py").touch()
    return tree


class Supervisor:
    """The other end of the channel, by hand."""

    def __init__(self, peer):
        self.peer = peer
        self.lines = channel.Lines()
        self.waiting = []

    def expect(self, kind):
        while not self.waiting:
            data = self.peer.recv(1 << 16)
            assert data, f"the agent is gone, and never said {kind}"
            self.waiting += map(channel.decode_from_agent, self.lines.feed(data))
        message = self.waiting.pop(0)
        if type(message) is e.FirstOutput is not kind:
            return self.expect(kind)
        assert type(message) is kind
        return message


@contextlib.contextmanager
def agent_of(tree, interpreter, scratch=""):
    """An agent that has said hello, and the other end of its channel; it is told to leave afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        port = server.getsockname()[1]
        argv = [interpreter, "-I", "-S", "-c", SERVE, str(tree), str(port), str(scratch)]
        agent = subprocess.Popen(argv, stdin=subprocess.PIPE, env={"PATH": os.environ["PATH"]}, text=True)
        assert agent.stdin
        agent.stdin.write("the secret\n")
        agent.stdin.close()
        peer, _ = server.accept()
        peer.settimeout(30)
    with peer:
        supervisor = Supervisor(peer)
        assert supervisor.expect(m.Hello).secret == "the secret"
        yield supervisor
        channel.send(peer, m.EmptyNode(0.0))
        assert supervisor.expect(m.NodeEmptied).survivors == []
        channel.send(peer, m.LeaveJob())
        assert agent.wait(timeout=10) == 0


def start(supervisor, folder, argv, **changed):
    """One rank, which prints to a file of the folder."""
    task = m.RankLaunch(0, argv, {"RANK": "0"}, str(folder / "rank.txt"))
    launch = m.LaunchRanks([task], str(folder), ["RANK"], [], {})
    channel.send(supervisor.peer, launch._replace(**changed))


@pytest.mark.parametrize("interpreter", oldest_and_this())
def test_an_agent_needs_python_and_nothing_else(tree, tmp_path, interpreter):
    with agent_of(tree, interpreter) as supervisor:
        channel.send(supervisor.peer, m.PrepareNode(["master_port"], wants_probe=True))
        prepared = supervisor.expect(m.NodePrepared)
        assert prepared.ports.keys() == {"master_port"}
        channel.send(supervisor.peer, m.ConnectToFirst("127.0.0.1", prepared.probe_port))
        assert supervisor.expect(m.ConnectedToFirst).error == ""
        start(supervisor, tmp_path, ["/bin/sh", "-c", "echo rank $RANK; exit 3"])
        began = supervisor.expect(e.RankStarted).time
        said = supervisor.expect(e.FirstOutput)
        exited = supervisor.expect(m.RankEnded)
        assert (said.rank, began <= said.time <= exited.at) == (0, True)
        assert (exited.rank, exited.code, exited.signal) == (0, 3, None)
        assert (tmp_path / "rank.txt").read_text() == "rank 0\n"


@pytest.mark.parametrize("interpreter", oldest_and_this())
def test_a_launcher_starts_ranks_through_the_agent(tree, tmp_path, interpreter):
    """Without an MPI: a shell that does what its daemon does, with a quote in the path of the shim."""
    scratch = tmp_path / "it's scratch"
    scratch.mkdir()
    asks = 'OMPI_COMM_WORLD_RANK=0 GIVEN="by MPI" "$DRUMLINE_BIN/drumline-rank"; echo said $?'
    launcher = m.LauncherTask(["/bin/sh", "-c", asks], {}, str(tmp_path / "launcher.txt"))
    with agent_of(tree, interpreter, scratch) as supervisor:
        channel.send(supervisor.peer, m.PrepareNode([], wants_launcher_socket=True))
        supervisor.expect(m.NodePrepared)
        argv = ["/bin/sh", "-c", "echo rank $RANK given $GIVEN"]
        start(supervisor, tmp_path, argv, by_launcher=True, launcher=launcher)
        supervisor.expect(e.RankStarted)
        assert supervisor.expect(m.RankEnded).code == 0
        assert supervisor.expect(m.LauncherExited).code == 0
        assert (tmp_path / "rank.txt").read_text() == "rank 0 given by MPI\n"
        assert (tmp_path / "launcher.txt").read_text() == "said 0\n"
    assert not scratch.exists()


def hello(secret):
    return m.Hello(secret, 0, *channel.identify_package(), 1, "127.0.0.1", "subreaper")


def test_a_peer_without_the_secret_is_sent_away(cli, tmp_path):
    """Any process of the machine can connect to the supervisor's port; only its agents know the secret."""
    from drumline.supervisor.attempt.connections import AgentConnections

    agents = AgentConnections(socket.create_server(("127.0.0.1", 0)), "right", 1)
    try:
        with socket.create_connection(("127.0.0.1", agents.port)) as stranger:
            peer = next(iter(iter(agents.accept, None)))
            channel.send(stranger, hello("wrong"))
            assert agents.receive(peer) is None
            assert agents.drop(peer) is None
        with socket.create_connection(("127.0.0.1", agents.port)) as agent:
            peer = next(iter(iter(agents.accept, None)))
            channel.send(agent, hello("right"))
            received = agents.receive(peer)
            assert received is not None
            assert isinstance(received[0], m.Hello)
            assert json.dumps(received[0].node) == "0"
            assert agents.connected_nodes() == {0}
    finally:
        agents.close()


def test_no_file_and_no_command_line_of_a_job_holds_its_secret(cli, tmp_path, drumline_home):
    """It is 64 hexadecimal digits, kept in memory alone."""
    import re

    done = cli(
        "run", "--", sys.executable, "-c", "import os; print(open(f'/proc/{os.getppid()}/cmdline').read())"
    )
    assert done.rc == 0
    secret = re.compile(rb"\b[0-9a-f]{64}\b")
    for path in drumline_home.rglob("*"):
        if path.is_file():
            assert not secret.search(path.read_bytes()), path


@pytest.mark.parametrize(
    "garbage",
    [
        b"[" * 60000 + b"\n",
        b'{"type":"Hello","node":0,"secret":"\\ud800"}\n',
        b'{"type":"Hello","node":true,"secret":null}\n',
        b'{"type":"LaunchRanks"}\n{"type":"LeaveJob"}\n',
        b"\0" * 70000,
        b"\xff\n",
    ],
)
def test_a_stranger_cannot_end_a_job(cli, tmp_path, garbage):
    """Any process of the machine can connect; what it says is its own end, not the job's."""
    from waiting import wait_until

    started = cli("run", "--name", "victim", "--detach", "--", "sleep", "60")
    assert started.rc == 0
    show = lambda *query: cli("job", "show", "-n", "victim", *query)  # noqa: E731
    wait_until(lambda: '"Running"' in show("--query", "status").out, 20, "the job runs")
    supervisor = json.loads(show("-o", "json").out)["processes"]["supervisor"]
    with socket.create_connection(("127.0.0.1", port_of(supervisor))) as stranger:
        stranger.settimeout(10)
        with contextlib.suppress(ConnectionError):
            stranger.sendall(garbage)
            assert stranger.recv(1) == b""
    assert json.loads(show("-o", "json").out)["status"] == "Running"
    assert cli("job", "cancel", "-n", "victim", "--at-once").rc == 0


def port_of(pid):
    """The port on which that process listens."""
    inodes = {
        os.readlink(path)[8:-1]
        for path in Path(f"/proc/{pid}/fd").iterdir()
        if "socket:" in os.readlink(path)
    }
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            return int(fields[1].split(":")[1], 16)
    raise AssertionError("it listens nowhere")


# Engines that start agents by their own means, and end the ranks with them.

STEPD = """
import ctypes, os, signal, subprocess, sys
ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)  # PR_SET_NAME
agent = subprocess.Popen(sys.argv[2:], env={**os.environ, "NODE": "0"}, stdin=subprocess.DEVNULL)
print(agent.pid, flush=True)
for line in sys.stdin:
    for pid in map(int, line.split()):
        os.kill(pid, signal.SIGTERM)
sys.exit(agent.wait())
"""
"""Starts an agent; of each line that it reads it sends all processes a SIGTERM, in that order."""

COUNTS = """
import os, signal, sys
def told(*_):
    with open("told", "a") as file:
        file.write("told\\n")
signal.signal(signal.SIGTERM, told)
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3))
print("ready", flush=True)
while True:
    signal.pause()
"""
"""A rank that writes down each SIGTERM, and ends with code 3 when it is sent SIGUSR1."""


class Step:
    """An agent below a program of that name, by hand."""

    def __init__(self, supervisor, stepd, agent_pid):
        self.supervisor = supervisor
        self.peer = supervisor.peer
        self.agent_pid = agent_pid
        self._stepd = stepd

    def end(self, *pids):
        """Those are sent SIGTERM by that program, one after the other."""
        self._stepd.stdin.write(f"{' '.join(map(str, pids))}\n")
        self._stepd.stdin.flush()

    def start(self, folder, argv):
        channel.send(self.peer, m.PrepareNode([]))
        self.supervisor.expect(m.NodePrepared)
        start(self.supervisor, folder, argv)
        return self.supervisor.expect(e.RankStarted).pid

    def settle(self):
        """Everything that it was told by now is done."""
        channel.send(self.peer, m.ReadClock())
        self.supervisor.expect(m.ClockRead)


def address_of(token, addresses, port, secret):
    return m.SupervisorAddress(*channel.identify_package(), token, addresses, port, secret)


@contextlib.contextmanager
def step_of(tree, tmp_path, name="slurmstepd", ended_by="slurmstepd"):
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    with contextlib.ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        known = address_of("0badcafe", ["127.0.0.1"], server.getsockname()[1], "the secret")
        known = known._replace(scratch=str(tmp_path), ended_by=ended_by)
        (run_folder / "agents.json").write_text(json.dumps(known._asdict()))
        agent = [sys.executable, "-I", "-S", "-c", JOIN, str(tree)]
        agent += ["join", str(run_folder), "0badcafe", "NODE"]
        stepd = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", STEPD, name, *agent],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={"PATH": os.environ["PATH"], "DRUMLINE_HOME": os.environ["DRUMLINE_HOME"]},
                text=True,
            )
        )
        assert stepd.stdin
        assert stepd.stdout
        # Its end, should the test fail, is the agent's too: that finds its supervisor gone.
        stack.callback(stepd.stdin.close)
        agent_pid = int(stepd.stdout.readline())
        while True:  # It first looks which addresses lead here.
            peer, _ = server.accept()
            peer.settimeout(30)
            if peer.recv(1, socket.MSG_PEEK):
                break
            peer.close()
        with peer:
            supervisor = Supervisor(peer)
            hello = supervisor.expect(m.Hello)
            assert (hello.secret, hello.reached) == ("the secret", {"127.0.0.1": "127.0.0.1"})
            yield Step(supervisor, stepd, agent_pid)
            channel.send(peer, m.EmptyNode(0.0))
            assert supervisor.expect(m.NodeEmptied).survivors == []
            channel.send(peer, m.LeaveJob())
            stepd.stdin.close()
            assert stepd.wait(timeout=10) == 0
    assert not (tmp_path / "drumline-0badcafe-n0").exists()


def told(folder):
    return (folder / "told").read_text().count("told") if (folder / "told").exists() else 0


def counting_rank(step, tmp_path):
    """Its pid, from when it counts."""
    from waiting import wait_until

    pid = step.start(tmp_path, [sys.executable, "-c", COUNTS])
    step.settle()
    log = tmp_path / "rank.txt"
    wait_until(lambda: log.exists() and log.read_text(), what="the rank is ready")
    return pid


def test_ranks_that_an_engine_has_told_are_not_told_again(tree, tmp_path):
    """Slurm sends all of a step SIGTERM. Frameworks take a second one for a demand to hurry."""
    from waiting import wait_until

    with step_of(tree, tmp_path) as step:
        rank = counting_rank(step, tmp_path)
        step.end(step.agent_pid, rank)
        notice = step.supervisor.expect(m.NoticeReceived).by
        assert "(slurmstepd) to its agent" in notice
        wait_until(lambda: told(tmp_path), what="the rank was told")
        channel.send(step.peer, m.TerminateRanks(30.0, may_be_told=True))
        step.settle()
        os.kill(rank, signal.SIGUSR1)
        exited = step.supervisor.expect(m.RankEnded)
        assert (exited.code, exited.evidence.told_at is not None) == (3, True)
        assert told(tmp_path) == 1


def test_a_rank_that_was_told_alone_is_told_by_its_agent(tree, tmp_path):
    """Somebody else's SIGTERM to the agent, as of kill, reaches the agent alone."""
    from waiting import wait_until

    with step_of(tree, tmp_path, name="bash") as step:
        rank = counting_rank(step, tmp_path)
        step.end(step.agent_pid)
        assert "(bash) to its agent" in step.supervisor.expect(m.NoticeReceived).by
        step.settle()
        assert told(tmp_path) == 0
        channel.send(step.peer, m.TerminateRanks(30.0, may_be_told=True))
        wait_until(lambda: told(tmp_path), what="the rank was told")
        os.kill(rank, signal.SIGUSR1)
        step.supervisor.expect(m.RankEnded)
        assert told(tmp_path) == 1


@pytest.mark.parametrize("rank_first", [True, False])
def test_that_its_node_is_taken_comes_before_the_exits_that_this_causes(tree, tmp_path, rank_first):
    """Else the job would have failed, not been preempted, and would not be started again."""
    with step_of(tree, tmp_path) as step:
        rank = step.start(tmp_path, ["/bin/sleep", "60"])
        step.settle()
        step.end(*((rank, step.agent_pid) if rank_first else (step.agent_pid, rank)))
        step.supervisor.expect(m.NoticeReceived)
        assert step.supervisor.expect(m.RankEnded).signal == signal.SIGTERM


def test_a_rank_that_ends_by_itself_is_no_notice(tree, tmp_path):
    with step_of(tree, tmp_path) as step:
        step.start(tmp_path, ["/bin/sh", "-c", "exit 3"])
        assert step.supervisor.expect(m.RankEnded).code == 3
        step.settle()


def test_a_second_notice_of_such_an_engine_does_not_hurry_its_agent(tree, tmp_path):
    """Its SIGKILL follows when it must; what the ranks save until then counts."""
    from waiting import wait_until

    with step_of(tree, tmp_path) as step:
        rank = counting_rank(step, tmp_path)
        step.end(step.agent_pid)
        step.supervisor.expect(m.NoticeReceived)
        step.end(step.agent_pid, rank)
        wait_until(lambda: told(tmp_path), what="both were told")
        step.settle()
        os.kill(rank, signal.SIGUSR1)
        exited = step.supervisor.expect(m.RankEnded)
        assert (exited.code, exited.signal) == (3, None)


def test_an_agent_without_its_file_or_of_another_attempt_says_so(tmp_path, monkeypatch):
    from drumline.node.agent import join

    monkeypatch.setattr(join, "_FILE_S", 0.0)
    (tmp_path / "agents.json").write_text('{"token": "of another attempt"}')
    with pytest.raises(OSError, match="of another attempt: is it on a shared file system"):
        join.join(str(tmp_path), 0, "0badcafe")
    (tmp_path / "agents.json").write_text("garbage")
    with pytest.raises(OSError, match="is not there"):
        join.join(str(tmp_path), 0, "0badcafe")


def test_an_agent_that_reaches_no_supervisor_says_where_that_should_be(tmp_path, monkeypatch, capfd):
    from drumline.node.agent import join

    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    known = address_of("t", ["127.0.0.1", "127.0.0.2"], port, "s")
    (tmp_path / "agents.json").write_text(json.dumps(known._asdict()))
    monkeypatch.setenv("NODE", "3")
    assert join.main([str(tmp_path), "t", "NODE"]) == 1
    said = capfd.readouterr().err
    assert said == (f"node 3: the supervisor cannot be reached from here; it is at 127.0.0.2, port {port}\n")


def test_an_agent_of_another_version_than_its_supervisor_says_so(tmp_path, monkeypatch, capfd):
    """As when the package on a node's own disk was left at an earlier version."""
    from drumline.node.agent import join

    known = address_of("t", ["127.0.0.1"], 1, "s")._replace(
        version="of tomorrow", package="/opt/new/drumline"
    )
    (tmp_path / "agents.json").write_text(json.dumps({**known._asdict(), "weather": "fine"}))
    monkeypatch.setenv("NODE", "3")
    assert join.main([str(tmp_path), "t", "NODE"]) == 1
    said = capfd.readouterr().err
    assert said.startswith(
        "node 3: the supervisor is another version of drumline, from /opt/new/drumline, than"
    )
    assert said.endswith("; install the same version for all nodes\n")
