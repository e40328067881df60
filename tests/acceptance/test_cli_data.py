"""Inputs and outputs of jobs: where they are read and written, and how one job's output is another's input."""

import pytest
from cli_jobs import one_rank, write_job


@pytest.fixture
def create(cli, tmp_path):
    """Submit, wait, and give back the result; fails when the job does."""

    def run(command, name="job", **fields):
        job = write_job(tmp_path, command, **one_rank(**fields))
        result = cli("job", "create", "-f", job, "-n", name, "--stream")
        assert result.rc == 0, result.out + result.err
        return result.out

    return run


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("the data")
    return tmp_path / "data"


@pytest.mark.parametrize("mode", [{}, {"mode": "ro_mount"}, {"mode": "direct"}])
def test_a_local_input_is_read_in_place(create, data, mode):
    out = create('echo "<${{inputs.d}}>"', inputs={"d": {"type": "uri_folder", "path": "data", **mode}})
    assert f"\n<{data}>\n" in out


@pytest.mark.parametrize("kind", ["uri_folder", "uri_file"])
def test_an_input_in_mode_download_is_a_copy_that_may_be_changed(create, data, drumline_home, kind):
    path, file = ("data", "/a.txt") if kind == "uri_folder" else ("data/a.txt", "")
    command = f'cat "${{{{inputs.d}}}}{file}"; echo changed > "${{{{inputs.d}}}}{file}"'
    out = create(command, inputs={"d": {"type": kind, "path": path, "mode": "download"}})
    assert "the data" in out
    assert (data / "a.txt").read_text() == "the data"
    assert [p.name for p in (drumline_home / "jobs" / "job" / "inputs" / "d").rglob("*.txt")] == ["a.txt"]


def test_literals_go_into_the_command_as_they_are(create):
    inputs = {"i": 3, "f": 0.1, "s": "text", "b": True}
    assert "\n3 0.1 text True\n" in create(
        "echo ${{inputs.i}} ${{inputs.f}} ${{inputs.s}} ${{inputs.b}}", inputs=inputs
    )


def test_an_address_in_mode_direct_is_passed_on(create):
    out = create("echo ${{inputs.d}}", inputs={"d": {"path": "https://host/x", "mode": "direct"}})
    assert "\nhttps://host/x\n" in out


def test_a_folder_output_is_there_before_the_ranks_start(create, drumline_home):
    create('echo m > "${{outputs.model}}/m"', outputs={"model": {"type": "uri_folder"}})
    assert (drumline_home / "jobs" / "job" / "named-outputs" / "model" / "m").read_text() == "m\n"


def test_a_file_output_is_a_file(create, drumline_home):
    create('echo m > "${{outputs.model}}"', outputs={"model": {"type": "uri_file"}})
    assert (drumline_home / "jobs" / "job" / "named-outputs" / "model").read_text() == "m\n"


def test_an_output_with_a_local_path_goes_there(create, tmp_path):
    create('echo m > "${{outputs.model}}/m"', outputs={"model": {"path": "mine/model"}})
    assert (tmp_path / "mine" / "model" / "m").read_text() == "m\n"


def test_what_is_written_to_outputs_and_logs_stays_in_the_run_folder(create, drumline_home):
    create("echo o > outputs/o; echo l > logs/l")
    folder = drumline_home / "jobs" / "job"
    assert ((folder / "outputs" / "o").read_text(), (folder / "logs" / "l").read_text()) == ("o\n", "l\n")
