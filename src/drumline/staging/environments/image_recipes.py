"""Recipes of images that are built here: a build context, or conda packages on top of another image."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError
from drumline.contract.folder import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from drumline.contract.plan import Build

_CHUNK = 1 << 20
_MOST_FILES = 100_000
_WHERE = "environment.build.path"
_FOLDER = "/tmp/drumline"  # noqa: S108 - in an image
_PREFIX = "/opt/drumline-environment"
_PYTHON = re.compile(r"python\s*(?:={1,2}\s*([0-9]+(?:\.[0-9]+)*)(?:\.\*)?)?\s*")

_REACHED = ("http://", "https://")
_WITH_SETTINGS = "--mount=type=secret,id=pip,target=/tmp/pip.conf PIP_CONFIG_FILE=/tmp/pip.conf "
_INSTALL = """\
set -e
cd {folder}
export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore
[ ! -s constraints.txt ] || export PIP_CONSTRAINT={folder}/constraints.txt
for tool in micromamba mamba conda; do
    command -v "$tool" >/dev/null 2>&1 || continue
    words="env create"
    [ "$tool" != micromamba ] || words="create --yes"
    "$tool" $words --prefix {prefix} --file conda.json.yml
    exit 0
done
if [ -n "{others}" ]; then
    echo "the image has no conda, mamba or micromamba, which is needed for: {others}" >&2
    exit 1
fi
python=$(command -v python || command -v python3) || {{
    echo "the image has no Python to install packages with" >&2
    exit 1
}}
has=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
case "$has." in
    "{version}"*) ;;
    *) echo "the image has Python $has, and conda_file asks for {version}" >&2; exit 1 ;;
esac
[ ! -s requirements.txt ] || "$python" -m pip install --no-cache-dir -r requirements.txt
"""


def hash_recipe(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_context(context: str, dockerfile: str) -> dict[str, Any]:
    """Return the recipe of a build context. Raises PlanError if a folder or file cannot be read."""
    file = os.path.normpath(os.path.join(context, dockerfile))
    if os.path.isabs(dockerfile) or not file.startswith(os.path.join(context, "")):
        what = f"environment.build.dockerfile_path: {dockerfile!r} is not below the build context"
        raise PlanError(what, path="environment.build.dockerfile_path")
    if not os.path.isfile(file):
        what = f"environment.build.dockerfile_path: no such file: {file!r}"
        raise PlanError(what, path="environment.build.dockerfile_path")
    return {"context": context, "dockerfile": dockerfile, "content": digest_folder(context)}


def check_unchanged(recipe: Mapping[str, Any]) -> None:
    """Raise BuildError if the context has changed since the job was submitted."""
    from drumline.staging.environments.tool import BuildError

    try:
        found = digest_folder(recipe["context"])
    except PlanError as error:
        raise BuildError(error.message) from error
    if found != recipe["content"]:
        raise BuildError(
            f"{recipe['context']} has changed since the job was submitted", "submit the job again"
        )


def digest_folder(folder: str) -> str:
    """Return a digest of all that is in it: paths, modes, contents, links. Raises PlanError."""
    whole = hashlib.sha256()
    try:
        for count, (path, name) in enumerate(_walk(folder, "")):
            if count >= _MOST_FILES:
                what = f"environment.build.path: {folder} has more than {_MOST_FILES} files"
                raise PlanError(what, "use a folder with only the files that the image needs", path=_WHERE)
            whole.update(_digest_of(path, name))
    except OSError as error:
        what = f"environment.build.path: {error.filename}: {error.strerror}"
        raise PlanError(what, path=_WHERE) from error
    return whole.hexdigest()


def _walk(folder: str, below: str) -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        name = f"{below}{entry.name}"
        yield entry.path, name
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, f"{name}/")


def _digest_of(path: str, name: str) -> bytes:
    one = hashlib.sha256()
    known = os.lstat(path)
    one.update(os.fsencode(name) + b"\0%o\0" % known.st_mode)
    if stat.S_ISLNK(known.st_mode):
        one.update(os.fsencode(os.readlink(path)))
    elif stat.S_ISREG(known.st_mode):
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            while data := file.read(_CHUNK):
                one.update(data)
    return one.digest()


def read_conda(conda: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``pip``: lines of requirements; ``others``: what conda alone can install; ``version``: of Python."""
    pip: list[str] = []
    others: list[str] = []
    version = ""
    for one in conda.get("dependencies") or ():
        if isinstance(one, dict):
            pip += [str(line) for line in one.get("pip") or ()]
            continue
        text = str(one).strip()
        python = _PYTHON.fullmatch(text)
        if python:
            version = python[1] or ""
        elif re.split(r"[\s=<>!]", text)[0] != "pip":
            others.append(text)
    content = {key: conda[key] for key in ("channels", "dependencies") if conda.get(key)}
    more = {"constraints": list(conda.get("constraints") or ()), "files": dict(conda.get("files") or {})}
    return {"conda": content, "pip": pip, "others": others, "version": version, **more}


