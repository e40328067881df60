"""Every verb of ``drumline job``, as scripts of ``az ml job`` use them."""

import contextlib
import json
import os
import signal
import stat

import pytest
from cli_jobs import WAIT_FOR_SIGNAL, background, job_names, one_rank, two_by_two, wait_for_status, write_job

from drumline.contract.folder import RunFolder


@pytest.fixture
def ended(cli, tmp_path):
    """A job that has completed: its name."""
    job = write_job(tmp_path, "echo hello; echo result > outputs/result.txt", **one_rank())
    done = cli("job", "create", "-f", job, "-n", "ended", "--stream")
    assert done.rc == 0, done.err
    return "ended"


def test_create_prints_the_job_and_returns_before_it_has_ended(cli, tmp_path):
    job = write_job(tmp_path, f'python -c "{WAIT_FOR_SIGNAL}"', **one_rank())
    created = cli("job", "create", "--file", job, "--name", "waiting")
    assert created.rc == 0, created.err
    assert json.loads(created.out)["name"] == "waiting"
    assert json.loads(created.out)["status"] not in ("Completed", "Failed", "Canceled")
    wait_for_status("waiting", "Running")
    assert cli("job", "cancel", "waiting", "--at-once").rc == 0


def test_the_run_id_idiom_prints_exactly_one_line(cli, tmp_path):
    job = write_job(tmp_path, "true", **two_by_two(environment="azureml:some:1", compute="azureml:cluster"))
    created = cli("job", "create", "-f", job, "--query", "name", "-o", "tsv")
    assert created.out == f"{job_names(tmp_path / 'drumline home')[0]}\n"
    assert "warning: environment" in created.err
    wait_for_status(created.out.strip(), "Completed")


def test_create_with_stream_shows_logs_and_summary(cli, tmp_path):
    job = write_job(tmp_path, "echo hello from $RANK", **two_by_two())
    streamed = cli("job", "create", "-f", job, "-n", "shown", "--stream")
    assert streamed.rc == 0
    assert streamed.out.startswith("RunId: shown\nWeb View: file://")
    assert {f"[{rank}|node-{rank // 2}] hello from {rank}" for rank in range(4)} <= set(
        streamed.out.splitlines()
    )
    assert "Execution Summary" in streamed.out
    assert "job shown completed" in streamed.out


def test_create_with_stream_and_query_keeps_the_logs_off_stdout(cli, tmp_path):
    job = write_job(tmp_path, "echo hello", **one_rank())
    streamed = cli("job", "create", "-f", job, "--stream", "--query", "status", "-o", "tsv")
    assert streamed.out == "Completed\n"
    assert "hello" in streamed.err


def test_save_as_writes_a_job_file_that_can_be_submitted_again(cli, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "x.py").write_text("print('saved')")
    job = write_job(tmp_path, "python x.py", code="src", **one_rank())
    (tmp_path / "elsewhere").mkdir()
    saved = tmp_path / "elsewhere" / "saved.yml"
    assert cli("job", "create", "-f", job, "-n", "first", "--save-as", saved, "--stream").rc == 0
    again = cli("job", "create", "-f", saved, "-n", "second", "--stream", cwd=tmp_path / "elsewhere")
    assert again.rc == 0, again.err
    assert "saved" in again.out


def test_a_name_is_an_option_or_a_word_and_the_options_of_azure_have_no_effect(cli, ended):
    shown = cli("job", "show", "-n", "ended").out
    assert json.loads(shown)["name"] == "ended"
    for words in ("--name ended", "ended", "ended -n ended"):
        assert cli("job", "show", *words.split()).out == shown, words
    for words in ("-g group", "--resource-group group", "--subscription 1 --only-show-errors"):
        assert cli("job", "show", "-n", "ended", *words.split()).out == shown, words
    assert cli("job", "show", "ended", "-n", "other").rc == 2


def test_a_verb_needs_the_name_of_a_job_that_is_there(cli, ended):
    for verb in ("show", "stream", "cancel", "download", "archive", "restore", "update", "show-services"):
        nameless = cli("job", verb)
        assert (nameless.rc, "a job's name is missing" in nameless.err) == (2, True), verb
        unknown = cli("job", verb, "-n", "endet")
        assert (unknown.rc, unknown.out) == (3, ""), verb
        assert "there is no job 'endet'" in unknown.err, verb
        assert "did you mean 'ended'?" in unknown.err, verb


