"""How each MPI's launcher is called, and what its ranks are told."""

import subprocess

import pytest
from planning import FACTS, environments, plan

from drumline.contract import installed_mpi
from drumline.contract.errors import PlanError
from drumline.contract.installed_mpi import INTEL, MPICH, OPEN_MPI, Mpi, recognize_mpi
from drumline.contract.plan import Plan, bind

TWO_EACH = {"type": "mpi", "process_count_per_instance": 2}
OPEN_MPI_4 = Mpi(OPEN_MPI, 4, 1, "mpirun")


def of(mpi, **job):
    return plan(
        distribution=TWO_EACH,
        at={"mpi": mpi, "shares_machine": job.pop("shares_machine", False)},
        **job,
    )


@pytest.mark.parametrize(
    ("mpi", "said"),
    [
        (OPEN_MPI_4, "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/"),
        (Mpi(OPEN_MPI, 5, 0, "mpirun"), "mpirun (Open MPI) 5.0.11"),
        (Mpi(MPICH, 5, 0, "mpiexec"), "HYDRA build details:\n    Version:            5.0.2\n    CC: gcc"),
        (Mpi(INTEL, 2021, 9, "mpirun"), "Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307"),
        (None, "mpirun: command of something else 1.2"),
        (None, ""),
    ],
)
def test_an_mpi_is_known_by_what_its_launcher_says(mpi, said):
    assert recognize_mpi(mpi.program if mpi else "mpirun", said) == mpi


@pytest.mark.parametrize(
    ("mpi", "words"),
    [
        (
            OPEN_MPI_4,
            ["--host", "${node_0}:2,${node_1}:2", "-np", "4", "--map-by", "ppr:2:node", "--bind-to", "none"],
        ),
        (Mpi(OPEN_MPI, 5, 0, "mpirun"), ["--host", "${node_0}:2,${node_1}:2", "--bind-to", "none"]),
        (
            Mpi(MPICH, 4, 2, "mpiexec"),
            ["-hosts", "${node_0}:2,${node_1}:2", "-n", "4", "-bind-to", "none", "-pmi-port"],
        ),
        (Mpi(INTEL, 2021, 9, "mpirun"), ["-hosts", "${node_0},${node_1}", "-ppn", "2", "-n", "4"]),
    ],
    ids=lambda value: value.kind if isinstance(value, Mpi) else "",
)
def test_a_launcher_starts_stand_ins_on_every_node_in_order(mpi, words):
    launcher = of(mpi).launcher
    assert launcher.name == mpi.program
    assert launcher.argv[:2] == ("/bin/sh", "-c")
    assert " drumline-daemon " in launcher.argv[2]
    assert launcher.argv[2].endswith("""/bin/sh -c '. "$DRUMLINE_BIN/drumline-rank"'""")
    assert launcher.argv[3] == mpi.program
    given = list(launcher.argv[4:])
    places = [given.index(word) for word in words]
    assert len(set(places)) == len(words)


def test_a_plan_with_a_launcher_survives_the_way_to_disk_and_back():
    made = of(OPEN_MPI_4)
    assert Plan.from_json(made.to_json()) == made


def test_nodes_of_one_machine_share_no_memory_by_the_name_of_the_host():
    apart, together = of(OPEN_MPI_4), of(OPEN_MPI_4, shares_machine=True)
    assert "OMPI_MCA_btl" not in apart.env
    assert together.env["OMPI_MCA_btl"] == "self,tcp"
    assert together.env["OMPI_MCA_mpi_yield_when_idle"] == "1"
    alone = of(OPEN_MPI_4, shares_machine=True, nodes=1)
    assert "OMPI_MCA_btl" not in alone.env


@pytest.mark.parametrize(
    ("nodes", "shares_machine", "told"), [(2, False, "${interface}"), (2, True, None), (1, False, None)]
)
def test_the_daemons_of_open_mpi_5_are_told_of_no_loopback(nodes, shares_machine, told):
    """With it they find no interface at all, and end."""
    made = of(Mpi(OPEN_MPI, 5, 0, "mpirun"), nodes=nodes, shares_machine=shares_machine)
    assert made.env.get("PRTE_MCA_prte_if_include") == told
    assert made.env["OMPI_MCA_btl_tcp_if_include"] == "${interface}"


@pytest.mark.parametrize(
    ("major", "nodes", "shares_machine", "count"),
    [(5, 2, True, 0), (6, 1, True, 0), (6, 2, False, 0), (6, 2, True, 1)],
)
def test_open_mpi_6_needs_a_network_for_each_node(major, nodes, shares_machine, count):
    made = of(Mpi(OPEN_MPI, major, 0, "mpirun"), nodes=nodes, shares_machine=shares_machine)
    assert (
        len([warning for warning in made.warnings if "Open MPI 6 connects no two nodes" in warning]) == count
    )
    # It complains of the variable of version 4, on each rank.
    assert "OMPI_MCA_oob_tcp_if_include" not in made.env


def test_ranks_that_outnumber_the_cores_do_not_spin():
    assert of(OPEN_MPI_4, cores=1).env["OMPI_MCA_mpi_yield_when_idle"] == "1"
    assert "OMPI_MCA_mpi_yield_when_idle" not in of(OPEN_MPI_4, cores=2).env


