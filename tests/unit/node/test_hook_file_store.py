"""Files that MLflow writes while other ranks read them: a module of its name and ways, with the hook on its path."""

import os
import subprocess
import sys
import textwrap

import pytest

from drumline.node import hook_folder

LIKE_MLFLOW = """
    import os

    def write_to(filename, data):
        with open(filename, "w") as handle:
            handle.write(data)

    def write_yaml(root, file_name, data, overwrite=False, sort_keys=True):
        if os.path.exists(os.path.join(root, file_name)) and not overwrite:
            raise Exception("exists")
        write_to(os.path.join(root, file_name), data["text"])
"""


@pytest.fixture
def rank(tmp_path):
    """Start a program as an agent would, with that text as MLflow's module."""

    def start(text, module=LIKE_MLFLOW, uri="file:///runs"):
        place = tmp_path / "mlflow" / "store" / "tracking"
        place.mkdir(parents=True, exist_ok=True)
        for folder in (place, place.parent, place.parent.parent):
            (folder / "__init__.py").touch()
        file = place / "file_store.py"
        # Not again while another rank may be reading it.
        if not file.exists() or file.read_text() != textwrap.dedent(module):
            file.write_text(textwrap.dedent(module))
        variables = {**os.environ, "MLFLOW_TRACKING_URI": uri, "PYTHONPATH": str(tmp_path)}
        hook_folder.add_hook(variables, str(tmp_path / "notes.jsonl"))
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(text)],
            cwd=tmp_path,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


def said(process):
    out = process.communicate()[0]
    assert process.returncode == 0, out
    return out


WRITE = """
    import os, sys
    from mlflow.store.tracking import file_store
    for number in range(200):
        path = f"param-{number}"
        if os.path.exists(path):
            assert open(path).read() == "0.1", path
        file_store.write_to(path, "0.1")
        file_store.write_yaml(".", "meta.yaml", {"text": "status: 1\\n" * 50}, overwrite=True)
        assert len(open("meta.yaml").read()) == 500
    watches = [one for one in sys.meta_path if "file_store" in str(getattr(one, "_names", ""))]
    print(file_store.write_to.__module__, watches)
"""


def test_no_rank_ever_finds_a_file_empty(rank, tmp_path):
    ranks = [rank(WRITE) for _ in range(4)]
    outs = [one.communicate()[0] for one in ranks]
    assert outs == ["drumline_file_store []\n"] * 4
    assert {path.name for path in tmp_path.glob("*.yaml")} == {"meta.yaml"}
    assert not list(tmp_path.glob(".*"))


def test_a_value_that_becomes_shorter_leaves_nothing_behind(rank, tmp_path):
    text = """
        from mlflow.store.tracking import file_store
        for value in ("long value", "short", "ä", ""):
            file_store.write_to("tag", value)
            print(open("tag", encoding="utf-8").read())
        file_store.write_yaml(".", "new.yaml", {"text": "a"})
        try:
            file_store.write_yaml(".", "new.yaml", {"text": "b"})
        except Exception as error:
            print(error, open("new.yaml").read())
    """
    assert said(rank(text)) == "long value\nshort\nä\n\nexists a\n"


@pytest.mark.parametrize(
    ("module", "text", "out"),
    [
        ("x = 1", "from mlflow.store.tracking import file_store as f; print(f.x)", "1\n"),
        (
            "def write_to(one): return one\nwrite_yaml = 3",
            "from mlflow.store.tracking import file_store as f; print(f.write_yaml)",
            "3\n",
        ),
        (
            "raise ValueError('broken')",
            "try: import mlflow.store.tracking.file_store\nexcept ValueError as e: print(e)",
            "broken\n",
        ),
        ("x = 1", "import mlflow.nothing", "No module named 'mlflow.nothing'"),
    ],
)
def test_what_is_otherwise_than_known_stays_as_it_is(rank, module, text, out):
    process = rank(text, module)
    assert out in process.communicate()[0]


def test_where_nothing_is_in_files_imports_are_not_watched(rank):
    text = """
        import sys
        from mlflow.store.tracking import file_store
        watches = [one for one in sys.meta_path if "file_store" in str(getattr(one, "_names", ""))]
        print(file_store.write_to.__module__, watches)
    """
    assert said(rank(text, uri="https://host")) == "mlflow.store.tracking.file_store []\n"


def test_modes_are_those_of_mlflow_itself(rank, tmp_path):
    text = """
        import os
        from mlflow.store.tracking import file_store
        os.umask(0o022)
        file_store.write_to("new", "1")
        print(oct(os.stat("new").st_mode & 0o777))
    """
    assert said(rank(text)) == "0o644\n"
