"""
Images of jobs' environments: the container engine of this machine, and the image in it before the ranks start.

An image by name is used where the engine has it, and pulled where it has not. A build context, or conda packages on top
of an image, become an image of this machine's own, named by the digest of all that goes into it.
Sources: podman-pull(1), podman-build(1), https://docs.docker.com/reference/cli/docker/buildx/build/,
https://apptainer.org/docs/user/main/build_a_container.html
"""

from __future__ import annotations

import functools
import json
import os
import re
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError, UsageError
from drumline.contract.folder import write_whole
from drumline.contract.plan import Build
from drumline.contract.record import NamedTuple
from drumline.staging.environments import image_recipes
from drumline.staging.environments import tool as tools
from drumline.staging.environments.environment_folder import LOCK_FILE, prefix_of
from drumline.staging.environments.tool import BuildError, summarize_output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.staging.environments.tool import Tool

KINDS = ("podman", "apptainer", "docker")
CHOICE = "DRUMLINE_CONTAINER"

_PROGRAMS = {"podman": ("podman",), "apptainer": ("apptainer", "singularity"), "docker": ("docker",)}
_PROBES = {
    "podman": ("info", "--format", "{{.Host.OCIRuntime.Name}}"),
    "apptainer": ("--version",),
    "docker": ("version", "--format", "{{.Server.Version}}"),
}
"""What answers only where containers can be run: of docker the daemon."""

_PROBE_LIMIT_S = 10.0
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,500}")
_WITH_SCHEME = re.compile(r"(docker|oras|library|shub|docker-archive|oci|oci-archive)://?.*")
_BUILD_MESSAGE = re.compile(
    r"STEP |time=|--> |COMMIT |Error: building at STEP|ERROR: failed to |#\d+ (?:ERROR|DONE|\[)|-+$"
)
_STEP_PREFIX = re.compile(r"#\d+ (?:\d+\.\d+ )?")
_AT_STEP = re.compile(r'building at STEP "(.{1,200})":')
"""Lines of podman's and docker's own between those of the programs that they run."""

_NO_REGISTRY = "no unqualified-search registries are defined"
_OUR_IMAGE = "drumline"
_SIF = "image.sif"


class _EngineProbe(NamedTuple):
    kind: str
    why_not: str


def find_engine(compute: Mapping[str, Any] | None = None) -> str:
    """
    Return ``podman``, ``apptainer`` or ``docker``, the one that works here; empty: none does.

    On a cluster apptainer comes first: its images are files that all nodes see. ``DRUMLINE_CONTAINER`` chooses one, or
    ``none``. Asked once a process.

    Blocks, for a fifth of a second, and ten at most. Raises UsageError for another word in that variable.
    """
    return _find_working_engine(_order_engines(compute)).kind


def explain_no_engine(compute: Mapping[str, Any] | None = None) -> str:
    """Return why ``plan_image_build`` returns None, as a clause; empty if it never does."""
    found = _find_working_engine(_order_engines(compute))
    return "apptainer alone makes no images" if found.kind == "apptainer" else found.why_not


def _order_engines(compute: Mapping[str, Any] | None) -> tuple[str, ...]:
    chosen = os.environ.get(CHOICE, "")
    if chosen == "none":
        return ()
    if chosen and chosen not in KINDS:
        raise UsageError(f"{CHOICE} is {chosen!r}", f"one of {', '.join(KINDS)}, or none")
    if chosen:
        return (chosen,)
    on_cluster = (compute or {}).get("type", "local") != "local"
    return tuple(sorted(KINDS, key=lambda kind: kind != "apptainer")) if on_cluster else KINDS


@functools.lru_cache(maxsize=8)
def _find_working_engine(order: tuple[str, ...]) -> _EngineProbe:
    if not order:
        return _EngineProbe("", f"{CHOICE} is none")
    silent = []
    for kind in order:
        program = program_of(kind)
        if program and _answers(program, _PROBES[kind]):
            return _EngineProbe(kind, "")
        if program:
            silent.append(kind)
    if not silent:
        return _EngineProbe(
            "", f"there is no {', '.join(order[:-1])}{' or ' if order[1:] else ''}{order[-1]} here"
        )
    what = "its daemon does not answer" if silent[-1] == "docker" else "it does not work"
    return _EngineProbe("", f"{silent[-1]} is here, but {what}")


def program_of(kind: str) -> str:
    """Return the path of its client; empty if none is on the PATH."""
    import shutil

    return next(filter(None, map(shutil.which, _PROGRAMS[kind])), "")


