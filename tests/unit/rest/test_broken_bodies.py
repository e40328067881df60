"""Bodies with any part of them replaced by something else: a job, or an error with a sentence, never a traceback."""

import copy

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from unit.rest.test_asset_bodies import VERSIONS
from unit.rest.test_job_bodies import COMMAND, PIPELINE, SWEEP

from drumline.contract.errors import DrumlineError
from drumline.rest import asset_bodies
from drumline.rest.job_bodies import read_job
from drumline.spec.kinds.values import Report
from drumline.spec.load import load_job_values
from drumline.spec.parts import environment
from drumline.spec.reading.files import wrap_file
from drumline.spec.registered import assets, compute, datastores

ODD = st.sampled_from(
    [
        *(
            None,
            True,
            -1,
            1.5,
            1e400,
            "",
            "a",
            "azureml:",
            "azureml:/subscriptions/x",
            "${{",
            "P",
            "PT",
            "\0",
        ),
        *(
            [],
            [[]],
            {},
            {"type": []},
            {"a": None},
            ["choice", {}],
            ["uniform", [1]],
            {"properties": 3},
            "é" * 300,
        ),
    ]
)
BODIES = {"command": COMMAND, "sweep": SWEEP, "pipeline": PIPELINE}
CLUSTER = {
    "computeType": "AmlCompute",
    "properties": {"vmSize": "S", "vmPriority": "Dedicated", "scaleSettings": {"maxNodeCount": 3}},
}
STORE = {
    "datastoreType": "AzureBlob",
    "accountName": "a",
    "containerName": "c",
    "credentials": {"credentialsType": "Sas", "secrets": {"secretsType": "Sas", "sasToken": "s"}},
}


def list_places(value, place=()):
    yield place
    if isinstance(value, dict):
        for key, item in value.items():
            yield from list_places(item, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from list_places(item, (*place, index))


def replace(value, place, odd):
    if not place:
        return odd
    broken = copy.deepcopy(value)
    inner = broken
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = odd
    return broken


def broken(body):
    return st.builds(
        replace, st.just({"properties": body}), st.sampled_from([*list_places({"properties": body})]), ODD
    )


def find_code(name, version):
    return "/"


def attempt(act):
    try:
        return act()
    except DrumlineError:
        return None


@pytest.mark.parametrize("kind", BODIES)
@settings(max_examples=150)
@given(data=st.data())
def test_a_broken_job_is_refused_with_a_sentence(kind, data):
    body = data.draw(broken(BODIES[kind]))
    attempt(lambda: load_job_values(read_job("j", body, find_code), "/"))


@pytest.mark.parametrize("case", VERSIONS)
@settings(max_examples=50)
@given(data=st.data())
def test_a_broken_asset_is_refused_with_a_sentence(case, data):
    kind, sent, _ = VERSIONS[case]
    body = data.draw(broken(sent))
    values = attempt(lambda: asset_bodies.read_asset(kind, "n", "2", body, find_code))
    if values is not None and kind == "environment":
        attempt(lambda: environment.from_tree(wrap_file(values), Report("/")))
    elif values is not None and kind != "component":
        attempt(lambda: assets.from_tree(kind, wrap_file(values), Report("/")))


@settings(max_examples=50)
@given(store=broken(STORE), cluster=broken(CLUSTER))
def test_broken_places_are_refused_with_a_sentence(store, cluster):
    attempt(lambda: datastores.from_dict(asset_bodies.read_datastore("d", store)))
    attempt(lambda: compute.from_tree(wrap_file(asset_bodies.read_compute("c", cluster)), Report("/")))
    attempt(lambda: asset_bodies.read_workspace("w", cluster))
