"""Whatever goes wrong on the way to an API server is one sentence with a hint; the server is one of this test."""

import json
import sys

import pytest
from api_server import Stalls
from waiting import wait_until

from drumline.contract.folder import RunFolder
from drumline.engines.kubernetes import client, frames, receiver
from drumline.engines.kubernetes.client import ApiRefusedError, ApiSilentError, GoneError

pytest.importorskip("lightkube", reason="the extra kubernetes, which scripts/test installs")

PODS = "/api/v1/namespaces/default/pods"
VERSION = "client.authentication.k8s.io/v1"


@pytest.fixture
def kubeconfig(server, tmp_path, monkeypatch):
    """Writes that text, or one of that user, and has KUBECONFIG name it."""

    def write(text="", **user):
        (tmp_path / "config").write_text(text or server.config(**user))
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/config")

    return write


def ask():
    with client.open_api({}) as api:
        return api.list("Pod")


CONFIG = {
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
    "users": [{"name": "u", "user": {"token": "t0k3n"}}],
    "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "one",
}
OF_NOBODY = [{"name": "one", "context": {"cluster": "c", "user": "nobody"}}]
OF_NO_CLUSTER = [{"name": "one", "context": {"cluster": "lost", "user": "u"}}]
NO_SERVER = [{"name": "c", "cluster": {"server": "nonsense"}}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            json.dumps({**CONFIG, "contexts": OF_NOBODY}),
            "config has no user 'nobody', which its context 'one' names",
        ),
        (
            json.dumps({**CONFIG, "contexts": OF_NO_CLUSTER}),
            "config has no cluster 'lost', which its context",
        ),
        (json.dumps({**CONFIG, "current-context": "two"}), "config has no context 'two'"),
        (json.dumps({**CONFIG, "current-context": ""}), "config has no current context"),
        (json.dumps({"contexts": []}), "does not say how to reach Kubernetes: 'clusters' is missing"),
        (json.dumps({**CONFIG, "clusters": NO_SERVER}), "nonsense is no address of Kubernetes: "),
        ("just words", "does not say how to reach Kubernetes: "),
        ("{a: [", "does not say how to reach Kubernetes: "),
        ("\0", "does not say how to reach Kubernetes: "),
    ],
)
def test_a_kubeconfig_that_does_not_lead_anywhere(kubeconfig, text, said):
    kubeconfig(text)
    with pytest.raises(ApiRefusedError) as error:
        ask()
    assert said in error.value.message
    assert "\n" not in error.value.message
    assert error.value.hint


def test_a_context_without_a_user_is_asked_without_credentials(kubeconfig, server):
    whole = json.loads(server.config())
    del whole["contexts"][0]["context"]["user"]
    kubeconfig(json.dumps(whole))
    server.answers["GET", PODS] = (200, {"items": []})
    assert ask() == []
    assert server.asked[0][3] is None


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('{}')", "printed no credential"),
        ("print('hello')", "printed no credential"),
        ('print(\'{"status": {"clientCertificateData": "x"}}\')', "gave no token"),
        ("import sys; sys.exit('log in\\nfirst')", "ended with exit code 1: log in first"),
        ("import time; time.sleep(60)", "gave no answer within 1 s"),
    ],
)
def test_a_plugin_that_gives_no_credentials(kubeconfig, server, monkeypatch, code, said):
    if "sleep" in code:
        monkeypatch.setattr(client, "LIMIT_S", 1.0)
    kubeconfig(exec={"apiVersion": VERSION, "command": sys.executable, "args": ["-c", code]})
    with pytest.raises(
        ApiRefusedError, match=r"the credentials of Kubernetes at .* are not to be had: "
    ) as error:
        ask()
    assert said in error.value.message
    assert error.value.hint
    assert server.asked == []


def test_a_plugin_that_is_missing_says_how_to_get_it(kubeconfig):
    kubeconfig(exec={"apiVersion": VERSION, "command": "/nowhere/login", "installHint": "get it\nthere"})
    with pytest.raises(ApiRefusedError) as error:
        ask()
    assert "/nowhere/login: No such file or directory; get it there" in error.value.message


