"""What a training script of v1 logs, in a job and outside of one."""

import io
import os
import subprocess
import sys
import threading
import types
from typing import Any

import pytest

from drumline.contract.errors import UsageError
from drumline.contract.folder import MARKER
from drumline.tracking import metrics, mlflow_files
from drumline.v1 import Run


@pytest.fixture
def rank(tmp_path, monkeypatch):
    """This process as a rank; its run folder."""
    folder = tmp_path / "home" / "jobs" / "job.1"
    folder.mkdir(parents=True)
    for name, value in {
        MARKER: str(folder),
        "AZUREML_RUN_ID": "job.1",
        "AZUREML_ARM_PROJECT_NAME": "digits",
        "MLFLOW_EXPERIMENT_NAME": "digits",
        "MLFLOW_RUN_ID": "job-1",
        "MLFLOW_TRACKING_URI": mlflow_files.uri_of(str(tmp_path / "home")),
        "AZURE_ML_INPUT_images": "/data/images",
    }.items():
        monkeypatch.setenv(name, value)
    return folder


def test_a_metric_is_a_number_once_and_a_list_when_logged_more_often(rank):
    run = Run.get_context()
    for loss in (0.5, 0.25):
        Run.get_context().log("loss", loss)
    run.log("accuracy", True, step=7)
    run.log_list("rates", [1, 2])
    run.log("more", (3, 4))
    run.log_row("best", epoch=1, score=0.5)
    run.log_table("table", {"x": [1, 2], "name": 3})
    expected = {
        "loss": [0.5, 0.25],
        "accuracy": 1.0,
        "rates": [1.0, 2.0],
        "more": [3.0, 4.0],
        "best/epoch": 1.0,
        "best/score": 0.5,
        "table/x": [1.0, 2.0],
        "table/name": 3.0,
    }
    assert run.get_metrics() == expected
    assert run.get_metrics("loss") == {"loss": [0.5, 0.25]}
    folder = metrics.run_dir_here(os.environ)
    assert [point.step for point in metrics.read_history(folder, "loss")] == [0, 1]
    assert metrics.read_history(folder, "accuracy")[0].step == 7


def test_what_a_child_logs_is_the_jobs_below_its_name(rank):
    run: Any = Run.get_context()
    with run.child_run(name="fold 1") as child:
        child.log("loss", 0.5)
        child.child_run("inner").log("loss", 0.25)
        child.tag("kind", "test")
        child.upload_file("notes.py", __file__)
    assert run.get_metrics() == {"fold 1/loss": 0.5, "fold 1/inner/loss": 0.25}
    assert run._tags_of_ranks() == {"fold 1.kind": "test"}
    assert run.get_file_names() == ["outputs/fold 1/notes.py"]


def test_a_scalar_of_another_library_is_a_number(rank):
    class Tensor:
        def __float__(self):
            return 2.5

    run = Run.get_context()
    run.log("loss", Tensor())
    assert run.get_metrics() == {"loss": 2.5}


def test_who_it_is(rank):
    run: Any = Run.get_context()
    assert (run.id, run.experiment.name, run.input_datasets) == (
        "job.1",
        "digits",
        {"images": "/data/images"},
    )


def test_text_and_tags_are_kept_with_the_run(rank):
    run = Run.get_context()
    run.log("model", "resnet")
    run.tag("../best", "yes")
    assert run._tags_of_ranks() == {"model": "resnet", ".._best": "yes"}


