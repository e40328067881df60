"""The objects of a job are made in their order, and all go when one is refused."""

import pytest
from planning import plan

from drumline.contract.errors import EngineError
from drumline.contract.folder import RunFolder
from drumline.engines.kubernetes import objects, submission
from drumline.engines.kubernetes.api.failures import ApiRefusedError, ApiSilentError

FOLDER = RunFolder("/home/ann/jobs/calm_drum")


class Api:
    """``refuses``: by kind, the error that its creation raises."""

    def __init__(self, **refuses):
        self.refuses = refuses
        self.did = []
        self.made = []

    def create(self, thing):
        if error := self.refuses.get(thing["kind"]):
            raise error
        self.did.append(thing["kind"])
        self.made.append(thing)
        return {**thing, "metadata": {**thing["metadata"], "uid": "0f1e"}}

    def patch(self, kind, name, change):
        self.did.append(change)

    def delete_job(self, name):
        self.did.append(f"delete {name}")


@pytest.fixture
def made():
    job = plan(2, at={"engine": "kubernetes", "folder": FOLDER})._replace(compute={"image": "x"})
    return objects.make_objects(job, FOLDER, [{}])


def test_the_owner_starts_when_all_that_it_needs_is_there(made):
    api = Api()
    submission.send(api, made)
    assert api.did == ["Job", "Secret", "Service", "Job", {"spec": {"parallelism": 1}}]
    owners = [thing["metadata"].get("ownerReferences", [{}])[0].get("uid") for thing in api.made]
    assert owners == [None, "0f1e", "0f1e", "0f1e"]


@pytest.mark.parametrize("error", [ApiRefusedError("no", status=403), ApiSilentError("away")])
def test_nothing_is_left_of_a_job_that_was_not_taken_whole(made, error):
    api = Api(Service=error)
    with pytest.raises(EngineError):
        submission.send(api, made)
    assert api.did == ["Job", "Secret", f"delete {made.supervisor['metadata']['name']}"]


def test_a_second_job_of_the_name_leaves_the_first_alone(made):
    api = Api(Job=ApiRefusedError("exists", status=409))
    with pytest.raises(ApiRefusedError, match="of an earlier job of that name"):
        submission.send(api, made)
    assert api.did == []