def test_a_plugin_is_asked_again_when_its_token_has_expired(kubeconfig, server, tmp_path):
    code = (
        f"import json, pathlib; count = pathlib.Path({str(tmp_path / 'count')!r});"
        "count.write_text(count.read_text() + 'x' if count.exists() else 'x');"
        "print(json.dumps({'status': {'token': count.read_text()}}))"
    )
    kubeconfig(exec={"apiVersion": VERSION, "command": sys.executable, "args": ["-c", code]})
    server.answers["GET", PODS] = [(200, {"items": []}), (401, {}), (200, {"items": []})]
    with client.open_api({}) as api:
        assert [api.list("Pod"), api.list("Pod")] == [[], []]
    assert [one[3] for one in server.asked] == ["Bearer x", "Bearer x", "Bearer xx"]


UNAUTHORIZED = {"kind": "Status", "code": 401, "message": "Unauthorized"}


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        ((401, UNAUTHORIZED), ApiRefusedError, "does not accept the credentials: Unauthorized"),
        ((401, b"<html>", {"Content-Type": "text/html"}), ApiRefusedError, "credentials: 401 Unauthorized"),
        ((403, b"{"), ApiSilentError, "does not answer as an API server does"),
        ((302, b"", {"Location": "/login"}), ApiSilentError, "does not answer as an API server does"),
        ((200, b"<html>log in</html>"), ApiSilentError, "does not answer as an API server does"),
        ((200, b"[]"), ApiSilentError, "does not answer as an API server does"),
        (
            (404, b"<html>", {"Content-Type": "text/html"}),
            ApiSilentError,
            "an API server does: 404 Not Found",
        ),
        ((404, b"404 page not found\n", {"Content-Type": "text/plain"}), ApiSilentError, "404 Not Found"),
        ((404, {"type": "error", "message": "no cluster"}), ApiSilentError, "as an API server does: "),
        ((410, {"kind": "Status", "code": 410, "message": "too old"}), ApiRefusedError, "too old"),
    ],
)
def test_an_answer_that_is_none(kubeconfig, server, answer, kind, said):
    kubeconfig()
    server.answers["GET", PODS] = answer
    server.answers["GET", "/version"] = answer
    for question in (lambda api: api.list("Pod"), lambda api: api.version()):
        with client.open_api({}) as api, pytest.raises(kind) as error:
            question(api)
        assert said in error.value.message
        assert "\n" not in error.value.message


def test_an_object_is_gone_when_the_server_itself_says_so(kubeconfig, server):
    kubeconfig()
    job, page = "/apis/batch/v1/namespaces/default/jobs/a", (404, b"<html>", {"Content-Type": "text/html"})
    server.answers |= {("GET", job): page, ("DELETE", job): page, ("PATCH", job): page}
    with client.open_api({}) as api:
        for ask_of in (
            lambda: api.get("Job", "a"),
            lambda: api.delete_job("a"),
            lambda: api.patch("Job", "a", {}),
        ):
            with pytest.raises(ApiSilentError, match="as an API server does"):
                ask_of()
        server.answers.clear()
        assert api.get("Job", "a") is None
        api.delete_job("a")
        with pytest.raises(GoneError, match="there is none"):
            api.patch("Job", "a", {})


def test_more_logs_than_a_client_keeps_connections_leave_room_for_questions(kubeconfig, server):
    kubeconfig()
    server.answers["GET", PODS] = (200, {"items": []})
    names = [f"n{number}" for number in range(101)]
    server.answers |= {("GET", f"{PODS}/{name}/log"): (200, Stalls(b"x\n")) for name in names}
    with client.open_api({}) as api:
        logs = [api.follow_log(name) for name in names]
        assert [next(log) for log in logs] == ["x"] * len(names)
        assert api.list("Pod") == []