def _answers(program: str, words: tuple[str, ...]) -> bool:
    import subprocess

    try:
        done = subprocess.run(  # noqa: S603 - a program of one of these names on the user's PATH
            [program, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and bool(done.stdout.strip())


def plan_image_build(
    wanted: Mapping[str, Any], *, compute: Mapping[str, Any], root: str, name: str
) -> Build | None:
    """
    Plan the build of an image; None if nothing here can do that. Raises PlanError for what no engine could build.

    ``wanted``: image; context, an absolute folder, and dockerfile, relative to it; conda, a conda file as a mapping,
    with ``constraints`` for pip and ``files``, the digests of what its lines for pip name by path. ``root``: the home
    of the job. Raises UsageError as find_engine.
    """
    kind = find_engine(compute)
    image, context, conda = wanted.get("image") or "", wanted.get("context") or "", wanted.get("conda")
    if not kind or (kind == "apptainer" and (context or conda)):
        return None

    recipe: dict[str, Any] = {"image": image}
    if context:
        recipe = image_recipes.read_context(context, wanted.get("dockerfile") or "Dockerfile")
    else:
        _check_image(image, kind)
    if conda:
        recipe |= image_recipes.read_conda(conda)
    digest = image_recipes.hash_recipe({"kind": kind, **recipe})
    prefix = prefix_of(root, digest)
    if kind == "apptainer":
        recipe |= {"source": recipe["image"], "image": os.path.join(prefix, _SIF)}
    elif context or conda:
        recipe |= {"base": recipe.get("image", ""), "is_made": True}
        recipe["image"] = f"localhost/{_OUR_IMAGE}:{digest[:32]}"
    return Build(kind, digest, prefix, recipe, name)


def _check_image(image: str, kind: str) -> None:
    if kind == "apptainer" and (_WITH_SCHEME.fullmatch(image) or os.path.isabs(image)):
        return
    if not _IMAGE.fullmatch(image):
        raise PlanError(
            f"environment.image: {image!r} is not a valid image name",
            "such as mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04",
            path="environment.image",
        )


def make(build: Build, tool: Tool) -> None:
    """
    Make the image available to the engine. ``build.prefix`` is there, empty and ours alone. Blocks.

    Raises BuildError.
    """
    program = program_of(build.kind)
    if not program:
        raise BuildError(f"{build.kind} is not on the PATH of the node that prepares the job")
    if build.kind == "apptainer":
        _pull_image_file(build, program, tool)
        return
    if build.recipe.get("is_made"):
        _build_own_image(build, program, tool)
    elif not _has_local_image(program, build.recipe["image"]):
        image = full_name(build.recipe["image"]) if build.kind == "podman" else build.recipe["image"]
        tool.say(f"pulling {image} with {build.kind}")
        tool.run([program, "pull", image])
    described = tool.output(
        [program, "image", "inspect", "--format", "{{.Id}}", build.recipe["image"]]
    ).strip()
    _write_lock(build, f"{described.removeprefix('sha256:')}\n")


def full_name(image: str) -> str:
    """
    Add the registry that docker would use: podman knows none unless its settings name one.

    >>> full_name("ubuntu:22.04"), full_name("pytorch/pytorch"), full_name("ghcr.io/a/b")
    ('docker.io/library/ubuntu:22.04', 'docker.io/pytorch/pytorch', 'ghcr.io/a/b')
    """
    first, slash, _ = image.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"


def _build_own_image(build: Build, program: str, tool: Tool) -> None:
    image = build.recipe["image"]
    if build.recipe.get("context"):
        image_recipes.check_unchanged(build.recipe)
        packages = build.recipe.get("conda")
        target = f"{image}-base" if packages else image
        tool.say(f"building {build.recipe['context']} with {build.kind}")
        file = os.path.join(build.recipe["context"], build.recipe["dockerfile"])
        _build(build, program, tool, "--file", file, "--tag", target, build.recipe["context"])
        base = target
    else:
        base = build.recipe["base"]
        if build.kind == "podman" and not _has_local_image(program, base):
            base = full_name(base)
    if build.recipe.get("conda"):
        tool.say(f"installing packages on top of {build.recipe['base'] or build.recipe['context']}")
        settings = image_recipes.render_pip_settings(os.environ)
        folder = image_recipes.write_conda_context(build, base, has_settings=bool(settings))
        with image_recipes.mount_secret(build.prefix, settings) as secrets:
            _build(build, program, tool, *secrets, "--tag", image, folder)


def _build(build: Build, program: str, tool: Tool, *words: str) -> None:
    argv = [program, "build", "--network", "host", "--label", "drumline=environment", *words]
    try:
        try:
            tool.run(argv)
        except tools.ToolError as error:
            if _NO_REGISTRY not in error.output:
                raise
            tool.say(
                "building it with docker.io for images without a registry, of which podman's settings name none"
            )
            tool.run(argv, env={**os.environ, "CONTAINERS_REGISTRIES_CONF": _write_registries(build)})
    except tools.ToolError as error:
        # What the step that failed has said comes before what the engine makes of it.
        said = [
            _STEP_PREFIX.sub("", line) for line in error.output.splitlines() if not _BUILD_MESSAGE.match(line)
        ]
        failed = _AT_STEP.search(error.output)
        why = summarize_output("\n".join(said))
        is_users = bool(why) and "--file" in argv
        what = f"{failed[1].strip()}: {why}" if failed and is_users else why or error.message
        raise tools.BuildError(what) from error


def _write_registries(build: Build) -> str:
    """Write a file with docker's one registry, and return its path."""
    path = os.path.join(build.prefix, "registries.conf")
    write_whole(path, 'unqualified-search-registries = ["docker.io"]\n')
    return path


def _pull_image_file(build: Build, program: str, tool: Tool) -> None:
    source = build.recipe["source"]
    if not _WITH_SCHEME.fullmatch(source) and not os.path.isabs(source):
        source = f"docker://{source}"
    tool.say(f"pulling {source} with {build.kind}")
    tool.run([program, "build", "--force", build.recipe["image"], source])
    size = os.stat(build.recipe["image"]).st_size
    _write_lock(build, f"{source} {size} bytes\n")


def _write_lock(build: Build, what: str) -> None:
    text = {
        key: value for key, value in build.recipe.items() if key in ("image", "base", "source", "context")
    }
    write_whole(os.path.join(build.prefix, LOCK_FILE), what + json.dumps(text, indent=1) + "\n")


def has_image(build: Build) -> bool:
    """Return whether the engine still has the image; True if it cannot be asked. Takes 50 ms."""
    if build.kind == "apptainer":
        return os.path.exists(build.recipe["image"])
    program = program_of(build.kind)
    return not program or _has_local_image(program, build.recipe["image"])


def _has_local_image(program: str, image: str) -> bool:
    return _answers(program, ("image", "inspect", "--format", "{{.Id}}", image))
