"""A real studio beside a job that has changed its own run folder: nothing leaks, nothing hangs."""

import json
import os
import socket

from made_jobs import MadeJob
from studio_server import API, run_studio


def test_a_pipe_and_an_address_in_a_run_folder_hold_nobody_up(drumline_home, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "canary")
    for name in ("honest", "piped", "tracked"):
        MadeJob(name).start()
    piped = drumline_home / "jobs" / "piped"
    for name in ("events.jsonl", "plan.json", "job.yml"):
        (piped / name).unlink(missing_ok=True)
        os.mkfifo(piped / name)
    with socket.create_server(("127.0.0.1", 0)) as listener, run_studio() as studio:
        listener.setblocking(False)
        plan = drumline_home / "jobs" / "tracked" / "plan.json"
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
        hostile = json.loads(plan.read_text())
        hostile["user_env"] |= {"MLFLOW_TRACKING_URI": uri, "MLFLOW_RUN_ID": "abc"}
        plan.write_text(json.dumps(hostile))
        for path in ("", "/metrics", "/events", "/spec", "/plan", "/ranks", "/logs"):
            for name in ("piped", "tracked"):
                assert studio.ask(f"{API}/jobs/{name}{path}").status in (200, 404, 409, 503), (name, path)
        assert studio.ask(f"{API}/series?jobs=tracked").status == 200
        assert studio.ask(f"{API}/diff?a=tracked&b=honest").status == 200
        (note,) = studio.get("/jobs/tracked/metrics")["notes"]
        assert note == f"metrics are at {uri}, which is not asked from here; see there"
        assert "honest" in [one["name"] for one in studio.get("/jobs")["jobs"]]
        try:
            listener.accept()
            raise AssertionError("the studio has called the address")
        except BlockingIOError:
            pass


def test_files_outside_of_a_run_folder_are_not_shown(drumline_home, tmp_path):
    others = tmp_path / "others"
    others.mkdir()
    job, linked = MadeJob(), MadeJob("linked")
    for made in (job, linked):
        made.start()
    log = job.log(0, "fine\n")
    (others / log.name).write_text("canary")
    (others / "secret.txt").write_text("canary")
    for name in ("outputs", "user_logs"):
        (drumline_home / "jobs" / "linked" / name).rmdir()
        (drumline_home / "jobs" / "linked" / name).symlink_to(others)
    (drumline_home / "jobs" / "linked" / "job.yml").symlink_to(others / "secret.txt")
    with run_studio() as studio:
        assert studio.ask(f"{API}/jobs/{job.name}/logs/raw?rank=0").data == b"fine\n"
        for path in (
            *("/spec", "/logs", "/logs/raw?rank=0", "/ranks", "/files?area=logs", "/files?path=secret.txt"),
            *("/files/content?area=outputs&path=secret.txt", "/files/content?area=logs&path=secret.txt"),
        ):
            assert b"canary" not in studio.ask(f"{API}/jobs/linked{path}").data, path
