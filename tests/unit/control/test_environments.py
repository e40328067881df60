"""What a job's environment asks for, and its digest. Nothing is built here."""

import os
import sys

import pytest
import wheels
from planning import environments as variables_of
from planning import plan

from drumline import command, load_job
from drumline.contract.errors import PlanError, SpecError, UsageError
from drumline.control.assets import asset_verbs
from drumline.control.assets.references import resolve_references
from drumline.control.environments import environment_builds
from drumline.control.environments.environment_builds import TargetMachine, plan_environment
from drumline.control.environments.recipes import recipe_of
from drumline.control.submission import planning
from drumline.entities import Environment
from drumline.spec.parts.resources import PyTorchDistribution
from drumline.spec.reading.source import wrap

HERE = TargetMachine(sys.executable)
PIP = {
    "dependencies": [
        "python=3.11",
        "pip",
        {"pip": ["torch==2.4.0", "numpy>=1.26,<3", "a[b]; sys_platform == 'x'"]},
    ]
}


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch, tmp_path):
    """No containers, and no conda, whatever this machine has."""
    monkeypatch.setenv("DRUMLINE_CONTAINER", "none")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("MAMBA_EXE", "CONDA_EXE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("drumline.staging.environments.conda._PLACES", ())


def asked(content, folder="/nowhere"):
    recipe, problems = recipe_of(wrap(content), str(folder), "environment.conda_file")
    assert problems == []
    return recipe


def refused(content, folder="/nowhere"):
    _, problems = recipe_of(wrap(content), str(folder), "e")
    return [(one.path, one.what, one.hint) for one in problems]


def built(content, machine=HERE, **fields):
    return plan_environment(Environment(image="ubuntu", conda_file=content, **fields), machine).build


# what a conda file says


def test_pip_packages_and_a_python_are_for_uv():
    recipe = asked(PIP)
    assert (recipe.python, recipe.of_conda) == ("3.11", ())
    assert recipe.of_pip == ("torch==2.4.0", "numpy>=1.26,<3", "a[b]; sys_platform == 'x'")
    made = built(PIP)
    assert made.kind == "uv"
    assert made.recipe["requirements"] == list(recipe.of_pip)


@pytest.mark.parametrize(
    ("said", "python"),
    [
        ("python=3.10", "3.10"),
        ("python = 3.10", "3.10"),
        ("python==3.10.4", "3.10.4"),
        ("python=3.10.*", "3.10"),
        ("python 3.10", "3.10"),
        ("python=3.10=h12debd9_1", "3.10"),
        ("conda-forge::python>=3.9,<3.12", ">=3.9,<3.12"),
        ("python", ""),
    ],
)
def test_a_python_is_named_in_condas_way(said, python):
    assert asked({"dependencies": [said]}).python == python


def test_what_pip_and_conda_both_have_is_installed_by_pip():
    recipe = asked({"dependencies": ["pip=23.1", "setuptools<60", "wheel", {"pip": ["x"]}]})
    assert recipe.of_conda == ()
    assert recipe.of_pip == ("pip==23.1.*", "setuptools<60", "wheel", "x")


def test_files_that_a_line_names_are_taken_in(tmp_path):
    inner = tmp_path / "inner"
    wheel = wheels.wheel(tmp_path, "local")
    inner.mkdir()
    (tmp_path / "all.txt").write_text("# all\ntorch  # the framework\n-r inner/more.txt\n-c limits.txt\n")
    (inner / "more.txt").write_text(f"numpy \\\n  >=1.26\n../{wheel.name}\nhere @ ../{wheel.name}\n")
    (tmp_path / "limits.txt").write_text("numpy<2\n")
    recipe = asked({"dependencies": [{"pip": ["-r all.txt", "-f wheels", "--pre"]}]}, tmp_path)
    assert recipe.of_pip == (
        "torch",
        "numpy   >=1.26",
        str(wheel),
        f"here @ file://{wheel}",
        f"--find-links {tmp_path}/wheels",
        "--pre",
    )
    assert recipe.constraints == ("numpy<2",)
    assert list(recipe.files) == [str(wheel)]


@pytest.mark.parametrize(
    ("line", "what", "hint"),
    [
        ("torch=2.0", "'torch=2.0' is not a requirement", "torch==2.0"),
        ("a b", "'a b' is not a requirement", "such as torch==2.4.0"),
        ("--upgrade x", "'--upgrade' is no option", ""),
        ("-e .", "cannot be installed in place", "pip wheel"),
        ("/", "/ is a folder", "pip wheel"),
        ("./none.whl", "/nowhere/none.whl: no such file", ""),
        ("-r none.txt", "cannot read /nowhere/none.txt: no such file", ""),
        ("-r https://host/x.txt", "'https://host/x.txt' is not fetched", ""),
        ("--index-url https://me:secret@host/simple", "the address holds a password", "${NAME}"),
        ("x @ https://me:secret@host/x.whl", "the address holds a password", "${NAME}"),
        ("git+https://ghp_secret@github.com/a/b", "the address holds a password", "${NAME}"),
        ("x @ https://secretsecretsecretsecret@host/x.whl", "the address holds a password", "${NAME}"),
        (
            "x @ https://a.blob.core.windows.net/c/x.whl?sv=1&sig=secret",
            "the address holds a password",
            "${NAME}",
        ),
        ("-r /dev/zero", "cannot read /dev/zero: it is not a file", ""),
        ("x\x1b[2J", "holds a control character", ""),
    ],
)
def test_what_pip_cannot_install_here_is_refused_at_once(line, what, hint):
    ((path, said, hinted),) = refused({"dependencies": [{"pip": ["ok", line]}]})
    assert path == "e.dependencies.0.pip.1"
    assert what in said
    assert hint in hinted
    assert "secret" not in said


@pytest.mark.parametrize(
    ("content", "path", "what"),
    [
        ({"dependancies": []}, "e.dependancies", "unknown key 'dependancies'"),
        ({"dependencies": "torch"}, "e.dependencies", "must be a list"),
        ({"dependencies": [{"npm": ["x"]}]}, "e.dependencies.0.npm", "unknown key 'npm'"),
        ({"dependencies": [3]}, "e.dependencies.0", "3 is not a package of conda"),
        ({"dependencies": ["--file=x"]}, "e.dependencies.0", "is not a package of conda"),
        ({"dependencies": ["python=three"]}, "e.dependencies.0", "is no version of Python"),
        ({"channels": ["https://me:secret@host/c"]}, "e.channels.0", "the address holds a password"),
        ({"variables": {"a-b": 1}}, "e.variables", "'a-b' cannot be a variable's name"),
    ],
)
def test_what_is_no_conda_file_is_refused(content, path, what):
    ((at, said, _),) = refused(content)
    assert (at, what in said) == (path, True)


@pytest.mark.parametrize(
    "line",
    [
        "git+https://${TOKEN}@github.com/a/b",
        "git+ssh://git@github.com/a/b",
        "--index-url https://oauth2accesstoken@host/simple",
        "x @ https://host/x.whl?sig=${SIG}",
    ],
)
def test_a_name_is_no_password(line):
    assert len(asked({"dependencies": [{"pip": [line]}]}).of_pip) == 1


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "zero.whl").symlink_to("/dev/zero")
    lines = ["-r pipe.txt", "./zero.whl"]
    said = [what for _, what, _ in refused({"dependencies": [{"pip": lines}]}, tmp_path)]
    assert [one.endswith("it is not a file") for one in said] == [True, True]


