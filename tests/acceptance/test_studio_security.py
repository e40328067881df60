"""Who gets into the studio: every route and method, without what it takes, and with what another page would send."""

import contextlib
import http.client
import itertools
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_jobs import one_rank, wait_for_status, write_job
from studio_server import API, run_studio

from drumline.control.settings import studios
from drumline.studio.app import list_routes
from drumline.studio.openapi import read_document
from drumline.studio.security import StudioSettings, Tokens

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
PUBLIC = ("/static/", "/login")
VALUES = {"{name}": "job", "{hash}": "x", "{path:path}": "x"}


def paths():
    """A path of every route, and of none."""
    found = []
    for route in list_routes(StudioSettings(1), Tokens()):
        own = path = str(getattr(route, "path", ""))
        for parameter, value in VALUES.items():
            path = path.replace(parameter, value)
        assert "{" not in path, f"give {own} a value here"
        found.append(path)
    return [*found, "/", f"{API}/nothing", "//api/v1/jobs", "/jobs/job/logs"]


@pytest.fixture
def studio(cli, tmp_path):
    write_job(tmp_path, "true", **one_rank())
    cli("job", "create", "-f", "job.yml", "-n", "job", "--stream")
    with run_studio() as server:
        yield server


def is_public(path, method):
    return path.startswith("/static/") or (path == "/login" and method in ("GET", "HEAD"))


def test_no_route_answers_without_a_credential(studio):
    for path in paths():
        for method in METHODS:
            answer = studio.ask(path, method, {} if method == "POST" else None, {})
            allowed = (200, 404) if is_public(path, method) else ()
            assert answer.status in (401, 403, 405, *allowed), f"{method} {path}: {answer.status}"
            assert b'"sentence"' not in answer.data


def test_what_a_path_has_not_is_said_with_what_it_has(studio):
    """By the guard, for methods that nothing has, and for those that other paths have."""
    for named, item in read_document()["paths"].items():
        known = {method.upper() for method in item if method in ("get", "post")}
        allowed = known | ({"HEAD"} if "GET" in known else set())
        path = named.replace("{name}", "job")
        # A shorter path takes the last part of this one for a name.
        is_shared = path in ("/jobs/cancel", "/jobs/archive")
        for method in {"PUT", "OPTIONS", "DELETE", "POST"} - known:
            answer = studio.ask(API + path, method, {} if method == "POST" else None)
            told = set(answer.headers["Allow"].split(", "))
            assert answer.status == 405, f"{method} {path}: {answer.status}"
            assert told == allowed | ({"GET", "HEAD"} if is_shared else set()), f"{method} {path}"
            assert answer.json["error"]["message"].startswith(f"there is no {method}")
    assert studio.ask("/login", "PUT").headers["Allow"] == "GET, HEAD, POST"
    assert studio.ask("/jobs/job", "PUT").headers["Allow"] == "GET, HEAD"
    assert set(studio.ask("/jobs/job", "POST", {}).headers["Allow"].split(", ")) == {"GET", "HEAD"}
    assert studio.ask(f"{API}/nothing", "POST", {}).status == 404


def test_no_route_answers_to_a_wrong_token_or_cookie(studio):
    wrong = (
        {"Authorization": "Bearer x"},
        {"Authorization": "Basic x"},
        {"Cookie": f"drumline-studio-{studio.port}=x"},
    )
    for path in paths():
        for method in ("GET", "POST"):
            for headers in wrong:
                answer = studio.ask(path, method, {} if method == "POST" else None, headers)
                allowed = (200, 404) if is_public(path, method) else ()
                # A login without a token in its body is wrong in itself.
                assert answer.status in (401, 403, 429, *allowed, *((400,) if path == "/login" else ())), (
                    f"{method} {path} {headers}: {answer.status}"
                )


OTHER_HOSTS = (
    *("evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil.example:{port}"),
    *("10.0.0.7", "localhost@evil.example", "", "[::1", "localhost:1:2"),
)


