"""What is remembered of this machine's MPI, and when its launcher is asked again."""

import os
import shutil

import pytest

from drumline.contract import installed_mpi
from drumline.contract.folder import base_home
from drumline.engines.local import resources

FOUND = installed_mpi.Mpi(installed_mpi.OPEN_MPI, 4, 1, "mpirun")
SCRIPT = """\
#!/bin/sh
echo asked >>"$0.asked"
echo 'mpirun (Open MPI) 5.0.1'
"""


@pytest.fixture
def folder(tmp_path):
    """The first on a search path, in the home of a machine that has had jobs."""
    os.makedirs(os.path.join(base_home(), "engines"))
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


@pytest.fixture
def program(folder):
    """A compiled program that says of no MPI that it is one."""
    shutil.copy("/bin/true", folder / "mpirun")
    return str(folder / "mpirun")


def test_a_launcher_that_has_not_changed_is_not_asked_again(program, folder):
    assert resources.mpi_on(str(folder)) is None
    resources.remember(program, FOUND)
    assert resources.mpi_on(str(folder)) == FOUND
    with open(program, "ab") as file:
        file.write(b"\0")
    assert resources.mpi_on(str(folder)) is None


def test_another_program_of_the_name_is_asked(program, folder, tmp_path):
    resources.remember(program, FOUND)
    os.rename(folder, tmp_path / "elsewhere")
    assert resources.recall("mpirun", str(tmp_path / "elsewhere" / "mpirun")) is None


def test_a_script_is_asked_each_time(folder):
    (folder / "mpirun").write_text(SCRIPT)
    (folder / "mpirun").chmod(0o755)
    for _ in range(2):
        assert resources.mpi_on(f"{folder}:/bin") == installed_mpi.Mpi(installed_mpi.OPEN_MPI, 5, 0, "mpirun")
    assert (folder / "mpirun.asked").read_text() == "asked\n" * 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"of": 1}', "[" * 4096, "\xff"])
def test_a_damaged_memory_is_none(program, text):
    resources.remember(program, FOUND)
    (path,) = (os.path.join(base_home(), "engines", name) for name in os.listdir(f"{base_home()}/engines"))
    with open(path, "w", encoding="latin-1") as file:
        file.write(text)
    assert resources.recall("mpirun", program) is None


def test_where_no_job_was_nothing_is_written(tmp_path):
    shutil.copy("/bin/true", tmp_path / "mpirun")
    resources.remember(str(tmp_path / "mpirun"), FOUND)
    assert not os.path.exists(base_home())
