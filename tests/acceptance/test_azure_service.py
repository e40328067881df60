"""``drumline azure serve``, ``env`` and ``run``: who is let in, what a retry does, and what is left of a server."""

import contextlib
import http.client
import json
import os
import re
import shlex
import shutil
import signal
import ssl
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from azure_service import DRUMLINE, SCOPE, Service, job_body, run_service
from waiting import wait_until

pytest.importorskip("starlette")
pytest.importorskip("cryptography")

from drumline.contract.errors import DrumlineError
from drumline.rest import certificate, endpoint, service


@pytest.fixture
def azure(drumline_home):
    with run_service() as server:
        yield server


def wait_for_end(azure, name):
    found = {}

    def ended():
        found.update(azure.of(f"/jobs/{name}").json["properties"])
        return found["status"] in ("Completed", "Failed", "Canceled")

    wait_until(ended, 60)
    return found


def show_details(azure, name):
    return azure.of(f"/runs/{name}/details", service="/history/v1.0").json


def test_a_job_of_two_ranks_runs_and_its_log_is_read(azure):
    ranks = {"distribution": {"distributionType": "PyTorch", "processCountPerInstance": 2}}
    made = azure.of("/jobs/first", "PUT", job_body("echo rank $RANK", **ranks))
    assert (made.status, made.json["name"]) == (201, "first"), made.body
    assert made.json["id"] == f"{SCOPE}/jobs/first"
    assert wait_for_end(azure, "first")["status"] == "Completed"
    # Else the client would read no log of a job that is as quick as this one.
    assert show_details(azure, "first")["status"] == "Finalizing"
    wait_until(lambda: show_details(azure, "first")["status"] == "Completed", 30)
    logs = show_details(azure, "first")["logFiles"]
    assert sorted(logs) == ["user_logs/std_log_process_00.txt", "user_logs/std_log_process_01.txt"]
    # The client shows no token for these.
    assert azure.ask(logs["user_logs/std_log_process_01.txt"], headers={}).body == b"rank 1\n"
    assert azure.ask(logs["user_logs/std_log_process_01.txt"].partition("?")[0], headers={}).status == 403


def test_a_failure_is_told_in_one_sentence(azure):
    azure.of("/jobs/fails", "PUT", job_body("exit 3"))
    wait_for_end(azure, "fails")
    told = show_details(azure, "fails")["error"]["error"]["message"]
    assert re.fullmatch(r"rank 0 on node 0 failed .* exit code 3", told)