def test_no_route_answers_under_another_name(studio):
    for host, path, method in itertools.product(OTHER_HOSTS, paths(), METHODS):
        headers = {**studio.own_headers, "Host": host.format(port=studio.port)}
        answer = studio.ask(path, method, {} if method == "POST" else None, headers)
        assert answer.status in (400, 403), f"{host!r} {method} {path}: {answer.status}"


OTHER_ORIGINS = (
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "http://evil.example"},
)


def test_prometheus_has_a_token_that_opens_nothing_else(studio, drumline_home):
    path = drumline_home / "studio" / "metrics.token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    own = {"Authorization": f"Bearer {path.read_text()}"}
    answer = studio.ask("/metrics", headers=own)
    assert (answer.status, answer.headers["Content-Type"]) == (
        200,
        "text/plain; version=0.0.4; charset=utf-8",
    )
    lines = answer.data.decode().splitlines()
    assert 'drumline_jobs{state="Completed"} 1' in lines
    assert {
        "drumline_restarts 0",
        'drumline_ranks{state="running"} 0',
        'drumline_queue_jobs{state="waiting"} 0',
    } <= {*lines}
    assert any(line.startswith('drumline_queue_free{state="cores"} ') for line in lines)
    for other in paths():
        if not other.startswith("/static/") and other not in ("/metrics", "/login"):
            assert studio.ask(other, headers=own).status in (401, 429), other
    for headers in (studio.own_headers, studio.cookie(), {}):
        assert studio.ask("/metrics", headers=headers).status in (401, 429)
    with run_studio() as again:
        assert again.ask("/metrics", headers=own).status == 200
    path.chmod(0o644)
    serve = [sys.executable, "-m", "drumline", "studio", "--no-browser", "--port", "0"]
    refused = subprocess.run(serve, capture_output=True, text=True, timeout=60)
    assert (refused.returncode, "others can read it" in refused.stderr) == (1, True)


def test_no_page_of_another_site_gets_an_answer_or_changes_anything(studio):
    cookie = {"Cookie": studio.cookie()["Cookie"]}
    credentials = (cookie, studio.own_headers)
    for origin, credential, path in itertools.product(OTHER_ORIGINS, credentials, paths()):
        for method in ("GET", "POST"):
            if not path.startswith("/api") and method == "GET":
                continue  # Pages are linked to, and show nothing by themselves.
            answer = studio.ask(path, method, {} if method == "POST" else None, {**credential, **origin})
            assert answer.status == 403, f"{origin} {method} {path}: {answer.status}"


def test_a_browser_that_is_logged_in_gets_answers(studio):
    """Else the refusals above would prove nothing."""
    headers = studio.cookie()
    assert studio.ask(f"{API}/jobs", headers=headers).json["total"] == 1
    assert studio.ask(f"{API}/jobs", headers={"Cookie": headers["Cookie"]}).status == 200
    assert (
        studio.ask("/jobs/job", headers={"Cookie": headers["Cookie"], "Sec-Fetch-Site": "cross-site"}).status
        == 200
    )


def test_a_change_by_cookie_names_its_origin_and_is_json(studio):
    headers = studio.cookie()
    nameless = {"Cookie": headers["Cookie"]}
    assert studio.ask(f"{API}/nothing", "POST", {}, nameless).status == 403
    own = {**nameless, "Origin": f"http://127.0.0.1:{studio.port}"}
    assert studio.ask(f"{API}/nothing", "POST", {}, own).status == 404
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = studio.ask(f"{API}/nothing", "POST", {}, {**headers, "Content-Type": kind})
        assert answer.status == 415, kind