def test_files_are_in_the_outputs(rank, tmp_path):
    (tmp_path / "model.pt").write_text("weights")
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "a.png").write_text("picture")
    run = Run.get_context()
    run.upload_file("model.pt", tmp_path / "model.pt")
    run.upload_file("outputs/same.pt", path_or_stream=tmp_path / "model.pt")
    run.upload_file("outputs/same.pt", rank / "outputs" / "same.pt")
    run.upload_file("logs/stream", io.BytesIO(b"x"))
    run.upload_folder("plots", tmp_path / "plots")
    run.log_image("loss", path=tmp_path / "plots" / "a.png")
    run.log_confusion_matrix("matrix", {"data": [1]})
    names = ["logs/stream", "outputs/loss.png", "outputs/matrix.json", "outputs/model.pt"]
    assert run.get_file_names() == [*names, "outputs/plots/a.png", "outputs/same.pt"]
    run.download_file("model.pt", tmp_path / "again.pt")
    assert (tmp_path / "again.pt").read_text() == "weights"
    run.download_files("outputs/plots", str(tmp_path / "all"), append_prefix=False)
    assert (tmp_path / "all" / "a.png").exists()


@pytest.mark.parametrize("name", ["../x", "/etc/x", "outputs/../../x", "a\0b"])
def test_a_file_s_name_cannot_lead_out_of_the_run(rank, name):
    with pytest.raises(UsageError, match="a file cannot have the name"):
        Run.get_context().upload_file(name, __file__)


def test_a_problem_with_a_metric_is_a_warning(rank, capsys):
    run = Run.get_context()
    run.log("f1 (macro)", 1)
    run.log("loss", 1)
    run.log("loss/x", 1)
    assert run.get_metrics() == {"f1 _macro_": 1.0, "loss": 1.0}
    said = capsys.readouterr().err
    assert "warning: metric 'f1 (macro)' is stored as 'f1 _macro_'" in said
    assert "warning: metric 'loss/x' could not be logged" in said


@pytest.mark.parametrize(
    ("mlflow", "message"),
    [(None, "mlflow is not installed"), (types.SimpleNamespace(), "metric 'elsewhere' could not be logged")],
)
def test_a_job_whose_tracking_fails_elsewhere_goes_on(rank, monkeypatch, capsys, mlflow, message):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    run = Run.get_context()
    run.log("elsewhere", 1)
    run.tag("a", "b")
    assert message in capsys.readouterr().err


def test_outside_a_job_what_is_logged_is_printed(capsys):
    run = Run.get_context()
    run.log("loss", 0.1)
    run.log_row("r", a=1)
    run.upload_file("x", __file__)
    run.complete()
    assert run.id.startswith("OfflineRun_")
    assert not hasattr(run, "experiment")
    assert capsys.readouterr().out == (
        "Attempted to log scalar metric loss:\n0.1\nAttempted to log row metric r:\n{'a': 1}\n"
    )
    with pytest.raises(UsageError, match="not a rank of a job"):
        Run.get_context(allow_offline=False)


def test_a_rank_loads_little(rank):
    code = (
        "import sys; from drumline.v1 import Run; Run.get_context().log('a', 1)\n"
        "heavy = ('yaml', 'argparse', 'shutil', 'subprocess', 'drumline.control', 'drumline.spec', 'drumline.plan')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_name_that_is_no_text_does_not_end_the_training(rank, capsys):
    run = Run.get_context()
    run.log(3, 0.5)
    run.tag(4, "x")
    assert run.get_metrics() == {"3": 0.5}
    assert "metric 3 is stored as '3'" in capsys.readouterr().err


def test_a_file_that_ranks_upload_at_once_is_that_of_one_of_them(rank, tmp_path):
    """Sizes differ, so that a file that was written over would be of two."""
    sources = {}
    for index, size in enumerate((9_000_000, 5_000_000, 7_000_000)):
        sources[index] = tmp_path / str(index)
        sources[index].write_text(str(index) * size)
    for _ in range(5):
        ranks = [
            threading.Thread(target=Run.get_context().upload_file, args=("same", one))
            for one in sources.values()
        ]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join()
        assert len(set((rank / "outputs" / "same").read_text())) == 1
    assert [path.name for path in (rank / "outputs").iterdir()] == ["same"]


def test_a_file_that_cannot_be_uploaded_leaves_nothing(rank, tmp_path):
    with pytest.raises(FileNotFoundError):
        Run.get_context().upload_file("same", tmp_path / "nothing")
    assert list((rank / "outputs").iterdir()) == []
