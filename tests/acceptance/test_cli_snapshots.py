"""The code that a job runs: what is taken of the folder, how it is stored, and that ranks cannot harm it."""

import os
import pty
import shlex
import stat
import subprocess
import sys

import pytest
from cli_jobs import one_rank, two_by_two, write_job

LIST = "find . -type f -o -type l | sort"


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "train.py").write_text("print('trained')")
    return folder


@pytest.fixture
def taken(cli, tmp_path, source, drumline_home):
    """Submit the folder; the files that the job's working folder had, and what was said on stderr."""

    def submit(name="job"):
        job = write_job(tmp_path, "true", code="src", **one_rank())
        result = cli("job", "create", "-f", job, "-n", name, "--stream")
        assert result.rc == 0, result.out + result.err
        code = drumline_home / "jobs" / name / "code"
        found = {str(path.relative_to(code)) for path in code.rglob("*") if path.is_file()}
        return found, result.err

    return submit


def snapshots(home):
    return sorted(os.listdir(home / "snapshots"))


def test_amlignore_wins_over_gitignore(source, taken):
    (source / ".amlignore").write_text("*.log\n")
    (source / ".gitignore").write_text("*.txt\n")
    (source / "a.log").write_text("")
    (source / "b.txt").write_text("")
    assert taken()[0] == {".amlignore", ".gitignore", "b.txt", "train.py"}


def test_gitignore_counts_where_there_is_no_amlignore(source, taken):
    (source / ".gitignore").write_text("# a comment\n*.txt\ndata/\n")
    (source / "b.txt").write_text("")
    (source / "data").mkdir()
    (source / "data" / "big").write_text("")
    assert taken()[0] == {".gitignore", "train.py"}


def test_a_negated_pattern_takes_a_file_again(source, taken):
    (source / ".amlignore").write_text("*.txt\n!keep.txt\ndata/\n!data/keep\n")
    (source / "data").mkdir()
    for name in ("a.txt", "keep.txt", "data/keep", "data/drop"):
        (source / name).write_text("")
    assert taken()[0] == {".amlignore", "keep.txt", "data/keep", "train.py"}


def test_ignore_files_in_folders_below_are_not_read(source, taken):
    (source / "sub").mkdir()
    (source / "sub" / ".gitignore").write_text("*\n")
    (source / "sub" / "x").write_text("")
    assert taken()[0] == {"sub/.gitignore", "sub/x", "train.py"}


def test_a_link_to_outside_is_left_out_and_said(source, taken, tmp_path):
    (tmp_path / "secret").write_text("")
    (source / "leak").symlink_to(tmp_path / "secret")
    (source / "up").symlink_to("..")
    found, said = taken()
    assert found == {"train.py"}
    assert "code: left out leak: a link to outside the folder" in said
    assert "code: left out up: a link to outside the folder" in said


def test_what_is_ignored_is_not_spoken_of(source, taken):
    (source / ".gitignore").write_text("venv\n")
    (source / "venv").mkdir()
    (source / "venv" / "python").symlink_to("/bin/sh")
    os.mkfifo(source / "venv" / "pipe")
    assert taken() == ({".gitignore", "train.py"}, "")


def test_a_link_inside_becomes_what_it_links_to(source, taken, drumline_home):
    (source / "link.py").symlink_to("train.py")
    (source / "sub").mkdir()
    (source / "sub" / "x").write_text("x")
    (source / "folder").symlink_to("sub")
    assert taken()[0] == {"folder/x", "link.py", "sub/x", "train.py"}
    assert not (drumline_home / "jobs" / "job" / "code" / "link.py").is_symlink()


def test_links_in_a_circle_end(source, taken):
    (source / "a").mkdir()
    (source / "a" / "back").symlink_to("..")
    (source / "self").symlink_to(".")
    (source / "loop").symlink_to("loop")
    found, said = taken()
    assert found == {"train.py"}
    assert "left out a/back: a link to a folder that it is in" in said
    assert "left out loop" in said


