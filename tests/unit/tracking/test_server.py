"""A team's MLflow server, by its REST interface. The real one is asked in tests/integration/mlflow."""

import base64
import json
import math
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from mlflow_server import FakeServer

from drumline.tracking.server import Server, ServerError


@pytest.fixture
def answering():
    """The address of a server that says just that, whatever it is asked."""
    servers = []

    def start(said, code=200):
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                body = json.dumps(said() if callable(said) else said).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET  # noqa: N815

        server = HTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_run_is_made_ended_and_read():
    with FakeServer() as there:
        server = Server(there.uri + "/", {})
        run_id, experiment_id = server.create_run("job", "digits", "ann", {"drumline.job": "job"})
        assert (experiment_id, there.experiments["digits"]) == ("1", "1")
        assert there.runs[run_id]["tags"] == [{"key": "drumline.job", "value": "job"}]
        assert server.create_run("other", "digits", "ann", {})[1] == "1"
        there.log(run_id, "loss", 3.0, 2.0, "NaN", "Infinity", -1.7976931348623157e308)
        values = [point.value for point in server.history(run_id, "loss")]
        assert values[:2] == [3.0, 2.0]
        assert math.isnan(values[2])
        assert values[3:] == [math.inf, -math.inf]
        assert server.latest(run_id)["loss"].step == 4
        server.end_run(run_id, "Canceled")
        assert there.runs[run_id]["status"] == "KILLED"


def test_the_runs_below_one_are_found_in_any_experiment():
    with FakeServer() as there:
        server = Server(there.uri, {})
        run_id, _ = server.create_run("job", "digits", "ann", {})
        below, _ = server.create_run("fast-ape", "lightning_logs", "ann", {"mlflow.parentRunId": run_id})
        assert server.children(run_id) == {below: "fast-ape"}
        assert server.children("x' or '1' = '1") == {}


BASIC = "Basic " + base64.b64encode(b"ann:se cret").decode()


@pytest.mark.parametrize(
    ("variables", "user", "header"),
    [
        ({"MLFLOW_TRACKING_TOKEN": "t0ken"}, "", "Bearer t0ken"),
        ({"MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": "se cret"}, "", BASIC),
        (
            {
                "MLFLOW_TRACKING_USERNAME": "ann",
                "MLFLOW_TRACKING_PASSWORD": "se cret",
                "MLFLOW_TRACKING_TOKEN": "t",
            },
            "",
            BASIC,
        ),
        ({}, "ann:se%20cret@", BASIC),
    ],
)
def test_who_asks_is_said_as_mlflow_says_it(variables, user, header):
    with FakeServer(wants=header) as there:
        server = Server(there.uri.replace("http://", f"http://{user}"), variables)
        assert server.create_run("job", "Default", "ann", {})[1] == "0"
        with pytest.raises(ServerError, match="UNAUTHENTICATED: who are you") as caught:
            Server(there.uri, {}).latest("x")
        assert "MLFLOW_TRACKING_TOKEN" in caught.value.hint


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("refuse", "refuses experiments/get-by-name"),
        ("redirect", "HTTP 302, and leads to http://127.0.0.1:1/elsewhere"),
        ("garbage", "does not answer as an MLflow server"),
        ("silent", "timed out"),
    ],
)
def test_a_bad_server_is_one_error_that_tells_no_secret(fault, words):
    with FakeServer(fault) as there:
        uri = there.uri.replace("http://", "http://ann:secret@")
        with pytest.raises(ServerError, match=words) as caught:
            Server(uri, {"MLFLOW_TRACKING_TOKEN": "t0ken"}, timeout_s=0.3).create_run(
                "job", "digits", "ann", {}
            )
        assert "secret" not in str(caught.value)
        assert "t0ken" not in str(caught.value)


def test_no_server_is_an_error_too():
    with pytest.raises(ServerError, match="Connection refused"):
        Server("http://127.0.0.1:1", {}).latest("x")


def test_an_experiment_that_was_deleted_is_said_so():
    with FakeServer() as there:
        there.experiments["digits"] = "deleted"
        with pytest.raises(ServerError, match="experiment 'digits' is deleted"):
            Server(there.uri, {}).create_run("job", "digits", "ann", {})


@pytest.mark.parametrize("end", ["", "\r\n"])
def test_a_secret_that_a_server_says_again_is_not_kept(answering, end):
    said = {"error_code": "X", "message": "you sent Bearer t0ken"}
    with pytest.raises(ServerError, match=r"X: you sent Bearer \*\*\*\s") as caught:
        Server(answering(said, 401), {"MLFLOW_TRACKING_TOKEN": "t0ken" + end}).latest("x")
    assert "t0ken" not in str(caught.value)


def test_nor_a_token_that_cannot_be_sent():
    with pytest.raises(ServerError, match="MLFLOW_TRACKING_TOKEN has characters") as caught:
        Server("http://127.0.0.1:9", {"MLFLOW_TRACKING_TOKEN": "t0\r\nken"}).latest("x")
    assert "ken has" not in str(caught.value).replace("TOKEN has", "")


@pytest.mark.parametrize(
    "said", [{"experiments": 5, "runs": 5}, {"experiments": [{"experiment_id": "1"}], "runs": 7}]
)
def test_lists_that_are_none_are_empty(answering, said):
    assert Server(answering(said), {}).children("x") == {}


def test_a_history_without_an_end_has_one(answering):
    answers = []
    uri = answering(lambda: answers.append(1) or {"metrics": [], "next_page_token": str(len(answers))})
    assert Server(uri, {}).history("x", "loss") == []
    assert len(answers) < 100


def test_names_can_be_written(answering):
    uri = answering({"run": {"data": {"metrics": [{"key": "a\ud800", "timestamp": 1, "value": 1}]}}})
    assert list(Server(uri, {}).latest("x")) == ["a?"]


@pytest.mark.parametrize("number", ["7\x1b]0;evil\x07", "\ud800", 5, "7" * 1000, None])
def test_an_id_is_a_plain_word(answering, number):
    said = {"experiment": {"experiment_id": number, "lifecycle_stage": "active"}}
    with pytest.raises(ServerError, match="returned no id for the experiment 'digits'"):
        Server(answering(said), {}).create_run("job", "digits", "ann", {})
