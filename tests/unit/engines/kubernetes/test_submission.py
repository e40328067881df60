"""The objects of a job are made in their order, and all go when one is refused."""

import pytest
from planning import plan

from drumline.contract.errors import EngineError
from drumline.contract.folder import RunFolder
from drumline.engines.kubernetes import manifests, submission
from drumline.engines.kubernetes.client import ApiRefusedError, ApiSilentError

FOLDER = RunFolder("/home/ann/jobs/calm_drum")


class Api:
    """``refuses``: by kind, the error that its creation raises, or several one after the other; ``there``: a Job."""

    def __init__(self, there=None, **refuses):
        self.refuses = refuses
        self.there = there
        self.did = []
        self.made = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def get(self, kind, name):
        assert kind == "Job"
        return self.there

    def create(self, thing):
        error = self.refuses.get(thing["kind"])
        if isinstance(error, list):
            error = error.pop(0) if error else None
        if error:
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
    return manifests.make_objects(job, FOLDER, [{}], submission="mine")


def test_the_owner_starts_when_all_that_it_needs_is_there(made):
    api = Api()
    submission.send(api, made)
    assert api.did == ["Job", "Secret", "Service", "Job", {"spec": {"parallelism": 1}}]
    owners = [thing["metadata"].get("ownerReferences", [{}])[0].get("uid") for thing in api.made]
    assert owners == [None, "0f1e", "0f1e", "0f1e"]


def test_nothing_is_left_of_a_job_that_was_not_taken_whole(made):
    api = Api(Service=ApiRefusedError("no", status=403))
    with pytest.raises(EngineError):
        submission.send(api, made)
    assert api.did == ["Job", "Secret", f"delete {made.supervisor['metadata']['name']}"]


EXISTS = ApiRefusedError("exists", status=409)


def job_of(mark, **metadata):
    return {
        "metadata": {
            "name": "dl",
            "uid": "0f1e",
            "annotations": {manifests.SUBMISSION_ANNOTATION: mark},
            **metadata,
        }
    }


@pytest.mark.parametrize("mark", ["another", ""])
def test_a_second_job_of_the_name_leaves_the_first_alone(made, mark):
    api = Api(there=job_of(mark), Job=EXISTS)
    with pytest.raises(ApiRefusedError, match="of another job of that name"):
        submission.send(api, made)
    assert api.did == []


def test_a_submission_that_was_cut_off_is_completed(made):
    api = Api(there=job_of("mine"), Job=[EXISTS], Secret=EXISTS)
    assert submission.send(api, made) == "0f1e"
    assert api.did == ["Service", "Job", {"spec": {"parallelism": 1}}]
    again = Api(there=job_of("mine"), Job=EXISTS, Secret=EXISTS, Service=EXISTS)
    assert submission.send(again, made) == "0f1e"
    assert again.did == [{"spec": {"parallelism": 1}}]


def test_a_submission_that_has_arrived_is_left_alone(made):
    api = Api(there={**job_of("mine"), "spec": {"parallelism": 1}}, Job=EXISTS)
    assert submission.send(api, made) == "0f1e"
    assert api.did == []


def test_code_in_several_parts_is_sent_anew(made, monkeypatch):
    monkeypatch.setattr(submission.time, "sleep", lambda _: None)
    api = Api(there=job_of("mine"), Job=[EXISTS])
    assert submission.send(api, made._replace(secrets=made.secrets * 2)) == "0f1e"
    name = made.supervisor["metadata"]["name"]
    assert api.did == [
        f"delete {name}",
        "Job",
        "Secret",
        "Secret",
        "Service",
        "Job",
        {"spec": {"parallelism": 1}},
    ]


def test_what_is_left_of_an_earlier_job_is_waited_for(made, monkeypatch):
    monkeypatch.setattr(submission.time, "sleep", lambda _: None)
    going = job_of("mine", deletionTimestamp="2026-01-01T00:00:00Z")
    api = Api(there=going, Job=[EXISTS, EXISTS], Secret=[EXISTS])
    assert submission.send(api, made) == "0f1e"
    assert api.did == ["Job", "Secret", "Service", "Job", {"spec": {"parallelism": 1}}]


def test_the_wait_for_what_is_left_has_an_end(made, monkeypatch):
    monkeypatch.setattr(submission, "_GOING_S", 0.0)
    monkeypatch.setattr(submission.time, "sleep", lambda _: None)
    with pytest.raises(ApiRefusedError, match="of another job of that name"):
        submission.send(Api(there=job_of("", deletionTimestamp="x"), Job=EXISTS), made)
    api = Api(Secret=EXISTS)
    with pytest.raises(ApiRefusedError, match="exists"):
        submission.send(api, made)
    assert api.did == ["Job", f"delete {made.supervisor['metadata']['name']}"]


def test_a_server_that_is_away_for_a_while_is_waited_for(made, monkeypatch, capsys):
    monkeypatch.setattr(submission.time, "sleep", lambda _: None)
    api = Api(Job=[ApiSilentError("away"), ApiSilentError("away")])
    assert submission.send_patiently(lambda: api, lambda _: made) == "0f1e"
    assert capsys.readouterr().err == "waiting for Kubernetes: away\n"
    monkeypatch.setattr(submission, "PATIENCE_S", 0.0)
    with pytest.raises(ApiSilentError):
        submission.send_patiently(lambda: Api(Job=ApiSilentError("away")), lambda _: made)
