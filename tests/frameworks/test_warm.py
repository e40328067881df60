"""
Warm starts with the frameworks that a program has.

The examples themselves are run with ranks that are forked by ``test_the_job_file_reaches_its_figure``, but where their
row of the table says otherwise, and with ranks that are started afresh by ``test_the_same_in_python``.
"""

import re

import pytest
from frameworks import starts
from frameworks.table import TABLE

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    "example", [row for row in TABLE if row.short], ids=lambda row: row.id, indirect=True
)
def test_an_example_that_no_other_test_starts_afresh(example, examples, run_in, monkeypatch, drumline_home):
    monkeypatch.setenv("DRUMLINE_WARM", "off")
    words = ("job", "create", "-f", example.job_file, "-n", "job", "--stream", "--set", *example.short)
    done = run_in(example.environment, examples / example.name, "-m", "drumline", *words)
    assert done.rc == 0, done.out[-4000:] + done.err
    assert re.search(r"test accuracy 0\.\d+ \(1 ranks?\)", done.out), done.out[-4000:]
    starts.check(example, "off", drumline_home / "jobs" / "job")
