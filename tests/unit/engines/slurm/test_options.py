"""What a job and its compute ask for, as options of sbatch."""

import pytest
from planning import plan

from drumline.contract.errors import PlanError
from drumline.contract.plan import Asked, Build, Fetch, Upload
from drumline.engines.slurm import options

LOG = "/home/ann/jobs/calm_drum/system_logs/slurm.log"


def job(compute=None, asked=None, nodes=2, gpus=0, **changed):
    made = plan(nodes, gpus=gpus, at={"engine": "slurm"})
    changed = {"grace_s": 30.0, "cores_wanted": 0, **changed}
    return made._replace(compute=dict(compute or {}), asked=Asked(**(asked or {})), **changed)


def of(*arguments, **settings):
    return options.make_options(job(*arguments, **settings), LOG)


def own(**given):
    """The options of a job that gives these as resources.properties.slurm."""
    return of(asked={"options": given})


def refused(**given):
    """Path, what, and hint of each option that is refused."""
    with pytest.raises(PlanError) as error:
        own(**given)
    return [(one.path, one.what, one.hint) for one in error.value.problems]


def test_a_plain_job_asks_for_its_nodes_and_nothing_that_the_site_should_say():
    assert of() == {
        "job-name": job().job,
        "nodes": "2",
        "ntasks-per-node": "1",
        "chdir": "/home/ann/jobs/calm_drum",
        "output": LOG,
        "open-mode": "append",
        "cpus-per-task": "1",
        "no-requeue": None,
        "signal": "B:USR2@60",
    }


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        ({"partition": "gpu,long"}, {"partition": "gpu,long"}),
        ({"account": "physics"}, {"account": "physics"}),
        ({"qos": "normal"}, {"qos": "normal"}),
        ({"memory_per_node": "64G"}, {"mem": "64G"}),
        ({"cores_per_node": 12}, {"cpus-per-task": "12"}),
        ({"time_limit": "1-12:00:00"}, {"time": "1-12:00:00"}),
        ({"sbatch_options": ["--exclusive", "--constraint=a&b"]}, {"exclusive": None, "constraint": "a&b"}),
        ({"sbatch_options": ["--comment=a=b"]}, {"comment": "a=b"}),
        ({"sbatch_options": ["--comment="]}, {"comment": ""}),
        ({"requeue": True}, {"requeue": None}),
    ],
)  # fmt: skip
def test_each_setting_of_a_compute_becomes_an_option(compute, expected):
    found = of(compute)
    assert expected == {name: found[name] for name in expected}


def test_an_instance_type_comes_before_the_compute():
    compute = {
        "partition": "cpu",
        "memory_per_node": "8G",
        "cores_per_node": 4,
        "sbatch_options": ["--constraint=any", "--exclusive"],
        "instance_types": {
            "Standard_ND96": {
                "partition": "a100",
                "memory_per_node": "900G",
                "cores_per_node": 96,
                "gpus_per_node": 8,
                "sbatch_options": ["--constraint=nd96"],
            }
        },
    }
    found = of(compute, {"instance_type": "Standard_ND96"}, gpus=8)
    names = ("partition", "mem", "cpus-per-task", "constraint", "exclusive", "gpus-per-node")
    assert [found[name] for name in names] == ["a100", "900G", "96", "nd96", None, "8"]


def test_an_instance_type_that_says_nothing_leaves_the_compute_as_it_is():
    compute = {"partition": "cpu", "instance_types": {"Standard_D2": {}}}
    assert of(compute, {"instance_type": "Standard_D2"})["partition"] == "cpu"


def test_an_instance_type_that_the_compute_does_not_have_is_named_with_those_it_has():
    compute = {"name": "c", "instance_types": {"b": {}, "a": {}}}
    with pytest.raises(PlanError) as error:
        options.check(job(compute, {"instance_type": "x"}))
    (problem,) = error.value.problems
    assert problem.path == "resources.instance_type"
    assert problem.what == "resources.instance_type: compute 'c' has no 'x'"
    assert problem.hint == "it has a, b; instance_types of the compute says what each one is"


def test_more_nodes_than_the_compute_gives_are_refused():
    with pytest.raises(PlanError, match=r"resources\.instance_count: 2 nodes, and compute 'c' gives 1"):
        options.check(job({"name": "c", "max_instances": 1}))
    assert options.check(job({"name": "c", "max_instances": 2})) == []


def test_gpus_are_those_of_the_plan():
    assert of(gpus=4)["gpus-per-node"] == "4"
    assert "gpus-per-node" not in of()