def test_show_has_what_az_shows_and_each_rank(cli, tmp_path):
    job = write_job(tmp_path, "exit $RANK", display_name="my job", tags={"a": "b"}, **one_rank())
    cli("job", "create", "-f", job, "-n", "shown", "--stream")
    shown = json.loads(cli("job", "show", "-n", "shown").out)
    assert shown["display_name"] == "my job"
    assert shown["tags"] == {"a": "b"}
    assert shown["status"] == "Completed"
    assert shown["services"]["Studio"]["endpoint"].startswith("file:///")
    assert [(r["rank"], r["node"], r["state"], r["exit_code"]) for r in shown["ranks"]] == [(0, 0, "done", 0)]


def test_stream_of_an_ended_job_shows_it_all_again(cli, ended):
    streamed = cli("job", "stream", "-n", ended)
    assert streamed.rc == 0
    assert "\nhello\n" in streamed.out
    assert "completed" in streamed.out


def test_stream_shows_chosen_ranks_with_prefixes(cli, tmp_path):
    job = write_job(tmp_path, "echo I am $RANK", **two_by_two())
    cli("job", "create", "-f", job, "-n", "four", "--stream")
    lines = cli("job", "stream", "four", "--ranks", "1-2").out.splitlines()
    assert [line for line in lines if "I am" in line] == ["[1|node-0] I am 1", "[2|node-1] I am 2"]


def test_list_is_newest_first_and_hides_the_archived(cli, tmp_path):
    assert cli("job", "list").out == "[]\n"
    job = write_job(tmp_path, "true", **one_rank())
    for name in ("one", "two", "three"):
        assert cli("job", "create", "-f", job, "-n", name, "--stream").rc == 0

    def listed(*options: str) -> list[str]:
        return cli("job", "list", "--query", "[].name", "-o", "tsv", *options).out.split()

    assert listed() == ["three", "two", "one"]
    assert listed("--max-results", "1") == ["three"]
    assert cli("job", "archive", "-n", "two").rc == 0
    assert listed() == ["three", "one"]
    assert listed("--archived-only") == ["two"]
    assert listed("--include-archived") == ["three", "two", "one"]
    assert cli("job", "archive", "two").err.endswith("job two is archived already\n")
    restored = cli("job", "restore", "-n", "two")
    assert (restored.rc, restored.err) == (0, "")
    again = cli("job", "restore", "two")
    assert (again.rc, again.err) == (0, "job two is not archived\n")
    assert listed() == ["three", "two", "one"]


def test_the_index_is_made_again_when_it_is_lost(cli, ended, drumline_home):
    cli("job", "archive", "-n", ended)
    for path in drumline_home.glob("index.sqlite*"):
        path.unlink()
    assert cli("job", "list", "--query", "[].name", "-o", "tsv").out == ""
    assert cli("job", "list", "--archived-only", "--query", "[].name", "-o", "tsv").out == "ended\n"


def test_a_damaged_index_is_made_again_and_stops_no_job(cli, tmp_path, drumline_home):
    drumline_home.mkdir(mode=0o700)
    (drumline_home / "index.sqlite").write_bytes(b"not a database" * 100)
    job = write_job(tmp_path, "true", **one_rank())
    assert cli("job", "create", "-f", job, "-n", "one", "--stream").rc == 0
    listed = cli("job", "list", "--query", "[].name", "-o", "tsv")
    assert (listed.rc, listed.out) == (0, "one\n"), listed.err


def test_cancel_ends_a_running_job_with_130(cli, tmp_path):
    job = write_job(tmp_path, f'exec python -c "{WAIT_FOR_SIGNAL}"', **two_by_two())
    cli("job", "create", "-f", job, "-n", "long")
    wait_for_status("long", "Running")
    canceled = cli("job", "cancel", "-n", "long")
    assert canceled.rc == 0
    assert "job long is Canceled" in canceled.err
    assert json.loads(cli("job", "show", "long").out)["exit_code"] == 130


