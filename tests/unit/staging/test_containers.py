"""Which engine there is, and what goes into an image of this machine's own."""

import os
import subprocess
from pathlib import Path

import pytest

from drumline.contract.errors import PlanError, UsageError
from drumline.contract.plan import Build
from drumline.staging.environments import containers, image_recipes
from drumline.staging.environments.tool import BuildError


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Makes programs that answer, or not, on a PATH with nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("DRUMLINE_CONTAINER")
    containers._find_working_engine.cache_clear()

    def make(name, answer="1.0", code=0):
        program = folder / name
        program.write_text(f"#!/bin/sh\necho {answer}\nexit {code}\n")
        program.chmod(0o755)

    yield make
    containers._find_working_engine.cache_clear()


def test_the_first_engine_that_works_is_taken(programs, monkeypatch):
    programs("docker")
    programs("singularity")
    programs("podman", code=125)
    assert containers.find_engine({}) == "apptainer"
    programs("podman")
    assert containers.find_engine({}) == "apptainer", "it is asked once a process"
    containers._find_working_engine.cache_clear()
    assert containers.find_engine({}) == "podman"
    assert containers.find_engine({"type": "slurm"}) == "apptainer"
    monkeypatch.setenv("DRUMLINE_CONTAINER", "docker")
    assert (containers.find_engine({}), containers.explain_no_engine({})) == ("docker", "")
    monkeypatch.setenv("DRUMLINE_CONTAINER", "lxc")
    with pytest.raises(UsageError, match="DRUMLINE_CONTAINER is 'lxc'"):
        containers.find_engine({})


def test_a_docker_without_its_daemon_is_none(programs):
    programs("docker", answer="", code=1)
    assert containers.find_engine({}) == ""
    assert containers.explain_no_engine({}) == "docker is here, but its daemon does not answer"
    wanted = {"image": "img:1", "context": "", "dockerfile": "", "conda": None}
    assert containers.plan_image_build(wanted, compute={}, root="/home/ann", name="") is None


def test_nothing_there_is_said(programs):
    assert containers.explain_no_engine({}) == "there is no podman, apptainer or docker here"


@pytest.fixture
def built(programs):
    programs("podman")

    def build(**wanted):
        known = {"image": "", "context": "", "dockerfile": "", "conda": None, **wanted}
        return containers.plan_image_build(known, compute={}, root="/home/ann", name="env:1")

    return build


def test_a_build_is_known_by_its_content(built, tmp_path):
    assert built(image="img:1") == built(image="img:1")
    assert built(image="img:1").digest != built(image="img:2").digest
    assert built(image="img:1").prefix.startswith("/home/ann/environments/")
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text("FROM img:1\n")
    (context / "link").symlink_to("nowhere")
    os.mkfifo(context / "pipe")
    first = built(context=str(context))
    assert first.recipe["image"] == f"localhost/drumline:{first.digest[:32]}"
    image_recipes.check_unchanged(first.recipe)
    (context / "more").write_text("x")
    assert built(context=str(context)).digest != first.digest
    with pytest.raises(BuildError, match="has changed since the job was submitted"):
        image_recipes.check_unchanged(first.recipe)


@pytest.mark.parametrize("dockerfile", ["none", "../Dockerfile", "/etc/passwd"])
def test_a_dockerfile_is_below_its_context(built, tmp_path, dockerfile):
    (tmp_path / "context").mkdir()
    (tmp_path / "Dockerfile").write_text("")
    with pytest.raises(PlanError, match=r"environment\.build\.dockerfile_path: "):
        built(context=str(tmp_path / "context"), dockerfile=dockerfile)


@pytest.mark.parametrize("image", ["--privileged", "a b", "a\nb", ""])
def test_an_image_is_a_name(built, image):
    with pytest.raises(PlanError, match="is not a valid image name"):
        built(image=image)


CONDA: dict[str, object] = {
    "dependencies": ["python=3.11", "pip=24", "cudatoolkit>=11", {"pip": ["torch==2.*", "rich"]}]
}