def test_pipes_and_sockets_are_left_out_and_hang_nothing(source, taken):
    os.mkfifo(source / "pipe")
    found, said = taken()
    assert found == {"train.py"}
    assert "left out pipe: neither a file nor a folder" in said


@pytest.mark.parametrize("name", ["a 0", "a'; echo foo", "a\n0", "$(touch x)", "ü", "-rf", "\udcff", "*"])
def test_any_name_of_a_file_is_kept(source, taken, name):
    (source / name).write_text("")
    (source / "folder").mkdir()
    (source / "folder" / name).write_text("")
    assert taken() == ({name, f"folder/{name}", "train.py"}, "")


@pytest.mark.parametrize("name", ["a 0", "a'; echo foo", "a\n0", "$(touch x)"])
def test_any_name_of_a_folder_is_run_from(cli, tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "x.py").write_text("print('ran')")
    job = write_job(tmp_path / name, "python x.py", code=".", **two_by_two())
    result = cli("job", "create", "-f", job, "--stream", cwd=tmp_path / name)
    assert result.rc == 0, result.err
    assert result.out.count("ran\n") == 4


def test_a_single_file_is_a_snapshot_too(cli, tmp_path, source):
    job = write_job(tmp_path, f"{LIST}; python train.py", code="src/train.py", **one_rank())
    result = cli("job", "create", "-f", job, "--stream")
    assert "./train.py\ntrained\n" in result.out.replace("./logs\n./outputs\n", "")


def test_the_same_content_is_stored_once_and_changed_content_anew(source, taken, drumline_home):
    taken("one")
    os.utime(source / "train.py", (0, 0))
    taken("two")
    assert len(snapshots(drumline_home)) == 1
    (source / "train.py").write_text("print('changed')")
    taken("three")
    (source / "train.py").chmod(0o755)
    taken("four")
    assert len(snapshots(drumline_home)) == 3
    assert (drumline_home / "jobs" / "one" / "code" / "train.py").read_text() == "print('trained')"


def test_executables_stay_executable(cli, tmp_path, source):
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o755)
    job = write_job(tmp_path, "./run.sh; test ! -x train.py && echo not", code="src", **one_rank())
    assert "\nran\nnot\n" in cli("job", "create", "-f", job, "--stream").out


def test_a_job_that_changes_its_code_changes_no_other_job(cli, tmp_path, source):
    job = write_job(tmp_path, "cat train.py; echo broken > train.py; touch new", code="src", **one_rank())
    for name in ("one", "two"):
        assert "print('trained')" in cli("job", "create", "-f", job, "-n", name, "--stream").out
    assert sorted(os.listdir(source)) == ["train.py"]


def test_code_that_changes_after_submission_does_not_matter(cli, tmp_path, source):
    job = write_job(tmp_path, "cat train.py", code="src", **one_rank())
    created = cli("job", "create", "-f", job, "-n", "job")
    assert created.rc == 0
    (source / "train.py").write_text("later")
    assert "trained" in cli("job", "stream", "job").out


def test_outputs_in_the_code_are_merged_into_those_of_the_job(cli, tmp_path, source, drumline_home):
    (source / "outputs").mkdir()
    (source / "outputs" / "start.txt").write_text("from the code")
    job = write_job(tmp_path, "cat outputs/start.txt; echo done > outputs/end.txt", code="src", **one_rank())
    done = cli("job", "create", "-f", job, "-n", "job", "--stream")
    assert "from the code" in done.out
    warning = (
        "warning: code: the files in outputs/ become artifacts of the job, as on Azure; a .amlignore file can"
    )
    assert warning in done.err
    outputs = drumline_home / "jobs" / "job" / "outputs"
    assert sorted(os.listdir(outputs)) == ["end.txt", "start.txt"]
    # The folder of the user is as it was; left out, it is not spoken of.
    assert os.listdir(source / "outputs") == ["start.txt"]
    (source / ".amlignore").write_text("outputs/\n")
    ignored = cli("job", "create", "-f", job, "-n", "other", "--set", "command=true", "--stream")
    assert (ignored.rc, "become artifacts" in ignored.err) == (0, False)
    assert os.listdir(drumline_home / "jobs" / "other" / "outputs") == []