def test_a_login_is_good_once_and_leads_nowhere_else(studio):
    path = studios.make_login(studio.token, "/jobs/job?attempt=0")
    assert studio.token not in path
    # Looking at it, as a preview does, is no login.
    assert studio.ask(path, "HEAD", headers={}).headers["Set-Cookie"] is None
    # Nor is what a page of another site loads, which would use it up.
    for kind in ("image", "iframe", "empty"):
        loaded = studio.ask(path, headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": kind})
        assert (loaded.status, loaded.headers["Set-Cookie"]) == (401, None), kind
    first = studio.ask(path, headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"})
    assert first.status == 200
    cookie = first.headers["Set-Cookie"]
    assert cookie.startswith(f"drumline-studio-{studio.port}=")
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert b'url=/jobs/job?attempt=0"' in first.data
    assert studio.ask(f"{API}/me", headers={"Cookie": cookie.partition(";")[0]}).status == 200
    again = studio.ask(path, headers={})
    assert (again.status, again.headers["Set-Cookie"]) == (401, None)
    for to in (
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        '/"><script>',
    ):
        answer = studio.ask(studios.make_login(studio.token, to), headers={})
        assert answer.status == 200
        assert b"evil" not in answer.data
        assert b"<script" not in answer.data


def test_a_login_that_is_old_or_of_another_studio_is_refused(studio, monkeypatch):
    foreign = studios.make_login("another token")
    later = time.time() + studios.ONCE_S
    monkeypatch.setattr(studios.time, "time", lambda: later - 2 * studios.ONCE_S - 1)
    old = studios.make_login(studio.token)
    for path in (foreign, old, "/login?once=", "/login?once=1.2.3", "/login?once=" + "9" * 5000):
        answer = studio.ask(path, headers={})
        assert (answer.status, answer.headers["Set-Cookie"]) == (401, None), path


def test_every_answer_forbids_what_a_page_of_ours_never_does(studio):
    for path, headers in (("/", {}), ("/", None), (f"{API}/jobs", None), (f"{API}/jobs", {}), ("/login", {})):
        answer = studio.ask(path, headers=headers)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert answer.headers["Cache-Control"] == "no-store"
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
        assert answer.headers["Server"] is None


def test_our_own_files_are_all_that_static_serves(studio):
    page = studio.ask("/login", headers={}).data.decode()
    script = page.partition('src="')[2].partition('"')[0]
    answer = studio.ask(script, headers={})
    assert answer.status == 200
    assert "immutable" in answer.headers["Cache-Control"]
    assert answer.headers["Content-Type"].startswith("text/javascript")
    root = script.rpartition("/js/")[0]
    wrong = (
        *("/../app.py", "/%2e%2e/app.py", "/..%2fapp.py", "/js/../../app.py", "/js//login.js", "/.hidden.js"),
        *("/js", "/js/%00.js", "//etc/passwd", "/js/..%5c..%5capp.js"),
    )
    for path in wrong:
        assert studio.ask(root + path, headers={}).status == 404, path


def test_the_token_is_for_its_owner_and_in_no_command_line(studio):
    assert stat.S_IMODE(studio.record.stat().st_mode) == 0o600
    assert stat.S_IMODE(studio.record.parent.stat().st_mode) == 0o700
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert studio.token.encode() not in path.read_bytes()
        except OSError:
            continue


@pytest.mark.root
def test_a_run_folder_of_another_user_is_not_shown(studio, drumline_home):
    assert studio.ask(f"{API}/jobs/job").status == 200
    os.chown(drumline_home / "jobs" / "job", 12345, -1)
    for path in paths():
        if "/jobs/job" in path and path.startswith(API):
            method = "GET"
            assert studio.ask(path, method).status in (404, 405), path


def test_secrets_of_a_job_are_on_no_page_and_in_no_list(tmp_path, cli):
    """Of the list, of a job, of its file, plan, variables, events and differences; in a terminal as in the studio."""
    secret = "canary-7f3a"
    address = f"db://me:{secret}@host/x"
    fields = one_rank(
        display_name=f"of {address}",
        description=f"{address},{address}",
        tags={"where": address},
        environment_variables={"DB": address, "DB_PASS": secret, "GITHUB_PAT": secret, "PIN_KEY": 7315521},
        inputs={"a": f"https://me:{secret}@host/x?sig={secret}"},
    )
    path = write_job(tmp_path, f"true {address},{address} ${{{{inputs.a}}}}", **fields)
    for name in ("job", "other"):
        assert cli("job", "create", "-f", path, "-n", name, "-o", "none").rc == 0
        wait_for_status(name, "Completed")
    shown = [cli("job", "update", "-n", "job", "--set", f"properties.where={address}", "-o", "json")]
    verbs = [
        ("plan", "-f", path),
        ("job", "show", "-n", "job"),
        ("job", "list", "--all"),
        ("job", "diff", "job", "other"),
    ]
    shown += [cli(*verb, "-o", form) for verb in verbs for form in ("json", "yaml", "table")]
    shown += [cli("job", "stream", "-n", "job"), cli("job", "rerun", "-n", "job", "--name", "again")]
    texts = [answer.out + answer.err for answer in shown]
    assert all(answer.rc == 0 for answer in shown[:-2]), texts
    with run_studio() as server:
        asked = [path for path in paths() if path.startswith(API) and not path.endswith("/stream")]
        answers = [server.ask(path).data.decode(errors="replace") for path in asked]
    assert [text for text in [*texts, *answers] if secret in text or "7315521" in text] == []
    assert sum("db://...@host/x" in text for text in [*texts, *answers]) > 10


def test_a_large_body_is_refused_before_it_is_read(studio):
    headers = {**studio.own_headers, "Content-Type": "application/json", "Content-Length": str(1 << 40)}
    assert studio.ask(f"{API}/nothing", "POST", None, headers).status == 413


def test_the_studio_of_another_address_warns_and_still_needs_the_token():
    with run_studio("--host", "0.0.0.0", "--name", "lab.example") as server:
        assert server.ask(f"{API}/me", headers={}).status == 401
        assert server.ask(f"{API}/me").status == 200
        assert server.ask(f"{API}/me", headers={**server.own_headers, "Host": "lab.example:9"}).status == 200
        assert server.ask(f"{API}/me", headers={**server.own_headers, "Host": "other.example"}).status == 403


def test_the_studio_of_all_addresses_is_reached_at_each_of_them_with_the_token():
    # All of 127.0.0.0/8 is this machine, but only 127.0.0.1 is a name of loopback.
    with run_studio("--host", "0.0.0.0") as server:
        assert ask_at("127.0.0.2", server, {}) == 401
        assert ask_at("127.0.0.2", server, server.own_headers) == 200
        assert ask_at("127.0.0.2", server, {**server.own_headers, "Host": "127.0.0.3"}) == 403
    with run_studio() as server, pytest.raises(ConnectionRefusedError):
        ask_at("127.0.0.2", server, server.own_headers)


def ask_at(address, server, headers):
    connection = http.client.HTTPConnection(address, server.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", f"{API}/me", headers=headers)
        return connection.getresponse().status


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--port", "70000"], "70000 is not a port"),
        (["--host", "no.such.host.invalid"], "there is no address"),
        (["--certfile", "nowhere.pem"], "nowhere.pem cannot be used"),
        (["--keyfile", "key.pem"], "--keyfile needs --certfile"),
    ],
)
def test_what_cannot_be_meant_is_said_in_a_sentence(tmp_path, arguments, says):
    argv = [sys.executable, "-m", "drumline", "studio", "--no-browser", *arguments]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.root
def test_the_home_of_another_user_is_not_served(tmp_path, drumline_home):
    drumline_home.mkdir()
    os.chown(drumline_home, 12345, -1)
    argv = [sys.executable, "-m", "drumline", "studio", "--no-browser", "--port", "0"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2


def test_a_record_that_another_user_could_have_written_is_not_believed(studio):
    assert studios.find_running().token == studio.token
    studio.record.chmod(0o644)
    assert studios.find_running() is None
    studio.record.chmod(0o600)
    known = json.loads(studio.record.read_text())
    studio.record.write_text(json.dumps({**known, "who": {**known["who"], "started": 1}}))
    assert studios.find_running() is None
    wait_for_status("job", "Completed")
