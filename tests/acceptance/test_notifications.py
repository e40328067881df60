"""Who is told of a job, and what never happens on the way."""

import contextlib
import json
import os
import pty
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from canary import CANARY
from cli_jobs import wait_for_status, write_job
from waiting import wait_until

from drumline.cli.main import main
from drumline.contract import events as e
from drumline.contract.folder import RunFolder
from drumline.control.facts import description
from drumline.supervisor import main as supervisor
from drumline.supervisor.job.run import HANDED_OVER
from drumline.supervisor.notifying.notices import JobNotices


@contextlib.contextmanager
def hook(*answers):
    """A webhook: its address, and the notices that came. ``answers``: statuses of the first; None: it never answers."""
    told, left, over = [], list(answers), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status = left.pop(0) if left else 200
            if status is None:
                over.wait(60)
                return
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            """Nowhere."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/T0/sesame", told
        finally:
            over.set()
            server.shutdown()
            thread.join()


def configure(cli, *words):
    done = cli("configure", *words)
    assert done.rc == 0, done.err
    return done


def warning(name):
    return description.show_job(name)["services"].get("Notifications", {}).get("warning", "")


def test_a_failure_reaches_a_webhook_and_a_command_and_no_address_is_anywhere(tmp_path, cli, drumline_home):
    """The webhook is down at first, and the reason holds the value of a secret."""
    with hook(503, 429) as (url, told):
        configure(cli, "--notify", f"team={url}")
        listed = configure(cli, "--list-notify", "-o", "json")
        assert json.loads(listed.out) == [{"name": "team", "kind": "webhook", "on": "end,hang,preemption"}]
        (tmp_path / "token").write_text(CANARY)
        notify = [
            "team",
            {"command": f"cat > '{tmp_path}/told'; echo $DRUMLINE_NOTICE_TEXT", "on": "failure"},
        ]
        program = "import os; raise ValueError('no ' + os.environ['TOKEN'])"
        path = write_job(tmp_path, f'python -c "{program}"', name="job", drumline={"notify": notify})
        done = cli("job", "create", "-f", path, "--secret", "TOKEN=@token", "--stream")
        assert done.rc == 1
        wait_until(lambda: len(told) == 3 and (tmp_path / "told").exists(), 20, "both to be told")
    last = told[-1]
    assert (last["event"], last["job"], last["status"], last["exit_code"]) == ("failure", "job", "Failed", 1)
    assert "ValueError: no ***" in last["reason"]
    assert last["text"] == last["content"]
    assert last["text"].startswith("job job failed\n")
    by_command = json.loads((tmp_path / "told").read_text())
    assert by_command == {name: last[name] for name in by_command}
    kept = [path for path in (drumline_home / "jobs").rglob("*") if path.is_file()]
    assert not [path for path in kept if b"sesame" in path.read_bytes()]
    assert "sesame" not in cli("job", "show", "-n", "job", "-o", "json").out
    assert (drumline_home / "notify.json").stat().st_mode & 0o777 == 0o600
    assert warning("job") == ""


def test_a_receiver_that_does_not_take_it_is_a_warning_and_delays_nothing(tmp_path, cli):
    with hook(302) as (refuses, told), hook(None) as (silent, _):
        configure(cli, "--notify", f"refuses={refuses}", "--on", "end")
        configure(cli, "--notify", f"silent={silent}", "--on", "failure")
        configure(cli, "--notify", "broken=command:exit 3")
        done = cli("run", "--name", "job", "--", "true")
        assert done.rc == 0
        said = wait_until(lambda: warning("job"), 20, "a warning")
    assert len(told) == 1, "a redirect is followed, or tried again"
    assert "refuses was not told of the end: the server answered 302" in said
    assert "broken was not told of the end: its command ended with code 3" in said
    assert "silent" not in said
    assert description.show_job("job")["status"] == "Completed"


def test_preemption_and_silence(tmp_path, cli):
    with hook() as (url, told):
        configure(cli, "--notify", f"team={url}", "--on", "preemption,end")
        waits = "import os, signal, sys; os.environ['DRUMLINE_ATTEMPT'] > '0' and sys.exit(); signal.pause()"
        path = write_job(
            tmp_path, f'python -c "{waits}"', name="job", drumline={"grace": 1, "max_restarts": 1}
        )
        assert cli("job", "create", "-f", path).rc == 0
        wait_for_status("job", "Running")
        assert cli("job", "preempt", "-n", "job").rc == 0
        assert wait_for_status("job", "Completed", "Failed")["status"] == "Completed"
        wait_until(lambda: len(told) == 2, 20, "two notices")
        assert [one["event"] for one in told] == ["preemption", "end"]
        assert "being taken away" in told[0]["reason"]
        silent = write_job(tmp_path, "true", name="silent", drumline={"notify": []})
        assert cli("job", "create", "-f", silent, "--stream").rc == 0
        sweep = {
            "type": "sweep",
            "name": "sweep",
            "trial": {"command": "true"},
            "search_space": {"x": {"type": "choice", "values": [1, 2]}},
            "sampling_algorithm": "grid",
            "limits": {"max_total_trials": 2},
            "objective": {"goal": "minimize", "primary_metric": "loss"},
        }
        (tmp_path / "sweep.yml").write_text(json.dumps(sweep))
        assert cli("job", "create", "-f", "sweep.yml", "--stream").rc == 1
        wait_until(lambda: len(told) == 3, 20, "the sweep's own notice")
    assert (told[2]["job"], told[2]["status"]) == ("sweep", "Failed")


@pytest.mark.parametrize(
    ("notify", "said"),
    [
        (["https://hooks.example.org/sesame"], "a URL is a secret"),
        (["nobody"], "there is no receiver 'nobody'"),
        (["desktop"], "there is no receiver 'desktop'"),
        ([{"command": "true", "on": ["start"]}], "'start' is no kind of notice"),
        ([{"url": "x"}], "unknown key 'url'"),
        ([7], "one has a name or a command"),
    ],
)
def test_what_a_job_cannot_ask_for(tmp_path, capsys, notify, said):
    path = write_job(tmp_path, "true", drumline={"notify": notify})
    assert main(["job", "create", "-f", str(path)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "sesame" not in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--notify", "team"], "NAME=TARGET is wanted"),
        (["--notify", "team=sesame"], "neither a URL nor command:PROGRAM"),
        (["--notify", "a/b=command:true"], "'a/b' cannot be a receiver's name"),
        (["--notify", "team="], "there is no receiver 'team'"),
        (["--notify", "team=command:true", "--on", "start"], "'start' is no kind of notice"),
        (["--on", "end"], "--on needs --notify"),
        (["--test-notify", "team"], "there is no receiver 'team'"),
    ],
)
def test_what_cannot_be_configured(capsys, words, said):
    assert main(["configure", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "sesame" not in err


def test_an_address_that_is_not_typed_is_an_error(tmp_path):
    """A terminal on which Ctrl-D is typed."""
    master, slave = pty.openpty()
    words = [sys.executable, "-m", "drumline", "configure", "--notify", "team=-"]
    try:
        with subprocess.Popen(
            words, stdin=slave, stderr=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True
        ) as process:
            assert process.stderr is not None
            asked = ""
            while "URL: " not in asked and (letter := process.stderr.read(1)):
                asked += letter
            os.write(master, b"\x04")
            said = process.communicate(timeout=100)[1]
    finally:
        os.close(master)
        os.close(slave)
    assert process.returncode == 2, asked + said
    assert "error: --notify: there is no URL on standard input\n" in said


def test_a_test_tells_whether_a_receiver_is_reached(cli):
    with hook() as (url, told):
        configure(cli, "--notify", f"team={url}")
        assert configure(cli, "--test-notify", "team").err == "team was told\n"
        assert told[0]["event"] == "test"
    with hook(404) as (url, _):
        configure(cli, "--notify", f"team={url}")
        done = cli("configure", "--test-notify", "team")
    assert (done.rc, done.err) == (1, "error: team was not told: the server answered 404 Not Found\n")
    configure(cli, "--notify", "team=")
    assert configure(cli, "--list-notify", "-o", "json").out == "[]\n"


def test_apprise_reaches_its_services(cli):
    pytest.importorskip("apprise")
    with hook() as (url, told):
        configure(cli, "--notify", f"service={url.replace('http:', 'json:')}")
        assert configure(cli, "--test-notify", "service").err == "service was told\n"
    assert told[0]["title"] == "job example is a test of notifications"
    done = cli("configure", "--notify", "other=nothing-like-it://sesame")
    assert (done.rc, done.err.splitlines()[0]) == (
        2,
        "error: --notify: apprise takes no such nothing-like-it:// address",
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_apprise_raises_or_logs_does_not_reach_the_user(monkeypatch, capsys, cli):
    apprise = pytest.importorskip("apprise")
    configure(cli, "--notify", "service=json://127.0.0.1:9/sesame")
    refused = cli("configure", "--test-notify", "service")
    assert (refused.rc, refused.err) == (1, "error: service was not told: apprise could not deliver it\n")

    def fail(*_, **__):
        raise RuntimeError("sesame")

    monkeypatch.setattr(apprise.Apprise, "notify", fail)
    assert main(["configure", "--test-notify", "service"]) == 1
    assert capsys.readouterr().err == "error: service was not told: apprise failed with RuntimeError\n"
    monkeypatch.setattr(apprise.Apprise, "add", fail)
    assert main(["configure", "--notify", "service=json://127.0.0.1:9/sesame"]) == 2
    assert "error: --notify: the package apprise failed with RuntimeError\n" in capsys.readouterr().err


def test_a_supervisor_that_hands_its_job_over_waits_for_what_is_being_sent(
    tmp_path, drumline_home, monkeypatch
):
    """Slurm ends what a batch step leaves behind."""
    folder = RunFolder.for_job("job")
    folder.create()
    folder.begin(e.JobSubmitted(time.time(), "ann", "local"))
    command = f"sleep 2; echo $DRUMLINE_NOTICE_EVENT > '{tmp_path}/told'"
    receiver = {"name": "command", "kind": "command", "command": command, "on": ["preemption"]}

    def hand_over(supervised, *_):
        supervised.notices = JobNotices(supervised, [receiver], {})
        supervised.append(e.Preempted(time.time(), None, "Slurm"))
        return HANDED_OVER

    monkeypatch.setattr(supervisor, "run_job", hand_over)
    child = os.fork()
    if not child:
        os._exit(supervisor.supervise(folder.path, batch=True))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (tmp_path / "told").read_text() == "preemption\n"
