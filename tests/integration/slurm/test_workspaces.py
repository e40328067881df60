"""Workspaces of jobs whose run folders are below a compute's folder."""

import json
import sys

from cli_jobs import one_rank, write_job
from waiting import wait_until

from drumline.contract.folder import home_of, workspace
from drumline.control.assets import asset_verbs
from drumline.control.facts import description

FINAL = ("Completed", "Failed", "Canceled")


def test_two_workspaces_may_have_a_job_of_one_name(slurm, tmp_path, cli):
    shared = tmp_path / "shared"
    shared.mkdir()
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    slurm.attach("--partition", "main", "--folder", str(shared))
    assert cli("environment", "create", "--name", "curated", "--python", python).rc == 0
    command = 'echo "<$DRUMLINE_WORKSPACE>"; command -v python; date > "${{outputs.set}}/x"'
    fields = {"environment": "azureml:curated@latest", "outputs": {"set": {"name": "digits"}}}
    job = write_job(tmp_path, command, compute="azureml:cluster", **fields, **one_rank())
    for name in ("vision", "speech"):
        done = cli("job", "create", "-f", job, "-n", "job", "-w", name)
        assert (done.rc, done.err) == (0, "")
    for name in ("vision", "speech"):
        with workspace(name):
            wait_until(lambda: description.show_job("job")["status"] in FINAL, 30.0, f"the job of {name}")
            shown = description.show_job("job")
            place = shared / "workspaces" / name / "jobs" / "job"
            assert (shown["status"], shown["run_folder"]) == ("Completed", str(place))
            assert (place / "user_logs" / "std_log.txt").read_text() == f"<{name}>\n{python}\n"
            assert shown["registered"] == {"set": "azureml:digits:1"}
            assert asset_verbs.get("data", "digits").path == str(place / "named-outputs" / "set")
    assert cli("workspace", "delete", "-n", "vision", "--yes").rc == 0
    assert [one.name for one in (shared / "workspaces").iterdir()] == ["speech"]
    assert json.loads(cli("workspace", "list", "--query", "[].[name, home]").out) == [
        ["speech", home_of("speech")]
    ]