@pytest.mark.parametrize(
    ("compute", "wanted", "cores"),
    [({}, 0, 1), ({}, 7, 4), ({}, 8, 4), ({"cores_per_node": 2}, 8, 2), ({"cores_per_node": 0}, 8, 4)],
)
def test_cores_are_the_computes_else_what_the_ranks_need_a_node(compute, wanted, cores):
    assert options.cores_of(job(compute, cores_wanted=wanted)) == cores


def test_every_rank_of_a_node_has_a_core():
    from drumline.spec.parts.resources import PyTorchDistribution

    made = plan(2, PyTorchDistribution(process_count_per_instance=6), at={"engine": "slurm"})
    assert options.cores_of(made._replace(cores_wanted=0, compute={})) == 6


@pytest.mark.parametrize(
    ("priority", "priorities", "expected"),
    [
        ("", {}, {}),
        ("low", {}, {"nice": "1000"}),
        ("medium", {}, {}),
        ("high", {}, {}),
        ("low", {"low": {"nice": 5}}, {"nice": "5"}),
        ("high", {"high": {"qos": "urgent"}}, {"qos": "urgent"}),
        ("high", {"high": {"qos": "urgent", "partition": "fast", "nice": -3}},
         {"qos": "urgent", "partition": "fast", "nice": "-3"}),
        ("low", {"low": {}}, {}),
        ("medium", {"high": {"qos": "urgent"}}, {}),
    ],
)  # fmt: skip
def test_priority(priority, priorities, expected):
    found = of({"priorities": priorities}, {"priority": priority})
    assert {name: found[name] for name in ("qos", "partition", "nice") if name in found} == expected


def test_high_without_a_name_for_it_is_a_warning():
    (warning,) = options.check(job(asked={"priority": "high"}))
    assert warning.startswith("queue_settings.priority: high is as medium here")
    assert options.check(job({"priorities": {"high": {"qos": "urgent"}}}, {"priority": "high"})) == []


SPOT = {"partition": "main", "qos": "normal", "spot_partition": "spot", "spot_qos": "cheap"}


@pytest.mark.parametrize(
    ("compute", "asked"), [(SPOT, {"job_tier": "spot"}), ({**SPOT, "tier": "low_priority"}, {})]
)
def test_spot_goes_where_the_compute_says_and_may_be_requeued(compute, asked):
    found = of(compute, asked)
    assert (found["partition"], found["qos"]) == ("spot", "cheap")
    assert "requeue" in found
    assert "no-requeue" not in found


def test_a_job_that_is_not_spot_does_not_go_there():
    found = of(SPOT, {"job_tier": "standard"})
    assert (found["partition"], found["qos"]) == ("main", "normal")


def test_spot_without_a_place_for_it_is_a_warning():
    (warning,) = options.check(job(asked={"job_tier": "spot"}))
    assert "the compute names no spot_partition" in warning
    assert options.check(job(SPOT, {"job_tier": "spot"})) == []


@pytest.mark.parametrize(
    ("compute", "asked", "max_restarts", "expected"),
    [
        ({}, {}, 0, False),
        ({}, {}, 1, True),
        ({"tier": "low_priority"}, {}, 0, True),
        ({"requeue": True}, {}, 0, True),
        ({"requeue": False}, {}, 3, False),
        ({"requeue": False}, {"job_tier": "spot"}, 0, False),
        ({"requeue": False}, {"options": {"requeue": True}}, 0, True),
        ({"requeue": True}, {"options": {"requeue": False}}, 0, False),
        ({"requeue": True}, {"options": {"requeue": None}}, 0, True),
        ({"requeue": True}, {"options": {"--requeue": False}}, 0, False),
    ],
)
def test_requeue_is_what_the_job_says_else_the_compute_else_whether_it_can_help(
    compute, asked, max_restarts, expected
):
    made = job(compute, asked, max_restarts=max_restarts)
    found = options.make_options(made, LOG)
    assert options.may_requeue(made) is expected
    assert ("requeue" in found, "no-requeue" in found) == (expected, not expected)


@pytest.mark.parametrize(
    ("timeout_s", "grace_s", "minutes"),
    [(3600.0, 30.0, "66"), (1.0, 0.0, "6"), (60.0, 0.0, "6"), (61.0, 0.0, "7")],
)
def test_the_time_limit_leaves_room_for_what_is_around_the_ranks(timeout_s, grace_s, minutes):
    found = of({"time_limit": "7-0"}, timeout_s=timeout_s, grace_s=grace_s)
    assert found["time"] == minutes


