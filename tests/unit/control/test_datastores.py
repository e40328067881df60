import os
from typing import Any

import pytest

from drumline.contract.errors import NotFoundError, PlanError, SpecError, UsageError
from drumline.contract.folder import workspace
from drumline.control.assets import datastore_verbs
from drumline.spec.registered.datastores import (
    AccountKeyConfiguration,
    AzureBlobDatastore,
    AzureDataLakeGen2Datastore,
    LocalDatastore,
)


def blob(**fields):
    given = {"name": "blob", "account_name": "account", "container_name": "c"}
    return AzureBlobDatastore(**{**given, **fields})


def test_four_are_there_from_the_start(drumline_home):
    found = datastore_verbs.all()
    assert [one.name for one in found] == sorted(datastore_verbs.BUILT_IN)
    assert [one.name for one in found if one.is_default] == ["workspaceblobstore"]
    first: Any = datastore_verbs.get("workspaceblobstore")
    assert first.path == str(drumline_home / "datastores" / "workspaceblobstore")
    assert not drumline_home.exists()


@pytest.mark.parametrize(
    ("inside", "expected"),
    [("a/b.csv", "a/b.csv"), ("a//b/", "a/b"), ("./a", "a"), ("", ""), ("/a", "a"), ("a..b", "a..b")],
)
def test_a_path_in_a_datastore(drumline_home, inside, expected):
    folder = os.path.join(drumline_home, "datastores", "workspaceblobstore")
    assert datastore_verbs.path_of("workspaceblobstore", inside) == os.path.join(folder, expected).rstrip("/")


@pytest.mark.parametrize("inside", ["..", "a/../b", "../../etc/passwd", "a/..", "a\0b"])
def test_a_path_that_leads_out_is_refused(inside):
    with pytest.raises(UsageError, match="leads out"):
        datastore_verbs.path_of("workspaceblobstore", inside)


@pytest.mark.parametrize("name", ["..", "a/b", "", "a b"])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(UsageError):
        datastore_verbs.path_of(name, "a")


def test_one_of_azure_says_which_line_makes_it_a_folder(tmp_path):
    datastore_verbs.create(blob())
    with pytest.raises(PlanError, match="no folder of this machine") as error:
        datastore_verbs.path_of("blob", "a")
    assert "drumline datastore create --name blob --type local --path /FOLDER" in error.value.hint
    datastore_verbs.create(LocalDatastore(name="blob", path=tmp_path))
    assert datastore_verbs.path_of("blob", "a") == str(tmp_path / "a")
    with pytest.raises(NotFoundError) as error:
        datastore_verbs.path_of("blobb", "a")
    assert "did you mean 'blob'?" in error.value.hint


def test_one_that_is_built_in_can_be_given_another_folder(tmp_path):
    datastore_verbs.create(LocalDatastore(name="workspaceblobstore", path=tmp_path))
    assert datastore_verbs.path_of("workspaceblobstore", "a") == str(tmp_path / "a")
    datastore_verbs.delete("workspaceblobstore")
    first: Any = datastore_verbs.get("workspaceblobstore")
    assert first.path.endswith("datastores/workspaceblobstore")
    with pytest.raises(UsageError, match="always there"):
        datastore_verbs.delete("workspaceblobstore")
    with pytest.raises(NotFoundError):
        datastore_verbs.delete("nobody")


def test_a_folder_must_be_there(tmp_path):
    with pytest.raises(PlanError, match="there is no folder") as error:
        datastore_verbs.create(LocalDatastore(name="blob", path=tmp_path / "no"))
    assert error.value.hint == f"mkdir -p {tmp_path / 'no'}"


def test_secrets_are_kept_and_not_shown(drumline_home):
    made = datastore_verbs.create(blob(credentials=AccountKeyConfiguration(account_key="very secret")))
    assert made.credentials.account_key == "very secret"
    for text in (str(made), repr(made), repr(made.credentials), repr([made])):
        assert "very secret" not in text
    (record,) = drumline_home.rglob("1.yml")
    assert "very secret" in record.read_text()
    assert record.stat().st_mode & 0o777 == 0o600


def test_what_is_shown_for_a_secret_is_not_taken_for_it():
    with pytest.raises(SpecError, match="is a masked secret, not the secret itself"):
        datastore_verbs.create(blob(credentials=AccountKeyConfiguration(account_key="********")))


def test_what_azure_would_refuse_is_refused():
    with pytest.raises(SpecError, match="account_name must be text"):
        datastore_verbs.create(blob(account_name=3))
    lake = AzureDataLakeGen2Datastore(name="lake", account_name="a", filesystem="f")
    lake.credentials = AccountKeyConfiguration(account_key="k")
    with pytest.raises(SpecError, match="holds no known credentials"):
        datastore_verbs.create(lake)


def test_a_workspace_has_its_own_folders_and_sees_the_datastores_of_the_base_home(tmp_path, drumline_home):
    datastore_verbs.create(LocalDatastore(name="lustre", path=tmp_path))
    with workspace("team"):
        assert datastore_verbs.path_of("lustre", "a") == str(tmp_path / "a")
        own = drumline_home / "workspaces" / "team" / "datastores" / "workspaceblobstore"
        assert datastore_verbs.path_of("workspaceblobstore", "") == str(own)
        assert "lustre" in datastore_verbs.names()


def test_a_damaged_record_is_told(drumline_home, tmp_path):
    datastore_verbs.create(LocalDatastore(name="lustre", path=tmp_path))
    next(drumline_home.rglob("1.yml")).write_text("type: [\n")
    said = []
    assert len(datastore_verbs.all(damaged=said.append)) == 4
    assert "lustre" in said[0]


def test_credentials_that_are_none_are_refused_without_being_shown():
    with pytest.raises(SpecError, match="no known credentials") as error:
        blob(credentials={"key": "hush"})
    assert "hush" not in str(error.value)