def test_a_password_of_a_channel_is_not_shown(tmp_path):
    (tmp_path / "conda.yml").write_text("channels: ['https://me:secret@host/ch']\n")
    with pytest.raises(PlanError) as refused:
        built(str(tmp_path / "conda.yml"))
    assert "secret" not in str(refused.value)


def test_variables_of_a_conda_file_leave_a_rank_its_coordinates():
    made = plan(
        distribution=PyTorchDistribution(process_count_per_instance=1),
        at={"variables": {"RANK": "9", "A": "b"}},
    )
    assert [(one["RANK"], one["A"]) for one in variables_of(made).values()] == [("0", "b"), ("1", "b")]
    assert "environment.conda_file.variables.RANK: not used; it is the rank's own coordinate" in made.warnings


def test_a_circle_of_files_is_told(tmp_path):
    (tmp_path / "a.txt").write_text("-r b.txt\n")
    (tmp_path / "b.txt").write_text("\n-r a.txt\n")
    _, (problem,) = recipe_of(wrap({"dependencies": [{"pip": ["-r a.txt"]}]}), str(tmp_path), "e")
    assert (problem.file, problem.line) == (str(tmp_path / "b.txt"), 2)
    assert "leads back to itself" in problem.what


def test_mistakes_have_file_and_line(tmp_path):
    (tmp_path / "conda.yml").write_text("dependencies:\n- python=3.11\n- pip:\n  - torch=2.0\n")
    (tmp_path / "job.yml").write_text("command: x\nenvironment:\n  image: y\n  conda_file: conda.yml\n")
    with pytest.raises(PlanError) as caught:
        planning.plan(load_job(tmp_path / "job.yml"))
    (problem,) = caught.value.problems
    assert (os.path.basename(problem.file), problem.line, problem.column) == ("conda.yml", 4, 5)
    (tmp_path / "job.yml").write_text(
        "command: x\nenvironment:\n  image: y\n  conda_file:\n    dependencies:\n    - pip: [torch=2.0]\n"
    )
    with pytest.raises(PlanError) as caught:
        planning.plan(load_job(tmp_path / "job.yml"))
    (problem,) = caught.value.problems
    assert (os.path.basename(problem.file), problem.line) == ("job.yml", 6)