@pytest.mark.parametrize(
    ("time_limit", "minutes"),
    [(None, "181"), ("7-0", "181"), ("2:00:00", "120"), ("1:00:00", "66"), ("UNLIMITED", "181")],
)
@pytest.mark.parametrize("what", ["build", "fetches", "uploads"])
def test_builds_and_downloads_have_time_of_their_own(what, time_limit, minutes):
    """The supervisor keeps the ranks' limit; Slurm's would end a job that has not even begun."""
    compute = {"time_limit": time_limit} if time_limit else {}
    more = {what: plan_parts()[what]}
    assert of(compute, timeout_s=3600.0, grace_s=30.0, **more)["time"] == minutes


def plan_parts():
    fetch = Fetch(
        "inputs.data", "https://example.org/data", "folder", "/home/ann/data", writable=False, mode="ro_mount"
    )
    upload = Upload("outputs.model", "/home/ann/model", "s3://bucket/model", "folder", always=False)
    return {
        "build": Build("uv", "0123", "/home/ann/envs/0123", {}),
        "fetches": (fetch,),
        "uploads": (upload,),
    }


def test_the_ranks_are_told_early_enough_and_not_earlier_than_slurm_can():
    assert of(grace_s=300.0)["signal"] == "B:USR2@330"
    assert of(grace_s=90_000.0)["signal"] == "B:USR2@65535"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"mail_type": "END"}, {"mail-type": "END"}),
        ({"mail-type": "END,FAIL"}, {"mail-type": "END,FAIL"}),
        ({"--mail_user": "ann@example.org"}, {"mail-user": "ann@example.org"}),
        ({"exclusive": True}, {"exclusive": None}),
        ({"exclusive": "user"}, {"exclusive": "user"}),
        ({"time": 90}, {"time": "90"}),
        ({"gres": "gpu:a100:2"}, {"gres": "gpu:a100:2"}),
        ({"partition": "debug"}, {"partition": "debug"}),
        ({"comment": 'say "hi"; rm -rf $(pwd)'}, {"comment": 'say "hi"; rm -rf $(pwd)'}),
        ({"dependency": "afterok:7"}, {"dependency": "afterok:7"}),
    ],
)
def test_the_jobs_own_options_are_taken_as_they_are(given, expected):
    found = own(**given)
    assert expected == {name: found[name] for name in expected}


@pytest.mark.parametrize("value", [False, None])
def test_an_option_that_is_off_is_not_there(value):
    assert "exclusive" not in own(exclusive=value)
    assert "exclusive" in of({"sbatch_options": ["--exclusive"]})


def test_the_jobs_own_come_last():
    compute = {"partition": "a", "time_limit": "10", "sbatch_options": ["--constraint=x"]}
    given = {"partition": "b", "time": "20", "constraint": "y", "nice": 7}
    found = of(compute, {"priority": "low", "options": given})
    assert [found[name] for name in given] == ["b", "20", "y", "7"]


@pytest.mark.parametrize("name", ["mem-per-cpu", "mem-per-gpu", "mem"])
def test_of_the_memory_options_the_one_that_was_written_out_is_there(name):
    """sbatch refuses two of them."""
    compute = {"memory_per_node": "8G"}
    by_compute = of({**compute, "sbatch_options": [f"--{name}=1G"]})
    for found in (of(compute, {"options": {name: "1G"}}), by_compute):
        assert {one: value for one, value in found.items() if one.startswith("mem")} == {name: "1G"}


def test_what_is_drumlines_to_say_is_refused_with_the_reason():
    for (path, what, hint), (name, reason) in zip(
        refused(**dict.fromkeys(options.OURS, "x")), options.OURS.items(), strict=True
    ):
        assert path == f"resources.properties.slurm.{name}"
        assert what == f"{path}: --{name} is not to be set; {reason}"
        assert hint == ""


def test_underscores_and_dashes_do_not_get_around_that():
    assert "--job-name is not to be set" in refused(job_name="x")[0][1]
    assert "--output is not to be set" in refused(**{"--output": "x"})[0][1]
    assert refused(no_requeue=True)[0][1].endswith("write requeue: false")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("partion", "did you mean 'partition'?"),
        ("p", "long names of sbatch's options, without --"),
        ("consraint", "did you mean 'constraint'?"),
        ("x=1 --wrap", "long names of sbatch's options, without --"),
        ("comment=a\n#SBATCH --wrap", "long names of sbatch's options, without --"),
    ],
)
def test_an_option_that_sbatch_does_not_have_is_refused_with_what_is_alike(name, hint):
    ((path, what, found),) = refused(**{name: "1"})
    assert (path, what) == (f"resources.properties.slurm.{name}", f"{path}: sbatch has no option --{name}")
    assert found == hint


