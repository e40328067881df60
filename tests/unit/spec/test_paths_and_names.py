"""Where paths lead, and what jobs are called."""

from __future__ import annotations

import re

import pytest

from drumline.spec.jobs.command import command
from drumline.spec.paths import default_experiment_name, is_remote, random_name, resolve, scheme_of


@pytest.mark.parametrize(
    ("value", "scheme"),
    [
        ("azureml:d:1", "azureml"),
        ("azureml://datastores/d/paths/x", "azureml"),
        ("https://h/x", "https"),
        ("abfss://c@a/x", "abfss"),
        ("wasbs://c@a/x", "wasbs"),
        ("runs:/1/x", "runs"),
        ("git+https://h/x.git", "git+https"),
        ("s3://b/x", "s3"),
        ("file:./x", ""),
        ("file:///x", ""),
        ("./x", ""),
        ("a:b", ""),
        ("C:\\x", ""),
        ("", ""),
    ],
)
def test_a_uri_has_a_scheme_and_a_path_has_none(value, scheme):
    assert (scheme_of(value), is_remote(value)) == (scheme, bool(scheme))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("data", "/base/data"),
        ("./a/../data", "/base/data"),
        ("/abs", "/abs"),
        ("file:data", "/base/data"),
        ("file:///abs/a%20b", "/abs/a b"),
        ("~/x", "/base/~/x"),
        ("https://h/x", "https://h/x"),
        ("azureml:d:1", "azureml:d:1"),
    ],
)
def test_paths_resolve_against_the_folder_of_the_job(value, expected):
    assert resolve(command(command="x", base_path="/base"), value) == expected


def test_a_job_built_in_python_resolves_against_the_working_folder(tmp_path, monkeypatch):
    job = command(command="x")
    monkeypatch.chdir(tmp_path)
    assert resolve(job, "data") == str(tmp_path / "data")


def test_random_names_look_like_azure_ones_and_differ():
    names = {random_name() for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch(r"[a-z]+_[a-z]+_[a-z0-9]{10}", name) for name in names)


@pytest.mark.parametrize(("folder", "name"), [("/a/my work", "mywork"), ("/", "Default")])
def test_an_experiment_is_named_after_the_folder(folder, name):
    assert default_experiment_name(folder) == name
