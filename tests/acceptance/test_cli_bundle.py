"""``drumline job bundle``: what a bug report needs, and nothing that is secret."""

import json
import stat
import zipfile

from cli_jobs import one_rank, write_job

TOKEN = 'a "quoted" token 4711'
SHELL = "the shell's own 0815"
ADDRESS = "https://me:hunter2@host/a"


def test_a_bundle_lists_its_content_first_and_hides_secrets(cli, tmp_path, drumline_home, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", SHELL)
    outside = tmp_path / "outside.txt"
    outside.write_text("not the job's")
    command = (
        f'echo "last words: $OTHER_TOKEN {ADDRESS} {SHELL}"; '
        f'ln -s {outside} "$(dirname "$AZUREML_CR_EXECUTION_WORKING_DIR_PATH")/user_logs/link.txt"; exit 3'
    )
    job = write_job(tmp_path, command, environment_variables={"OTHER_TOKEN": TOKEN}, **one_rank())
    assert cli("job", "create", "-f", job, "-n", "bad", "--stream").rc != 0
    assert (drumline_home / "jobs" / "bad" / "user_logs" / "link.txt").is_symlink()
    path = tmp_path / "bug.zip"
    done = cli("job", "bundle", "bad", "--output", path)
    assert done.rc == 0, done.err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with zipfile.ZipFile(path) as bundle:
        texts = {member: bundle.read(member).decode() for member in bundle.namelist()}
    assert next(iter(texts)) == "bad/CONTENTS.txt"
    assert texts["bad/CONTENTS.txt"] == done.out
    assert set(texts) == {f"bad/{line.partition(':')[0]}" for line in done.out.splitlines()} | {
        "bad/CONTENTS.txt"
    }
    assert json.loads(texts["bad/outcome.json"])["exit_code"] == 3
    assert json.loads(texts["bad/events.jsonl"].splitlines()[-1])["type"] == "JobEnded"
    assert {one["id"] for one in json.loads(texts["bad/doctor.json"])} >= {"python"}
    json.loads(texts["bad/plan.json"])
    logs = [text for member, text in texts.items() if "user_logs" in member]
    assert logs == ["last words: (hidden) https://...@host/a (hidden)\n"]
    whole = "".join(texts.values())
    for secret in (TOKEN, json.dumps(TOKEN)[1:-1], SHELL, "hunter2", "not the job's"):
        assert secret not in whole


def test_a_bundle_is_no_format_and_of_a_job_that_is_there(cli, tmp_path):
    refused = cli("job", "bundle", "nothing", "-o", "json")
    assert (refused.rc, "--output: 'json' is a format" in refused.err) == (2, True)
    assert cli("job", "bundle", "nothing", "-o", tmp_path / "x.zip").rc == 3
    assert not (tmp_path / "x.zip").exists()


def test_a_bundle_hides_declared_secrets_also_where_the_end_of_a_log_begins(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("WORDS", "one-two-six")
    monkeypatch.setenv("MY_PIN_KEY", "4711")
    monkeypatch.setenv("USES_AUTH", "true")
    command = "python -c 'import os; print(os.environ[\"WORDS\"] * 10000)'; echo pin 4711"
    job = write_job(tmp_path, command, drumline={"secrets": ["WORDS"]}, **one_rank())
    assert cli("job", "create", "-f", job, "-n", "quiet").rc == 0
    assert cli("job", "wait", "quiet").rc == 0
    path = tmp_path / "bug.zip"
    assert cli("job", "bundle", "quiet", "--output", path).rc == 0
    with zipfile.ZipFile(path) as bundle:
        texts = {member: bundle.read(member).decode() for member in bundle.namelist()}
    (log,) = [text for member, text in texts.items() if "user_logs" in member]
    assert log.endswith("(hidden)(hidden)\npin (hidden)\n")
    assert set(log.replace("pin", "")) <= set("(hidden)\n ")
    for name in ("outcome", "plan", "doctor"):
        json.loads(texts[f"quiet/{name}.json"])


def test_a_bundle_overwrites_no_file(cli, tmp_path):
    job = write_job(tmp_path, "true", **one_rank())
    assert cli("job", "create", "-f", job, "-n", "short", "--stream").rc == 0
    path = tmp_path / "mine.zip"
    path.write_text("mine")
    done = cli("job", "bundle", "short", "--output", path)
    assert (done.rc, "exists, and is not overwritten" in done.err) == (2, True)
    assert path.read_text() == "mine"