def test_a_value_of_several_lines_never_reaches_the_script():
    for value in ("a\nb", "a\n#SBATCH --uid=0", "a\rb", "a\0b", "a\x7fb", "\x1b[2J"):
        ((_, what, _),) = refused(comment=value)
        assert what.endswith("a value is one line of text"), value


@pytest.mark.parametrize("value", [["a", "b"], {"a": 1}])
def test_a_value_is_one(value):
    ((_, what, _),) = refused(constraint=value)
    assert what.endswith("several are written as a,b")


def test_requeue_is_true_or_false():
    for value in ("no", 0, "later"):
        ((_, what, _),) = refused(requeue=value)
        assert what.endswith("it is true or false"), value


def test_every_wrong_option_is_named():
    found = refused(nodes=3, partion="x", comment="a\nb")
    assert [path.rpartition(".")[2] for path, _, _ in found] == ["nodes", "partion", "comment"]


@pytest.mark.parametrize("folder", ["/home/a\nb", "/home/a\\b", "/home/a\x01"])
def test_a_run_folder_that_slurm_could_not_write_to_is_refused(folder):
    """A backslash in the name of an output file is dropped by Slurm, a line's end would end the option."""
    with pytest.raises(PlanError, match="for a character in its name"):
        options.make_options(job(), f"{folder}/system_logs/slurm.log")


def test_a_percent_in_the_run_folder_stands_for_itself():
    assert (
        options.make_options(job(), "/a/50%j/system_logs/slurm.log")["output"]
        == "/a/50%%j/system_logs/slurm.log"
    )


def test_the_options_that_sbatch_has_are_all_known():
    """Source: the long options of sbatch(1) of 22.05."""
    known = """
    account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment constraint container
    contiguous core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency error
    exclude exclusive export export-file extra-node-info get-user-env gid gpu-bind gpu-freq gpus gpus-per-node
    gpus-per-socket gpus-per-task gres gres-flags help hint hold ignore-pbs input job-name kill-on-invalid-dep
    licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nice no-kill
    no-requeue nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket
    open-mode output overcommit oversubscribe parsable partition power prefer priority profile propagate qos quiet
    reboot requeue reservation signal sockets-per-node spread-job switches test-only thread-spec threads-per-core
    time time-min tmp uid usage use-min-nodes verbose version wait wait-all-nodes wckey wrap distribution
    """.split()  # noqa: SIM905 - a list of words
    assert set(known) - options.USERS - set(options.OURS) == {"no-requeue"}
    assert not options.USERS & set(options.OURS)


def test_variables_that_would_speak_for_an_option_of_the_script_are_dropped():
    """sbatch takes them before the lines of its script."""
    found = options.variables_of(of({"partition": "p", "time_limit": "1", "memory_per_node": "1G"}))
    assert {
        "SBATCH_PARTITION", "SBATCH_TIMELIMIT", "SBATCH_MEM_PER_NODE", "SBATCH_MEM_PER_CPU", "SBATCH_MEM_PER_GPU",
        "SBATCH_JOB_NAME", "SBATCH_OUTPUT", "SBATCH_OPEN_MODE", "SBATCH_SIGNAL",
    } <= set(found)  # fmt: skip


def test_variables_that_would_break_a_job_are_dropped_whatever_it_asks_for():
    names = "EXPORT ERROR INPUT CLUSTERS WAIT ARRAY_INX REQUEUE NO_REQUEUE".split()  # noqa: SIM905
    assert {f"SBATCH_{name}" for name in names} <= set(options.variables_of({}))


def test_variables_for_what_the_job_leaves_open_are_kept():
    found = options.variables_of(of())
    assert not {"SBATCH_ACCOUNT", "SBATCH_PARTITION", "SBATCH_QOS", "SBATCH_CONSTRAINT"} & set(found)


def test_what_a_compute_says_of_a_type_is_read_whatever_it_is():
    assert options.instance_type_of({}, "x") == {}
    assert options.instance_type_of({"instance_types": None}, "x") == {}
    assert options.instance_type_of({"instance_types": {"x": None}}, "x") == {}
    assert options.instance_type_of({"instance_types": {"x": {"partition": "p"}}}, "x") == {"partition": "p"}