def test_packages_go_on_top_of_an_image(built, tmp_path):
    build = built(image="img:1", conda=CONDA)
    assert (build.recipe["pip"], build.recipe["version"]) == (["torch==2.*", "rich"], "3.11")
    folder = image_recipes.write_conda_context(
        build._replace(prefix=str(tmp_path)), "img:1", has_settings=True
    )
    assert not list(Path(folder).glob("files/*"))
    dockerfile = Path(folder, "Dockerfile").read_text()
    assert dockerfile.startswith("FROM img:1\n")
    assert "--mount=type=secret,id=pip" in dockerfile
    done = subprocess.run(
        ["/bin/sh", "-n", f"{folder}/install.sh"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "which is needed for: cudatoolkit>=11" in Path(folder, "install.sh").read_text()


def test_what_requirements_name_by_path_goes_along(built, tmp_path):
    wheel = tmp_path / "né" / "a-1-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_text("wheel")
    conda = {
        "dependencies": [{"pip": [f"{wheel}[x]", "b"]}],
        "constraints": ["b<2"],
        "files": {str(wheel): "digest"},
    }
    build = built(image="img:1", conda=conda)
    folder = Path(image_recipes.write_conda_context(build._replace(prefix=str(tmp_path / "e")), "img:1"))
    inside = "/tmp/drumline/files/0/a-1-py3-none-any.whl"
    assert (folder / "requirements.txt").read_text() == f"{inside}[x]\nb\n"
    assert inside in (folder / "conda.json.yml").read_text()
    assert (folder / "files" / "0" / wheel.name).read_text() == "wheel"
    assert (folder / "constraints.txt").read_text() == "b<2\n"
    conda["files"] = {str(wheel): "another"}
    assert built(image="img:1", conda=conda).digest != build.digest


def test_indexes_go_along_unless_they_are_files_of_this_machine(tmp_path):
    environ = {
        "PIP_INDEX_URL": "https://me:secret@index/simple",
        "PIP_EXTRA_INDEX_URL": "file:///opt/simple",
    }
    text = image_recipes.render_pip_settings(environ)
    assert text == "[global]\nindex-url = https://me:secret@index/simple\n"
    with image_recipes.mount_secret(str(tmp_path), text) as words:
        assert words == ["--secret", f"id=pip,src={tmp_path}/pip.conf"]
        assert os.stat(tmp_path / "pip.conf").st_mode & 0o777 == 0o600
    assert not (tmp_path / "pip.conf").exists()


def test_apptainer_has_its_image_in_a_file(programs):
    programs("apptainer")
    known = {"image": "ubuntu:22.04", "context": "", "dockerfile": "", "conda": None}
    build = containers.plan_image_build(known, compute={}, root="/home/ann", name="")
    assert build.recipe == {"image": f"{build.prefix}/image.sif", "source": "ubuntu:22.04"}
    assert containers.explain_no_engine({}) == "apptainer alone makes no images"
    for more in ({"conda": CONDA}, {"context": "/c"}):
        assert containers.plan_image_build({**known, **more}, compute={}, root="/", name="") is None


def test_a_failed_step_is_told_in_its_own_words(tmp_path, programs, monkeypatch):
    from drumline.staging.environments.tool import Tool

    program = tmp_path / "bin" / "podman"
    program.write_text(
        "#!/bin/sh\necho 'STEP 2/2: RUN make'\necho 'make: no rule'\n"
        "echo 'Error: building at STEP \"RUN make\": while running runtime: exit status 2'\nexit 2\n"
    )
    program.chmod(0o755)
    (tmp_path / "Dockerfile").write_text("")
    content = image_recipes.digest_folder(str(tmp_path))
    recipe = {
        "image": "i:1",
        "context": str(tmp_path),
        "dockerfile": "Dockerfile",
        "content": content,
        "is_made": True,
    }
    with pytest.raises(BuildError, match="RUN make: make: no rule") as failed:
        containers.make(
            Build("podman", "d", str(tmp_path), recipe), Tool(os.open(os.devnull, os.O_WRONLY), print)
        )
    assert "STEP" not in failed.value.message