# the digest


def test_the_same_packages_have_the_same_digest_however_they_are_written(tmp_path):
    (tmp_path / "r.txt").write_text("numpy>=1.26,<3\na[b]; sys_platform == 'x'\n")
    other = {
        "name": "b",
        "dependencies": [{"pip": ["-r r.txt", "torch==2.4.0  # here"]}, "pip", "python=3.11"],
    }
    assert built(other, base_path=str(tmp_path)).digest == built(PIP).digest


@pytest.mark.parametrize("other", [["x==2"], ["x==1", "--pre"], ["x==1", "y"], []])
def test_other_packages_have_another(other):
    first = built({"dependencies": [{"pip": ["x==1"]}]})
    assert built({"dependencies": [{"pip": other}]}).digest != first.digest


def test_a_wheel_is_known_by_its_content(tmp_path):
    path = wheels.wheel(tmp_path, "local")
    content = {"dependencies": [{"pip": [str(path)]}]}
    before = built(content).digest
    assert built(content).digest == before
    wheels.wheel(tmp_path, "local", requires=("more",))
    assert built(content).digest != before


def test_without_a_python_it_is_that_at_hand():
    made = built({"dependencies": [{"pip": ["x"]}]})
    assert made.recipe["base"] == os.path.realpath(sys.executable)
    far = TargetMachine("/opt/other/bin/python", is_local=False, compute={"folder": "/shared"})
    there = built({"dependencies": [{"pip": ["x"]}]}, far)
    assert (there.recipe["base"], there.prefix) == (
        "/opt/other/bin/python",
        f"/shared/environments/{there.digest}",
    )
    assert there.digest != made.digest


def test_the_python_at_hand_is_taken_where_it_fits():
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert built({"dependencies": [f"python={here}"]}).recipe["base"] == os.path.realpath(sys.executable)
    assert built({"dependencies": ["python=3.6"]}).recipe["base"] == ""


def test_environments_are_shared_by_workspaces(drumline_home):
    from drumline.contract.folder import workspace

    with workspace("w"):
        made = built(PIP)
    assert made.prefix == f"{drumline_home}/environments/{made.digest}"


# conda


def test_a_package_of_conda_needs_a_conda(tmp_path):
    content = {"channels": ["conda-forge"], "dependencies": ["numpy=1.26", {"pip": ["x"]}]}
    with pytest.raises(PlanError) as caught:
        built(content)
    assert "'numpy=1.26' is a package of conda, and there is no micromamba, mamba or conda here" in str(
        caught.value
    )
    assert "DRUMLINE_ENVIRONMENT=current" in caught.value.hint
    (tmp_path / "mamba").write_text("#!/bin/sh\n")
    (tmp_path / "mamba").chmod(0o755)
    os.environ["MAMBA_EXE"] = str(tmp_path / "mamba")
    made = built(content)
    here = f"python={sys.version_info[0]}.{sys.version_info[1]}"
    assert (made.kind, made.recipe["tool"]) == ("conda", str(tmp_path / "mamba"))
    assert made.recipe["packages"] == [here, "numpy=1.26", "pip"]
    assert made.recipe["requirements"] == ["x"]


