"""The examples on isolated nodes: each framework finds the other nodes by what it finds on its own, as on a cluster."""

import json
import re

import isolated_nodes
import pytest
from frameworks.table import BASE, TABLE

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    "example",
    # PyTorch and the machine's own MPI have tests/acceptance/test_isolated_nodes.py.
    [row for row in TABLE if row.environment != BASE],
    ids=lambda row: row.id,
    indirect=True,
)
def test_the_job_file_reaches_its_figure_on_isolated_nodes(
    example, examples, run_in, tmp_path, drumline_home
):
    isolated_nodes.skip_without()
    program = ("-m", "drumline")
    file = isolated_nodes.write_compute(tmp_path)
    assert run_in(example.environment, tmp_path, *program, "compute", "create", "-f", file).rc == 0
    words = [
        "job",
        "create",
        "-f",
        example.job_file,
        "--set",
        "compute=azureml:lab",
        "-n",
        "isolated",
        "--stream",
    ]
    done = run_in(example.environment, examples / example.name, *program, *words)
    assert done.rc == 0, done.out[-4000:] + done.err
    found = re.search(example.figure, done.out)
    assert found, done.out[-4000:]
    assert float(found[1]) >= example.least
    shown = run_in(example.environment, tmp_path, *program, "job", "show", "isolated", "-o", "json")
    nodes = [(node["host"], node["address"]) for node in json.loads(shown.out)["nodes"]]
    assert nodes == [(f"lab-{node}", f"10.77.0.{node + 1}") for node in range(2)]
