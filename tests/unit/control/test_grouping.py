"""What several steps are warned about alike."""

from drumline import load_job
from drumline.control.submission.driven import group_warnings, prepare, warnings_of


def test_more_steps_than_can_be_named_are_counted():
    said = group_warnings([f"jobs.s{number}: not used" for number in range(9)])
    assert said == ["jobs.s0, jobs.s1, jobs.s2, jobs.s3 and 5 more steps: not used"]


def test_what_is_said_of_the_whole_and_of_a_step_names_both():
    assert group_warnings(["identity: x", "jobs.a: identity: x"]) == ["the job, jobs.a: identity: x"]


def test_equal_warnings_of_steps_are_one(tmp_path):
    (tmp_path / "p.yml").write_text(
        "type: pipeline\n"
        "settings: {default_compute: azureml:far}\n"
        "jobs:\n"
        "  a: {command: echo 1}\n"
        "  b: {command: echo 2, resources: {instance_type: x}}\n"
        "  c: {jobs: {d: {command: echo 3}}}\n"
    )
    job = load_job(tmp_path / "p.yml")
    said = [
        "jobs.a, jobs.b, jobs.c.jobs.d: compute: 'far' is not attached; the job runs on this machine",
        "jobs.b: resources.instance_type: not used; nodes are this machine's",
    ]
    assert prepare(job)[1] == said
    assert warnings_of(job) == said