def test_a_stopped_supervisor_is_named_by_cancel_and_show(cli, tmp_path):
    """Nothing can end the job meanwhile: cancel waited without a word."""
    cli("job", "create", "-f", write_job(tmp_path, "sleep 600", **one_rank()), "-n", "held")
    wait_for_status("held", "Running")
    folder = RunFolder.for_job("held")
    pid = folder.read_json(folder.supervisor)["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert f"kill -CONT {pid} lets it go on" in json.loads(cli("job", "show", "held").out)["reason"]
        with background("job", "cancel", "-n", "held", cwd=tmp_path) as command:
            command.wait_for_error(f"job held cannot end: process {pid}, which looks after it, was stopped")
            os.kill(pid, signal.SIGCONT)
            assert command.end() == 0
            assert "job held is Canceled" in command.err
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_download_brings_outputs_and_logs(cli, ended, tmp_path):
    target = tmp_path / "here"
    assert cli("job", "download", "-n", ended, "--download-path", target).rc == 0
    named = cli("job", "download", "-n", ended, "--output-name", "artifacts", "-p", tmp_path / "named")
    assert named.rc == 0, named.err
    kept = [sorted(path.name for path in folder.rglob("*")) for folder in (target, tmp_path / "named")]
    assert kept[0] == kept[1]
    assert (target / "artifacts" / "outputs" / "result.txt").read_text() == "result\n"
    assert (target / "artifacts" / "user_logs" / "std_log.txt").read_text() == "hello\n"


def test_download_of_all_brings_named_outputs(cli, tmp_path):
    command = 'echo m > "${{outputs.model}}/m.txt"; echo n > "${{outputs.notes}}/n.txt"'
    job = write_job(tmp_path, command, outputs={"model": {"type": "uri_folder"}, "notes": {}}, **one_rank())
    assert cli("job", "create", "-f", job, "-n", "two", "--stream").rc == 0
    one = cli("job", "download", "two", "--output-name", "model", "-p", tmp_path / "one")
    assert one.rc == 0, one.err
    assert sorted(p.name for p in (tmp_path / "one").rglob("*.txt")) == ["m.txt"]
    assert cli("job", "download", "two", "--all", "-p", tmp_path / "all").rc == 0
    assert (tmp_path / "all" / "named-outputs" / "notes" / "n.txt").read_text() == "n\n"
    assert (tmp_path / "all" / "artifacts" / "user_logs").is_dir()


def test_a_download_that_lacks_an_output_fails_and_has_the_rest(cli, tmp_path):
    outputs = {"there": {"type": "uri_file"}, "lost": {"type": "uri_file"}}
    job = write_job(tmp_path, "echo m > ${{outputs.there}}", outputs=outputs, **one_rank())
    assert cli("job", "create", "-f", job, "-n", "half", "--stream").rc == 0
    result = cli("job", "download", "half", "--all", "-p", tmp_path / "all")
    assert result.rc == 1
    assert "not all was downloaded: job half did not write its output 'lost'" in result.err
    assert "downloaded to" not in result.err
    assert (tmp_path / "all" / "named-outputs" / "there").is_file()


@pytest.mark.parametrize(("verb", "ours"), [("stop", "cancel"), ("ps", "list")])
def test_a_verb_of_another_tool_is_told_ours(cli, verb, ours):
    result = cli("job", verb, "x")
    assert result.rc == 2
    assert f"did you mean 'drumline job {ours}'?" in result.err


def test_plan_names_the_experiment_that_the_job_will_have(cli, tmp_path):
    job = write_job(tmp_path, "true", **one_rank())
    planned = cli("plan", "-f", job, "--query", "user_env.MLFLOW_EXPERIMENT_NAME", "-o", "tsv").out.strip()
    named = cli("job", "create", "-f", job, "--query", "experiment_name", "-o", "tsv").out.strip()
    assert planned == named == tmp_path.name


def test_download_twice_writes_over_files_and_links_and_leaves_pipes_out(cli, tmp_path):
    command = "echo a > outputs/a; ln -s a outputs/link; mkfifo outputs/pipe"
    job = write_job(tmp_path, command, **one_rank())
    assert cli("job", "create", "-f", job, "-n", "links", "--stream").rc == 0
    for _ in range(2):
        result = cli("job", "download", "links", "-p", tmp_path / "here")
        assert result.rc == 0, result.err
    outputs = tmp_path / "here" / "artifacts" / "outputs"
    assert sorted(p.name for p in outputs.iterdir()) == ["a", "link"]
    assert (outputs / "link").readlink().name == "a"


def test_download_twice_writes_over_what_is_read_only(cli, tmp_path):
    make = "mkdir outputs/kept; cd outputs/kept; echo a > a; ln -s a b"
    command = f"{make}; chmod 444 a; chmod 555 ."
    job = write_job(tmp_path, command, **one_rank())
    assert cli("job", "create", "-f", job, "-n", "kept", "--stream").rc == 0
    kept = tmp_path / "here" / "artifacts" / "outputs" / "kept"
    for _ in range(2):
        result = cli("job", "download", "kept", "-p", tmp_path / "here")
        assert result.rc == 0, result.err
        assert stat.S_IMODE(kept.stat().st_mode) == 0o555
        assert stat.S_IMODE((kept / "a").stat().st_mode) == 0o444


@pytest.mark.parametrize("output", ["nothing", "model"])
def test_download_of_an_output_that_is_not_there_returns_3(cli, tmp_path, output):
    job = write_job(tmp_path, "true", outputs={"model": {"type": "uri_file"}}, **one_rank())
    cli("job", "create", "-f", job, "-n", "empty", "--stream")
    result = cli("job", "download", "empty", "--output-name", output)
    assert result.rc == 3
    assert repr(output) in result.err


def test_download_to_a_path_that_is_a_file_says_so(cli, ended, tmp_path):
    (tmp_path / "file").write_text("")
    result = cli("job", "download", ended, "-p", tmp_path / "file")
    assert result.rc == 1
    assert str(tmp_path / "file") in result.err


def test_download_of_a_running_job_is_refused(cli, tmp_path):
    job = write_job(tmp_path, f'exec python -c "{WAIT_FOR_SIGNAL}"', **one_rank())
    cli("job", "create", "-f", job, "-n", "long")
    wait_for_status("long", "Running")
    result = cli("job", "download", "-n", "long")
    assert result.rc == 2
    assert "job long is still running; its outputs can be downloaded once it has ended" in result.err
    cli("job", "cancel", "long", "--at-once")


def test_update_changes_what_can_change(cli, ended):
    changes = [
        "--set",
        "tags.a=1",
        "tags.b=2",
        "display_name=new name",
        "experiment_name=e",
        "--set",
        'properties={"p": "q"}',
    ]
    updated = json.loads(cli("job", "update", "-n", ended, *changes).out)
    assert updated["tags"] == {"a": "1", "b": "2"}
    assert (updated["display_name"], updated["experiment_name"]) == ("new name", "e")
    assert updated["properties"] == {"p": "q"}
    removed = json.loads(cli("job", "update", "-n", ended, "--remove", "tags.a").out)
    assert removed["tags"] == {"b": "2"}


def test_update_of_anything_else_is_refused_and_changes_nothing(cli, ended):
    before = cli("job", "show", ended).out
    for change in ("command=false", "status=Failed", "tags=abc", "tags", "display_name.x=1"):
        assert cli("job", "update", "-n", ended, "--set", change).rc == 2, change
    assert cli("job", "show", ended).out == before


def test_a_verb_that_prints_no_result_takes_a_format_and_a_query(cli, ended):
    for words in (["archive"], ["restore"], ["cancel"], ["download", "-p", "d"]):
        done = cli("job", *words, "-n", ended, "--out", "json", "--query", "status")
        assert (done.rc, done.out) == (0, "")
        assert words != ["cancel"] or "job ended is Completed" in done.err
    assert cli("job", "show-services", "-n", ended).out == "{}\n"


def test_validate_says_succeeded_and_creates_nothing(cli, tmp_path, drumline_home):
    job = write_job(tmp_path, "true", **one_rank())
    result = cli("job", "validate", "-f", job)
    assert result.rc == 0
    assert json.loads(result.out)["result"] == "Succeeded"
    assert job_names(drumline_home) == []