def test_a_job_that_is_sent_again_runs_once_and_another_of_its_name_is_refused(azure):
    statuses = []
    senders = [
        threading.Thread(
            target=lambda: statuses.append(azure.of("/jobs/once", "PUT", job_body("echo once")).status)
        )
        for _ in range(4)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert sorted(statuses) == [200, 200, 200, 201]
    wait_for_end(azure, "once")
    other = azure.of("/jobs/once", "PUT", job_body("echo other"))
    assert (other.status, other.message) == (
        400,
        "there is a job 'once' already, and it is another (choose another name)",
    )
    log = show_details(azure, "once")["logFiles"]["user_logs/std_log.txt"]
    assert azure.ask(log, headers={}).body == b"once\n"


def test_another_job_of_a_name_is_refused_whatever_differs(azure):
    variables = {
        "environmentVariables": {"A": "1"},
        "inputs": {"x": {"jobInputType": "literal", "value": "1"}},
    }
    assert azure.of("/jobs/own", "PUT", job_body("echo ${{inputs.x}}", **variables)).status == 201
    for other in (
        {"environmentVariables": {"A": "2"}},
        {"inputs": {"x": {"jobInputType": "literal", "value": "2"}}},
    ):
        assert (
            azure.of("/jobs/own", "PUT", job_body("echo ${{inputs.x}}", **{**variables, **other})).status
            == 400
        )
    wait_for_end(azure, "own")
    fetched = azure.of("/jobs/own").json
    assert "drumline.request" not in fetched["properties"]["properties"]
    changed = {**fetched["properties"], "tags": {"new": "1"}, "isArchived": True}
    updated = azure.of("/jobs/own", "PUT", {"properties": changed})
    assert (updated.status, updated.json["properties"]["tags"]) == (200, {"new": "1"}), updated.body
    assert azure.of("/jobs/own").json["properties"]["isArchived"] is True
    cleared = azure.of("/jobs/own", "PUT", {"properties": {**changed, "tags": {}, "isArchived": False}})
    assert cleared.json["properties"]["tags"] == {}


def test_an_edit_that_is_of_another_kind_changes_nothing(azure):
    azure.of("/jobs/own", "PUT", job_body("true", tags={"a": "b"}))
    wait_for_end(azure, "own")
    for wrong in (
        {"tags": "abc"},
        {"properties": 5},
        {"tags": {"a": 1}},
        {"tags": {"a": "\ud800"}},
        {"displayName": [1]},
    ):
        path = f"/history/v1.0{SCOPE}/experiments/e/runs/own"
        assert azure.ask(path, "PATCH", wrong).status == 400, wrong
    assert azure.of("/jobs/own").json["properties"]["tags"] == {"a": "b"}
    assert azure.of("/jobs").status == 200


def test_what_is_wrong_with_a_job_is_a_sentence(azure):
    refused = azure.of("/jobs/bad", "PUT", job_body("echo ${{inputs.x}}"))
    assert refused.status == 400
    assert "inputs.x" in refused.message
    assert azure.of("/jobs/bad").status == 404
    assert azure.of("/jobs/bad", "PUT", {"properties": []}).status == 400


def test_nothing_is_answered_without_a_token(azure):
    for prefix, routes in service._ROUTES.items():
        version = "/v1.0" if prefix else ""
        for method, path, _ in routes:
            filled = path.replace("{kind:kind}", "data")
            for part in ("name", "version", "node", "experiment", "path:path"):
                filled = filled.replace(f"{{{part}}}", "a1")
            address = prefix + version + SCOPE + filled
            body = None if method == "GET" else {}
            for headers in ({}, {"Authorization": "Bearer a.b.c"}, {"Authorization": "Bearer \u00e4"}):
                assert azure.ask(address, method, body, headers).status == 401, f"{method} {address}"


def test_who_shows_no_secret_gets_no_token(azure):
    for headers in (
        {},
        {"X-IDENTITY-HEADER": "x"},
        {"X-IDENTITY-HEADER": azure.variables["IDENTITY_HEADER"][:-1]},
    ):
        assert azure.ask("/msi/token?resource=x", headers=headers).status == 401
    assert (
        azure.ask("/msi/token?resource=x", headers={**azure.identity, "Host": "evil.example"}).status == 403
    )


def test_a_token_ends(azure, monkeypatch):
    key = endpoint.get_key()
    monkeypatch.setattr(endpoint, "LIFE_S", -1)
    ended, _ = endpoint.make_token(key, "a")
    assert not endpoint.is_token(key, ended)
    assert azure.ask(f"{SCOPE}/jobs", headers={"Authorization": f"Bearer {ended}"}).status == 401


def test_what_drumline_lacks_is_said(azure):
    for path, words in {
        "/onlineEndpoints/a": "Drumline trains; it has no endpoints",
        "/connections/a": "Drumline has no hubs, connections or indexes",
        "/computes/a/stop": "Drumline starts and stops no machines",
        "/jobs/a/b/c": "Drumline has no GET of /sub",
    }.items():
        refused = azure.of(path)
        assert (refused.status, refused.message[: len(words)]) == (501, words)


def test_a_schedule_is_kept_and_submits_its_job_when_it_is_triggered(azure, drumline_home):
    uploads = drumline_home / "workspaces" / "team" / "uploads"
    (uploads / "c0de.1").mkdir(parents=True)
    (uploads / "c0de.1" / "say.sh").write_text("echo said")
    job = {"codeId": f"{SCOPE}/codes/c0de/versions/1", **job_body("sh say.sh")["properties"]}
    cron = {"triggerType": "Cron", "expression": "0 * * * *"}
    made = azure.of(
        "/schedules/nightly",
        "PUT",
        {"properties": {"trigger": cron, "action": {"actionType": "CreateJob", "jobDefinition": job}}},
    )
    assert (made.status, made.json["properties"]["provisioningState"]) == (201, "Succeeded"), made.body
    assert "nothing by the clock" in made.json["properties"]["properties"]["drumline.warning"]
    other = {**job, "codeId": f"{SCOPE}/codes/c0de/versions/2"}
    shutil.copytree(uploads / "c0de.1", uploads / "c0de.2")
    for definition in (other, job):
        again = {
            "properties": {
                "trigger": cron,
                "action": {"actionType": "CreateJob", "jobDefinition": definition},
            }
        }
        assert azure.of("/schedules/nightly", "PUT", again).status == 200
    (record,) = (uploads.parent / "assets" / "schedule").rglob("*.yml")
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert "c0de/2" not in record.read_text()
    # What was uploaded goes after a month; the schedule has a snapshot of it.
    shutil.rmtree(uploads)
    done = azure.of("/schedules/nightly/trigger", "POST", {"scheduleTime": "2026-01-01T00:00:00Z"})
    assert (done.status, done.json["scheduleActionType"]) == (200, "CreateJob"), done.body
    ended = wait_for_end(azure, done.json["submissionId"])
    assert ended["status"] == "Completed"
    log = show_details(azure, done.json["submissionId"])["logFiles"]["user_logs/std_log.txt"]
    assert azure.ask(log, headers={}).body == b"said\n"
    # Disabled as the client does it: with what it has fetched.
    fetched = azure.of("/schedules/nightly").json["properties"]
    assert (
        azure.of("/schedules/nightly", "PUT", {"properties": {**fetched, "isEnabled": False}}).status == 200
    )
    assert azure.of("/schedules").json["value"] == []
    (listed,) = azure.ask(f"{SCOPE}/schedules?listViewType=DisabledOnly").json["value"]
    assert listed["name"] == "nightly"
    assert "disabled" in azure.of("/schedules/nightly/trigger", "POST", {}).message
    assert azure.of("/schedules/nightly", "DELETE").status == 200
    assert azure.of("/schedules/nightly").status == 404


def test_a_schedule_whose_job_could_not_run_is_refused(azure):
    for action, message in (
        ({"actionType": "CreateMonitor"}, "must be CreateJob; got 'CreateMonitor'"),
        ({"actionType": "CreateJob"}, "jobDefinition must be an object"),
        (
            {
                "actionType": "CreateJob",
                "jobDefinition": {"jobType": "Pipeline", "sourceJobId": f"{SCOPE}/jobs/x"},
            },
            "there is no job 'x'",
        ),
        (
            {"actionType": "CreateJob", "jobDefinition": job_body("echo ${{inputs.x}}")["properties"]},
            "inputs.x",
        ),
    ):
        refused = azure.of("/schedules/s", "PUT", {"properties": {"action": action}})
        assert message in refused.message
        assert azure.of("/schedules/s").status == 404


def test_a_workspace_that_is_there_is_changed_and_deleted(azure, drumline_home):
    """The client finds any, and so it sends no PUT."""
    for method, body, status, words in (
        ("PATCH", {"properties": {"description": "first"}, "tags": {"a": "1"}}, 200, "first"),
        ("PATCH", {"properties": {"friendlyName": "second"}}, 200, "first"),
        ("DELETE", None, 200, ""),
        ("DELETE", None, 404, "there is no workspace 'team'"),
    ):
        answer = azure.of("/", method, body)
        assert (answer.status, words in answer.body.decode()) == (status, True), answer.body
    assert not (drumline_home / "workspaces" / "team").exists()
    # A placeholder is no name of the server's own workspace.
    assert azure.ask(SCOPE.replace("/team", "/%3CWORKSPACE_NAME%3E"), "DELETE").status in (400, 404)


def test_a_version_that_is_part_of_a_path_is_refused(azure):
    for version in ("%2e%2e", "a%2Fb", "..%2fx"):
        body = {"properties": {"dataType": "uri_folder", "dataUri": "azureml://datastores/a/paths/b"}}
        refused = azure.of(f"/data/d/versions/{version}", "PUT", body)
        assert (refused.status, "cannot be a version" in refused.message) == (400, True), refused.body


def test_a_component_has_no_label_in_its_answer_and_comes_back_from_the_archive(azure):
    """A name whose versions are all archived is restored by a PUT of the name."""
    environment = "azureml:azureml://registries/azureml/environments/sklearn-1.5/labels/latest"
    spec = {"name": "c", "version": "6", "type": "command", "command": "true", "environment": environment}
    body = {"properties": {"componentSpec": spec, "isArchived": False}}
    made = azure.of("/components/c/versions/6", "PUT", body)
    assert made.status == 201, made.body
    shown = made.json["properties"]["componentSpec"]["environment"]
    assert shown == environment.replace("labels/latest", "versions/1")
    for is_archived, count in ((True, 0), (False, 1)):
        changed = azure.of("/components/c", "PUT", {"properties": {"isArchived": is_archived}})
        assert changed.status in (200, 201), changed.body
        assert len(azure.of("/components").json["value"]) == count


def test_an_environment_of_an_image_is_sent_again_to_the_next_server(drumline_home):
    context = drumline_home / "workspaces" / "team" / "datastores" / "workspaceblobstore" / "up" / "context"
    context.mkdir(parents=True)
    (context / "Dockerfile").write_text("FROM ubuntu")
    for inside in ("up/context/", "up/context/", "up/../up/context/"):
        with run_service() as azure:
            uri = f"{azure.address}/d18-workspaceblobstore-team/{inside}"
            body = {"properties": {"build": {"contextUri": uri, "dockerfilePath": "Dockerfile"}}}
            made = azure.of("/environments/CliV2AnonymousEnvironment/versions/0f", "PUT", body)
            assert made.status == (400 if ".." in inside else 201), made.body


def test_the_context_of_an_image_is_a_folder_that_was_uploaded_and_is_kept(azure, drumline_home):
    team = drumline_home / "workspaces" / "team"
    (team / "uploads" / "c0de.1").mkdir(parents=True)
    (team / "uploads" / "c0de.1" / "Dockerfile").write_text("FROM ubuntu")
    (team / "datastores" / "workspaceblobstore").mkdir(parents=True)

    def put(uri, version="1"):
        body = {
            "properties": {"build": {"contextUri": f"{azure.address}/{uri}", "dockerfilePath": "Dockerfile"}}
        }
        return azure.of(f"/environments/image/versions/{version}", "PUT", body)

    for uri in ("d18-workspaceblobstore-team//etc", "d18-workspaceblobstore-team/a%00", "nothing/a", ""):
        assert put(uri).status == 400, uri
    kept = put("c6-c0de.1-team").json["properties"]["build"]["contextUri"]
    shutil.rmtree(team / "uploads")
    assert f"{team}/snapshots/" in kept
    assert (Path(kept) / "Dockerfile").read_text() == "FROM ubuntu"


def test_a_server_that_is_killed_leaves_no_half_job_and_its_shell_goes_on(drumline_home):
    with run_service() as first:
        port = int(first.address.rpartition(":")[2])

        def send():
            with contextlib.suppress(ConnectionError, http.client.HTTPException):
                first.of("/jobs/late", "PUT", job_body("echo late"))

        sender = threading.Thread(target=send)
        sender.start()
        wait_until(lambda: Path(drumline_home, "workspaces", "team").exists(), 30)
        first.process.kill()
        first.process.wait()
        sender.join()
    with run_service(port) as again:
        # The token and the secret of before are good still.
        assert again.ask(f"{SCOPE}/jobs", headers={"Authorization": f"Bearer {first.token}"}).status == 200
        assert again.of("/jobs/late", "PUT", job_body("echo late")).status in (200, 201)
        assert wait_for_end(again, "late")["status"] == "Completed"
        assert [job["name"] for job in again.of("/jobs").json["value"]] == ["late"]


def test_what_a_server_keeps_is_for_its_owner(azure, drumline_home):
    files = list(Path(drumline_home, "azure").iterdir())
    assert len(files) > 4
    for path in (*files, files[0].parent):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_the_authority_can_play_no_other_host(drumline_home, tmp_path):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    authority, key = certificate._get_authority()
    own = certificate._make_key()
    other = certificate._sign(authority.subject, key, own, is_authority=False)
    forged = (
        x509.CertificateBuilder(authority.subject, other.subject, own.public_key(), 1)
        .not_valid_before(other.not_valid_before_utc)
        .not_valid_after(other.not_valid_after_utc)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("login.microsoftonline.com")]), critical=False
        )
        # Without these a newer Python refuses it before it comes to names.
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "forged.pem"
    path.write_text(certificate._to_text(own) + certificate._to_text(forged))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    client = ssl.create_default_context(cadata=certificate._to_text(authority))
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname="login.microsoftonline.com")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    told = ""
    for side in (ours, theirs, ours, theirs, ours):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError as error:
            told = str(error)
            break
    assert "permitted subtree violation" in told


