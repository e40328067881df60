"""``drumline azure serve``, ``env`` and ``run``: who is let in, what a retry does, and what is left of a server."""

import contextlib
import http.client
import json
import os
import re
import shlex
import signal
import ssl
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from azure_service import DRUMLINE, SCOPE, job_body, run_service
from waiting import wait_until

pytest.importorskip("starlette")
pytest.importorskip("cryptography")

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


def test_a_job_of_two_ranks_runs_and_its_log_is_read(azure):
    ranks = {"distribution": {"distributionType": "PyTorch", "processCountPerInstance": 2}}
    made = azure.of("/jobs/first", "PUT", job_body("echo rank $RANK", **ranks))
    assert (made.status, made.json["name"]) == (201, "first"), made.body
    assert made.json["id"] == f"{SCOPE}/jobs/first"
    assert wait_for_end(azure, "first")["status"] == "Completed"
    seen = [azure.of("/runs/first/details", service="/history/v1.0").json for _ in range(2)]
    assert [details["status"] for details in seen] == ["Finalizing", "Completed"]
    logs = seen[0]["logFiles"]
    assert sorted(logs) == ["user_logs/std_log_process_00.txt", "user_logs/std_log_process_01.txt"]
    # The client shows no token for these.
    assert azure.ask(logs["user_logs/std_log_process_01.txt"], headers={}).body == b"rank 1\n"
    assert azure.ask(logs["user_logs/std_log_process_01.txt"].partition("?")[0], headers={}).status == 403


def test_a_failure_is_told_in_one_sentence(azure):
    azure.of("/jobs/fails", "PUT", job_body("exit 3"))
    wait_for_end(azure, "fails")
    told = azure.of("/runs/fails/details", service="/history/v1.0").json["error"]["error"]["message"]
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
    log = azure.of("/runs/once/details", service="/history/v1.0").json["logFiles"]["user_logs/std_log.txt"]
    assert azure.ask(log, headers={}).body == b"once\n"


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
            for part in ("name", "version", "node", "experiment"):
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
    for path in ("/onlineEndpoints", "/jobs/a/b/c", "/schedules/s"):
        refused = azure.of(path)
        assert refused.status == 501
        assert refused.message.startswith("Drumline has no")


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


def test_the_server_of_a_program_ends_when_that_is_killed(drumline_home):
    program = subprocess.Popen([*DRUMLINE, "azure", "run", "sleep", "1000"], start_new_session=True)
    wait_until(endpoint.find_running, 30)
    os.killpg(program.pid, signal.SIGKILL)
    program.wait()
    wait_until(lambda: not endpoint.find_running(), 30)


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