def render_pip_settings(environ: Mapping[str, str]) -> str:
    """Return a file with the indexes of pip's variables that can be reached from elsewhere; empty: there are none."""
    lines = []
    for name in ("index-url", "extra-index-url", "find-links", "trusted-host", "no-index"):
        value = environ.get("PIP_" + name.upper().replace("-", "_"), "")
        words = [word for word in value.split() if "/" not in word or word.startswith(_REACHED)]
        if words:
            lines.append(f"{name} = {' '.join(words)}\n")
    return "[global]\n" + "".join(lines) if lines else ""


@contextlib.contextmanager
def mount_secret(folder: str, text: str) -> Iterator[list[str]]:
    """Yield arguments that show the text to a step of a build without leaving it in an image."""
    if not text:
        yield []
        return
    path = os.path.join(folder, "pip.conf")
    write_whole(path, text)
    try:
        yield ["--secret", f"id=pip,src={path}"]
    finally:
        os.unlink(path)


def write_conda_context(build: Build, base: str, *, has_settings: bool = False) -> str:
    """Write a build context that installs them on top of ``base``, and return its path."""
    folder = os.path.join(build.prefix, "context")
    os.makedirs(folder, 0o700, exist_ok=True)
    recipe = build.recipe
    others = " ".join(re.sub(r"[^A-Za-z0-9._=<>!,*+-]", "", one) for one in recipe["others"])
    version = f"{recipe['version']}." if recipe["version"] else ""
    inside = _copy_files(recipe["files"], folder)
    files = {
        # JSON is YAML.
        "conda.json.yml": inside(json.dumps(recipe["conda"], ensure_ascii=False)),
        "requirements.txt": inside("".join(f"{line}\n" for line in recipe["pip"])),
        "constraints.txt": "".join(f"{line}\n" for line in recipe["constraints"]),
        "install.sh": _INSTALL.format(folder=_FOLDER, prefix=_PREFIX, others=others, version=version),
        "Dockerfile": (
            f"FROM {base}\nUSER 0\nCOPY . {_FOLDER}\n"
            f"RUN {_WITH_SETTINGS if has_settings else ''}/bin/sh {_FOLDER}/install.sh\n"
            f"ENV PATH={_PREFIX}/bin:$PATH\n"
        ),
    }
    for name, text in files.items():
        write_whole(os.path.join(folder, name), text)
    return folder


def _copy_files(files: Mapping[str, str], folder: str) -> Callable[[str], str]:
    """Copy files that pip's lines name into the context; return a function that replaces their paths in a text."""
    import shutil

    from drumline.staging.environments.tool import BuildError

    places = {}
    for number, path in enumerate(files):
        name = f"files/{number}/{os.path.basename(path)}"
        places[path] = f"{_FOLDER}/{name}"
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        try:
            shutil.copyfile(path, os.path.join(folder, name))
        except OSError as error:
            raise BuildError(f"{path}: {error.strerror}") from error

    def inside(text: str) -> str:
        for path in sorted(places, key=len, reverse=True):
            text = text.replace(path, places[path])
        return text

    return inside