def test_nothing_in_the_home_is_for_others(cli, tmp_path, source, drumline_home):
    (source / "run.sh").write_text("")
    (source / "run.sh").chmod(0o777)
    (tmp_path / "in.txt").write_text("x")
    (tmp_path / "in.txt").chmod(0o600)
    job = write_job(
        tmp_path,
        'cat "${{inputs.d}}"; umask 077; echo o > "${{outputs.o}}/o"; echo x > outputs/x',
        code="src",
        inputs={"d": {"type": "uri_file", "path": "in.txt", "mode": "download"}},
        outputs={"o": {}},
        **two_by_two(),
    )
    before = os.umask(0)
    try:
        assert cli("job", "create", "-f", job, "--stream").rc == 0
        assert cli("job", "list").rc == 0
    finally:
        os.umask(before)
    paths = [drumline_home, *drumline_home.rglob("*")]
    open_ones = [
        (str(path), oct(path.lstat().st_mode))
        for path in paths
        if not path.is_symlink() and path.lstat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    ]
    assert open_ones == []


def test_a_large_snapshot_is_worth_a_warning(source, taken):
    with (source / "big").open("wb") as file:
        file.truncate(101 * 1024 * 1024)
    assert "a .amlignore file says what to leave out" in taken()[1]


def test_the_words_of_the_command_see_the_folder(cli, tmp_path, source):
    (source / "a b.txt").write_text("content")
    job = write_job(tmp_path, "cat " + shlex.quote("a b.txt"), code="src", **one_rank())
    assert "content" in cli("job", "create", "-f", job, "--stream").out


def test_submitting_again_copies_only_what_changed(source, taken, drumline_home):
    for name in ("a", "b"):
        (source / name).write_text(name)
    taken("one")
    (first,) = snapshots(drumline_home)
    (source / "b").write_text("changed")
    found, _ = taken("two")
    assert found == {"a", "b", "train.py"}
    (second,) = set(snapshots(drumline_home)) - {first}
    numbers = [
        [(drumline_home / "snapshots" / digest / name).stat().st_ino for name in ("a", "b", "train.py")]
        for digest in (first, second)
    ]
    assert [one == other for one, other in zip(*numbers, strict=True)] == [True, False, True]
    assert (drumline_home / "jobs" / "one" / "code" / "b").read_text() == "b"
    assert (drumline_home / "jobs" / "two" / "code" / "b").read_text() == "changed"


def test_a_pattern_that_is_none_is_refused_where_it_is(cli, tmp_path, source):
    (source / ".amlignore").write_text("*.log\n!\n")
    result = cli("job", "create", "-f", write_job(tmp_path, "true", code="src", **one_rank()))
    assert result.rc == 2
    assert "src/.amlignore:2: not a pattern of an ignore file" in result.err


def test_on_a_terminal_code_that_takes_long_is_spoken_of(tmp_path, source):
    job = write_job(tmp_path, "true", code="src", **one_rank())
    script = (
        "import sys; from drumline.cli.main import main; from drumline.staging.snapshot import take\n"
        "take.SLOW_S = -1.0\n"
        f"sys.argv = ['drumline', 'job', 'create', '-f', {str(job)!r}, '-n', 'job', '--stream']\n"
        "sys.exit(main())\n"
    )
    ours, theirs = pty.openpty()
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=theirs, timeout=60)
    os.close(theirs)
    with open(ours, "rb", buffering=0) as terminal:
        said = terminal.read(10_000)
    assert done.returncode == 0, said
    assert said.count(b"copying the code: 1 files so far; list what to leave out in .amlignore") == 1