def test_a_cluster_may_have_the_conda_that_this_machine_has_not():
    assert (
        built({"dependencies": ["numpy"]}, TargetMachine("/usr/bin/python3", is_local=False)).kind == "conda"
    )


# what wins


def test_a_python_of_its_own_wins():
    job = command(command="x", environment=Environment(image="i", conda_file=PIP, python=sys.executable))
    known = resolve_references(job)
    assert (known.build, known.interpreter) == (None, sys.executable)


def test_current_wins_over_all(monkeypatch):
    job = command(command="x", environment=Environment(image="i", conda_file={"dependencies": ["numpy"]}))
    with pytest.raises(PlanError):
        resolve_references(job)
    job.drumline = {"environment": "current"}
    assert (resolve_references(job).build, resolve_references(job).interpreter) == (None, "")
    job.drumline = {}
    monkeypatch.setenv(environment_builds.VARIABLE, "current")
    assert resolve_references(job).build is None
    monkeypatch.setenv(environment_builds.VARIABLE, "another")
    with pytest.raises(PlanError, match="can be 'current' alone"):
        resolve_references(job)


def test_an_image_alone_is_not_built():
    job = command(command="x", environment=Environment(image="ubuntu"))
    known = resolve_references(job)
    assert known.build is None
    (warning,) = known.warnings
    assert warning.startswith("environment.image: ubuntu is not used")
    assert warning.endswith(f"the command runs with {sys.executable} first on its PATH")


def test_the_plan_has_the_build_and_what_activation_sets():
    plan = planning.plan(
        command(command="x", environment=Environment(image="i", conda_file={**PIP, "variables": {"A": 1}}))
    )
    assert plan.build is not None
    assert plan.user_env["VIRTUAL_ENV"] == plan.build.prefix
    assert plan.user_env["A"] == "1"
    assert plan.user_env["PATH"].startswith(f"{plan.build.prefix}/bin:")
    assert plan.resolved["environment.digest"] == plan.build.digest
    assert plan.unset[-1] == "CONDA_DEFAULT_ENV"
    assert type(plan).from_json(plan.to_json()) == plan


def test_an_asset_keeps_what_its_conda_file_leads_to(tmp_path):
    (tmp_path / "more.txt").write_text("torch\nnumpy\n")
    (tmp_path / "conda.yml").write_text("dependencies:\n- pip: [-r more.txt, x]\n")
    made = asset_verbs.create(Environment(name="e", image="i", conda_file=str(tmp_path / "conda.yml")))
    (tmp_path / "more.txt").unlink()
    assert made.conda_file == {"dependencies": [{"pip": ["torch", "numpy", "x"]}]}
    assert resolve_references(command(command="x", environment="azureml:e@latest")).build.name == "e:1"
    (tmp_path / "conda.yml").write_text("dependencies:\n- pip: [-r gone.txt]\n")
    with pytest.raises(SpecError, match="cannot read"):
        asset_verbs.create(Environment(name="f", image="i", conda_file=str(tmp_path / "conda.yml")))


def test_there_must_be_something_to_build():
    from drumline.control.environments import environment_builds

    with pytest.raises(UsageError, match="there is nothing to build"):
        environment_builds.build(Environment(image="i"), 2)
    assert environment_builds.state_of(Environment(image="i")) == {}
    state = environment_builds.state_of(Environment(image="i", conda_file={"dependencies": ["numpy"]}))
    assert state["is_ready"] is False
    assert "there is no micromamba" in state["reason"]


def test_a_step_is_run_again_when_its_packages_are_others(tmp_path):
    from drumline.control.driver.reuse import fingerprint_of

    def key_of(job):
        return fingerprint_of(job).key

    (tmp_path / "r.txt").write_text("x==1\n")
    (tmp_path / "conda.yml").write_text("dependencies: [{pip: [-r r.txt]}]\n")
    job = command(command="x", environment=Environment(image="i", conda_file=str(tmp_path / "conda.yml")))
    before = key_of(job)
    assert before
    assert key_of(job) == before
    (tmp_path / "r.txt").write_text("x==2\n")
    assert key_of(job) != before
    (tmp_path / "r.txt").write_text("x==1\n")
    assert key_of(job) == before
    (tmp_path / "conda.yml").write_text("dependencies: [{pip: [-r r.txt]}]\nvariables: {A: b}\n")
    assert key_of(job) != before