def run_azure(*words, **options):
    return subprocess.run(
        [*DRUMLINE, "azure", *words], capture_output=True, text=True, check=False, **options
    )


def test_a_program_finds_a_server_that_ends_with_it(drumline_home):
    look = "import os, sys; print(os.environ['AZUREML_DEV_URL_MFE'], 'DRUMLINE_AZURE' in os.environ); sys.exit(7)"
    done = run_azure("run", "--", sys.executable, "-c", look, env={**os.environ, "DRUMLINE_AZURE": "1"})
    assert done.returncode == 7, done.stderr
    address, is_switched = done.stdout.split()
    assert (address.startswith("https://127.0.0.1:"), is_switched) == (True, "False")
    assert endpoint.find_running() == ""
    assert not list(Path(drumline_home, "azure").glob("*.json"))


def serves(pid, program):
    """Return whether that process is the server of that program."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return words[-3:-1] == [b"--ends-with", str(program).encode()]
    return False


def test_the_server_of_a_program_ends_when_that_is_killed(drumline_home):
    program = subprocess.Popen([*DRUMLINE, "azure", "run", "sleep", "1000"], start_new_session=True)
    server = []

    def has_started():
        server[:] = [
            pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if serves(pid, program.pid)
        ]
        return server

    wait_until(has_started, 30)
    os.killpg(program.pid, signal.SIGKILL)
    program.wait()
    wait_until(lambda: not serves(server[0], program.pid), 30)


def test_a_program_does_not_borrow_the_server_of_another(drumline_home):
    first = subprocess.Popen(
        [*DRUMLINE, "azure", "run", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    first.stdin.write(b"up\n")
    first.stdin.flush()
    assert first.stdout.readline() == b"up\n"
    assert endpoint.find_running() == ""
    first.communicate()
    assert first.returncode == 0


def test_a_proxy_is_not_asked_for_loopback(azure):
    done = run_azure(
        "run", "printenv", "NO_PROXY", env={**os.environ, "NO_PROXY": "corp", "HTTPS_PROXY": "http://x"}
    )
    assert done.stdout.strip() == "corp,127.0.0.1,localhost"


def test_the_secret_reaches_no_rank(azure):
    done = run_azure("run", *DRUMLINE, "run", "--", "env")
    assert done.returncode == 0, done.stderr
    for name in ("IDENTITY_HEADER", "IDENTITY_ENDPOINT", "AZUREML_DEV_URL_MFE"):
        assert name not in done.stdout


def test_ranks_trust_whom_the_shell_trusted_before(azure):
    """Inside the variables of the server twice: containers and other machines have no file of it."""
    environ = {**os.environ, "SSL_CERT_FILE": "/corp.pem"}
    environ.pop("REQUESTS_CA_BUNDLE", None)
    done = run_azure("run", *DRUMLINE, "azure", "run", *DRUMLINE, "run", "--", "env", env=environ)
    assert done.returncode == 0, done.stderr
    names = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "DRUMLINE_BEFORE_")
    shown = [line for line in done.stdout.splitlines() if line.startswith(names)]
    assert shown == ["SSL_CERT_FILE=/corp.pem"]


READ = "import sys, mlflow; print(mlflow.MlflowClient(sys.argv[1]).get_run('logged').data.metrics)"


def test_plain_mlflow_reads_the_runs_at_the_address_of_the_workspace(azure):
    program = "from azureml.core import Run; Run.get_context().log('loss', 0.25)"
    azure.of("/jobs/logged", "PUT", job_body(f'{shlex.quote(sys.executable)} -c "{program}"'))
    assert wait_for_end(azure, "logged")["status"] == "Completed"
    uri = azure.of("").json["properties"]["mlFlowTrackingUri"]
    environ = {name: value for name, value in os.environ.items() if name != "MLFLOW_ALLOW_FILE_STORE"}
    done = run_azure("run", sys.executable, "-c", READ, uri, env=environ)
    assert done.stdout == "{'loss': 0.25}\n", done.stderr
    refused = azure.of("/api/2.0/mlflow/runs/get", service="/mlflow/v2.0")
    assert (refused.status, uri in refused.json["message"]) == (501, True)


def test_a_new_key_ends_tokens_and_certificates(drumline_home):
    with run_service() as first:
        first_authority = Path(drumline_home, "azure", "authority.pem").read_text()
        refused = run_azure("serve", "--port", "0", "--new-key", timeout=30)
        assert (refused.returncode, "end that server first" in refused.stderr) == (2, True)
    with run_service(0, "--new-key") as again:
        for headers in ({"Authorization": f"Bearer {first.token}"}, first.identity):
            assert again.ask(f"{SCOPE}/jobs", headers=headers).status == 401
        assert again.of("/jobs").status == 200
        Path(drumline_home, "old.pem").write_text(first_authority)
        again.variables["REQUESTS_CA_BUNDLE"] = f"{drumline_home}/old.pem"
        with pytest.raises(ssl.SSLCertVerificationError):
            again.of("/jobs")


def test_the_studio_serves_the_client_too(drumline_home):
    words = [*DRUMLINE, "studio", "--azure", "--no-browser", "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        azure = Service(process, endpoint.find_running())
        assert azure.of("/jobs/one", "PUT", job_body("echo one")).status == 201
        assert wait_for_end(azure, "one")["status"] == "Completed"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert not list(Path(drumline_home).glob("*/*.json"))


def test_a_damaged_key_lets_nobody_in(drumline_home):
    key = endpoint.get_key()
    assert endpoint.get_key() == key
    path = Path(drumline_home, "azure", "key")
    for text, mode in (("", 0o600), ("ab", 0o600), (key.hex(), 0o644), ("z" * 64, 0o600)):
        path.write_text(text)
        path.chmod(mode)
        with pytest.raises(DrumlineError, match="damaged, or others can read it"):
            endpoint.get_key()


def test_strangers_do_not_use_up_the_server(azure):
    """The server takes 300 connections; those that have shown nothing make room for others."""
    port = int(azure.address.rpartition(":")[2])
    context = ssl.create_default_context(cafile=azure.variables["REQUESTS_CA_BUNDLE"])
    with contextlib.ExitStack() as stack:
        for path in ("/discovery", "/nothing/x") * 155:
            connection = stack.enter_context(
                contextlib.closing(http.client.HTTPSConnection("127.0.0.1", port, context=context))
            )
            connection.request("GET", path)
            connection.getresponse().read()
        assert azure.ask(f"{SCOPE}/jobs").status == 200


def test_a_program_finds_a_server_that_runs(azure):
    done = run_azure("run", "printenv", "AZUREML_DEV_URL_MFE")
    assert done.stdout.strip() == azure.address


def test_variables_are_printed_for_each_shell(azure):
    fish = run_azure("env", "--shell", "fish").stdout
    assert f"set -gx AZUREML_DEV_URL_MFE {shlex.quote(azure.address)};" in fish
    assert "set -e AZURE_CLIENT_SECRET;" in fish
    assert f"$Env:AZUREML_DEV_URL_MFE = '{azure.address}'" in run_azure("env", "--shell", "pwsh").stdout


def test_without_a_server_there_are_no_variables(drumline_home):
    done = run_azure("env")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no server runs" in done.stderr


def test_az_gives_a_token_of_the_server(azure):
    text = "az account get-access-token --resource https://ml.azure.com"
    done = run_azure("run", "sh", "-c", text)
    token = json.loads(done.stdout)["accessToken"]
    assert azure.ask(f"{SCOPE}/jobs", headers={"Authorization": f"Bearer {token}"}).status == 200
