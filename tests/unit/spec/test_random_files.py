"""Whatever a file holds, reading it ends in a job or in a SpecError."""

from __future__ import annotations

import contextlib
import io
import os

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumline.contract.errors import SpecError
from drumline.spec.jobs.command import COMMAND_JOB
from drumline.spec.jobs.pipeline_tables import PIPELINE_JOB
from drumline.spec.jobs.sweep import SWEEP_JOB
from drumline.spec.jobs.validate import validate
from drumline.spec.load import load_job

QUIET = settings(
    deadline=None,
    max_examples=int(os.environ.get("SPEC_EXAMPLES", "200")),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
WORDS = sorted({*COMMAND_JOB.fields, *SWEEP_JOB.fields, *PIPELINE_JOB.fields, "path", "value"})
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.text(max_size=8)
    | st.sampled_from(["pytorch", "uri_file", "azureml:x", "file:x", "${{inputs.x}}", "command"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*WORDS, "type", "x"]) | SCALARS, inner, max_size=3)
    ),
    max_leaves=8,
)
JOBS = st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=6)


def read(data: bytes) -> None:
    with contextlib.suppress(SpecError):
        validate(load_job(io.BytesIO(data)))


@QUIET
@given(st.binary(max_size=200))
def test_any_bytes(data):
    read(data)


@QUIET
@given(st.text(alphabet="abc:{}[]&*!|>'\"%@`#-? \n\t<,1", max_size=80))
def test_anything_that_looks_like_yaml(text):
    read(text.encode())


@QUIET
@given(st.sampled_from(["command", "sweep", "pipeline"]), JOBS)
def test_any_values_under_the_right_keys(kind, job):
    read(yaml.safe_dump({**job, "type": kind}).encode())