def test_an_answer_without_a_type(kubeconfig, server):
    kubeconfig()
    server.answers["GET", PODS] = (401, b"", {"Content-Type": ""})
    with pytest.raises(ApiRefusedError, match="does not accept the credentials"):
        ask()


BUSY = {"kind": "Status", "code": 429, "message": "too many requests"}


def test_a_busy_server_is_asked_again_when_it_wants_to_be(kubeconfig, server, monkeypatch):
    kubeconfig()
    waited = []
    monkeypatch.setattr(client.time, "sleep", waited.append)
    server.answers["GET", PODS] = [
        (429, BUSY, {"Retry-After": "3"}),
        (503, BUSY, {"Retry-After": "4"}),
        (200, {"items": []}),
    ]
    assert ask() == []
    assert waited == [3.0, 4.0]


@pytest.mark.parametrize(("wait", "again_s"), [("3600", 3600.0), (None, None), ("Mon, 1 Jan", None)])
def test_the_wait_for_a_busy_server_is_bounded(kubeconfig, server, wait, again_s):
    kubeconfig()
    server.answers["GET", PODS] = (429, BUSY, {"Retry-After": wait} if wait else {})
    with pytest.raises(ApiSilentError, match="is busy: too many requests") as error:
        ask()
    assert error.value.again_s == again_s
    assert len(server.asked) == 1


def test_a_log_whose_connection_is_dead_is_followed_again(kubeconfig, server, monkeypatch, tmp_path):
    def piece(number):
        return (frames.encode(frames.Frame("user_logs/a", number - 1, b"x", number=number)) + "\n").encode()

    kubeconfig()
    monkeypatch.setattr(client, "QUIET_S", 1.5)
    end = (frames.encode(frames.Frame("", end=True)) + "\n").encode()
    log = f"{PODS}/n/log"
    server.answers["GET", log] = [
        (200, Stalls(piece(1) + piece(2)[:20])),
        # What is missing is older than was asked for: then all of it.
        (200, piece(3)),
        (200, piece(1) + piece(2) + piece(3) + end),
    ]
    folder = RunFolder(str(tmp_path / "jobs" / "calm_drum"))
    folder.create()
    logs = receiver.PodLogs(folder, receiver.threading.Event(), {})
    pod = {"metadata": {"name": "n"}, "status": {"phase": "Running"}}
    with client.open_api({}) as api:

        def has_said_all():
            logs.follow(api, pod)
            logs._threads["n"].join(20.0)
            return logs.has_said_all("n")

        wait_until(has_said_all, 60.0, "the whole log")
    with open(f"{folder.path}/user_logs/a") as file:
        assert file.read() == "xxx"

    since = [int(one.get("sinceSeconds", 0)) for one in server.words]
    assert since[0] == since[-1] == 0
    assert max(since) > receiver._MARGIN_S


def test_every_command_says_it_in_one_sentence(server, cli, drumline_home, tmp_path):
    whole = json.loads(server.config())
    path = tmp_path / "config"
    path.write_text(json.dumps({**whole, "contexts": OF_NOBODY}))
    words = ["--type", "kubernetes", "--name", "k8s", "--kubeconfig", str(path), "--context", "one"]
    said = f"{path} has no user 'nobody', which its context 'one' names"
    attach = cli("compute", "attach", *words, "--image", "none")
    assert (attach.rc, said in attach.err) == (2, True), attach.err
    assert cli("compute", "attach", *words, "--image", "none", "--no-check").rc == 0
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.txt").touch()
    (tmp_path / "job.yml").write_text("{code: src, command: 'true', compute: azureml:k8s, name: job}")
    create = cli("job", "create", "-f", tmp_path / "job.yml")
    listed = cli("compute", "list-nodes", "k8s")
    for done in (attach, create, listed):
        assert said in done.err
        assert "Traceback" not in done.out + done.err
    assert (create.rc, listed.rc) == (2, 2)
    shown = cli("compute", "show", "k8s", "-o", "json")
    assert (shown.rc, json.loads(shown.out)["reason"]) == (0, said)