def test_the_variables_of_open_mpi_without_one():
    made = plan(distribution=TWO_EACH, drumline={"mpi": "environment"})
    assert made.launcher is None
    seen = environments(made, FACTS)[3]
    assert {name: value for name, value in seen.items() if name.startswith("OMPI_")} == {
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "OMPI_COMM_WORLD_NODE_RANK": "1",
        "OMPI_UNIVERSE_SIZE": "4",
    }


@pytest.mark.parametrize("drumline", [{}, {"mpi": "environment"}], ids=["launcher", "environment"])
def test_one_process_a_node_may_start_the_ranks_by_itself(drumline):
    """Lightning does, unless it finds one of these."""
    alone = plan(distribution={"type": "mpi"}, at={"mpi": OPEN_MPI_4}, gpus=2, drumline=drumline)
    for node, seen in environments(alone, FACTS).items():
        assert not {"LOCAL_RANK", "TORCHELASTIC_RUN_ID"} & set(seen)
        assert {"RANK", "WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"} <= set(seen)
        assert seen["CUDA_VISIBLE_DEVICES"] == FACTS[f"gpus_{node}"]
    for seen in environments(of(OPEN_MPI_4), FACTS).values():
        assert {"LOCAL_RANK", "TORCHELASTIC_RUN_ID"} <= set(seen)


def test_a_rank_is_not_the_users_to_choose():
    made = plan(
        distribution=TWO_EACH,
        drumline={"mpi": "environment"},
        environment_variables={"OMPI_COMM_WORLD_RANK": "0", "OMPI_MCA_btl": "tcp"},
    )
    assert [warning for warning in made.warnings if "OMPI_COMM_WORLD_RANK" in warning]
    assert environments(made, FACTS)[3]["OMPI_COMM_WORLD_RANK"] == "3"
    assert environments(made, FACTS)[3]["OMPI_MCA_btl"] == "tcp"


@pytest.mark.parametrize(
    ("mpi", "message"),
    [
        (None, "needs an MPI"),
        (Mpi(OPEN_MPI, 3, 1, "mpirun"), "Open MPI 3.1 is too old; 4.0 or newer"),
        (Mpi(MPICH, 3, 2, "mpiexec"), "MPICH 3.2 is too old; 3.3 or newer"),
        (Mpi(INTEL, 2018, 4, "mpirun"), "Intel MPI 2018.4 is too old; 2019.0 or newer"),
    ],
)
def test_what_cannot_start_ranks_is_refused(mpi, message):
    with pytest.raises(PlanError, match=message) as caught:
        of(mpi)
    assert "drumline: {mpi: environment}" in caught.value.hint


KNOWN = [
    (OPEN_MPI_4, "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/"),
    (Mpi(OPEN_MPI, 5, 0, "mpirun"), "mpirun (Open MPI) 5.0.11"),
    (Mpi(OPEN_MPI, 10, 0, "mpirun"), "mpirun (Open MPI) 10.0.1"),
    (Mpi(MPICH, 5, 0, "mpiexec"), "HYDRA build details:\n    Version:            5.0.2\n    CC: gcc"),
    (Mpi(INTEL, 2021, 9, "mpirun"), "Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307"),
]
IMAGE_MPI = Mpi(installed_mpi.IMAGE_MPI, 0, 0, "mpirun")


def call(launcher, folder, program, said):
    """What the launcher's program is called with, where it is one that says that of its version."""
    (folder / "said").write_text(said + "\n")
    (folder / program).write_text(
        f"""#!/bin/sh
if [ "$1" = --version ]; then while read -r line; do echo "$line"; done <'{folder}/said'
else for word; do echo "[$word]"; done; fi
"""
    )
    (folder / program).chmod(0o755)
    argv = [bind(word, {**FACTS, "interface": "eth0"}) for word in launcher.argv]
    return subprocess.run(argv, env={"PATH": str(folder)}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("known", "said"), KNOWN, ids=lambda value: str(value)[:20])
def test_an_mpi_of_an_image_is_called_as_one_that_is_known(tmp_path, known, said):
    expected = call(of(known).launcher, tmp_path, known.program, said)
    found = call(of(IMAGE_MPI).launcher, tmp_path, known.program, said)
    assert expected.stdout.count("[drumline-daemon]") == 1
    assert (found.returncode, found.stdout) == (0, expected.stdout), found.stderr


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("a program of another kind", "the image has no MPI: Open MPI 4.0, "),
        ("mpirun (Open MPI) 3.1.4", "the image has no newer MPI: Open MPI 4.0, "),
        ("HYDRA build details:\n    Version:      3.2.1\n", "the image has no newer MPI: "),
    ],
)
def test_an_image_without_an_mpi_that_can_start_ranks(tmp_path, said, message):
    done = call(of(IMAGE_MPI).launcher, tmp_path, "mpirun", said)
    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr.startswith(message)


def test_another_distribution_has_no_mpi_to_choose():
    with pytest.raises(PlanError, match=r"drumline\.mpi: only distribution: \{type: mpi\}"):
        plan(distribution={"type": "pytorch"}, drumline={"mpi": "environment"})
