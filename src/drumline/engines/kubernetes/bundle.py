"""The files that a job's pods begin with, as the data of Secrets: Drumline, plan, code, small inputs."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import json
import os
import tarfile
import urllib.parse
from typing import TYPE_CHECKING, Any

from drumline.contract.channel import find_package
from drumline.contract.errors import EngineError, NotSubmittedError, PlanError, Problem, describe_os_error
from drumline.contract.plan import Plan, is_below
from drumline.contract.words import format_size
from drumline.engines.kubernetes import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from _typeshed import ReadableBuffer

    from drumline.contract.folder import RunFolder
    from drumline.engines.kubernetes.access import Manifest


# The plan as the pods read it: what lies in the run folder here lies in the run folder there.

HOME = "/drumline/home"
"""The home of Drumline in the pods: a run folder there is that pod's own."""
INPUTS = os.path.join(HOME, "given-inputs")
"""Where local inputs come to a pod, before they are copied to their places."""

_OUTPUT = "AZURE_ML_OUTPUT_"


def check(plan: Plan, folder: RunFolder) -> None:
    """Refuse what a job cannot have here. Raises PlanError that names each."""
    wrong = []
    if not plan.compute.get("image"):
        wrong.append(
            Problem("image: the compute names none", hint="image: python:3.12, or one with your packages")
        )
    most = plan.compute.get("max_instances")
    if most and len(plan.nodes) > int(most):
        what = f"resources.instance_count: {len(plan.nodes)} nodes, and the compute gives {most}"
        wrong.append(Problem(what, path="resources.instance_count"))
    if plan.asked.instance_type:
        what = "resources.instance_type: a compute on Kubernetes has no instance types"
        wrong.append(
            Problem(what, path="resources.instance_type", hint="cores_per_node and the like of the compute")
        )
    if plan.cwd != folder.code:
        wrong.append(Problem("the pods do not have this folder", hint="code: . in a job file sends it"))
    if plan.build is not None:
        hint = "an image with the packages: image of the compute"
        wrong.append(Problem("environment: none is built in pods", path="environment", hint=hint))
    if plan.host_file:
        what = "drumline.once: the file of hosts that its launcher reads does not reach pods yet"
        wrong.append(Problem(what, path="drumline.once", hint="distribution: {type: mpi} runs mpirun itself"))
    remote = [*(one.name for one in plan.fetches), *(one.name for one in plan.uploads)]
    if remote:
        hint = "a volume of the compute, or the script itself"
        wrong.append(Problem(f"{remote[0]}: remote data does not reach pods yet", path=remote[0], hint=hint))
    if plan.services:
        wrong.append(Problem("services: none run in pods yet", path="services"))
    wrong.extend(_list_unreachable(plan, folder))
    if wrong:
        raise PlanError(wrong)


def _list_unreachable(plan: Plan, folder: RunFolder) -> list[Problem]:
    """List outputs that are to be on this machine alone; inputs are sent (``Engine.list_reached``)."""
    mounted = [str(one["path"]) for one in plan.compute.get("volumes") or ()]
    wrong = []
    for name, value in plan.user_env.items():
        if not name.startswith(_OUTPUT) or not os.path.isabs(value):
            continue
        if not is_below(value, [folder.path, *mounted]):
            what = f"outputs.{name.removeprefix(_OUTPUT)}: the pods do not have {value}"
            hint = (
                "a path below one of a volume of the compute; without a path it is brought here, up to 4 MiB"
            )
            wrong.append(Problem(what, path="outputs", hint=hint))
    return wrong


def list_warnings(plan: Plan) -> list[str]:
    """List outputs that may be too large for the way from the pods to here."""
    volumes = [str(volume["path"]) for volume in plan.compute.get("volumes") or ()]
    names = [
        name.removeprefix(_OUTPUT)
        for name, value in plan.user_env.items()
        if name.startswith(_OUTPUT) and os.path.isabs(value) and not is_below(value, volumes)
    ]
    most = format_size(frames.MOST_RESULTS)
    return [
        f"outputs.{name}: each pod brings back up to {most} of outputs, and leaves larger files out; "
        "path: below a volume of the compute has no such limit"
        for name in names[:1]
    ]


def adapt(plan: Plan, folder: RunFolder) -> Plan:
    """Return the plan with the paths of the pods, and their own PATH."""
    own = plan.user_env.get("PATH")
    search_path = os.environ.get("PATH", "")
    if own and own.endswith(search_path):
        # That of this machine, which the planner put there.
        plan = plan._replace(
            user_env={name: value for name, value in plan.user_env.items() if name != "PATH"}
        )
    volumes = [str(volume["path"]) for volume in plan.compute.get("volumes") or ()]
    copies = tuple(
        copy
        if is_below(copy.source, volumes)
        else copy._replace(source=os.path.join(INPUTS, str(index), os.path.basename(copy.source)))
        for index, copy in enumerate(plan.copies)
    )
    data = _drop_local_runs(json.loads(plan._replace(copies=copies).to_json()))
    return Plan.from_json(json.dumps(_move(data, folder.root, HOME)))


def _drop_local_runs(value: Any) -> Any:
    """Return the value without MLflow's run in files of this machine: a script finds none there, and begins its own."""
    if isinstance(value, list):
        return [_drop_local_runs(one) for one in value]
    if not isinstance(value, dict):
        return value
    is_local = str(value.get("MLFLOW_TRACKING_URI", "")).startswith("file:")
    return {
        key: _drop_local_runs(one)
        for key, one in value.items()
        if not (is_local and key.startswith("MLFLOW_"))
    }


def _move(value: Any, root: str, home: str) -> Any:
    """Return the value with the home of the pods in place of the one here, in all its texts."""
    if isinstance(value, str):
        return value.replace(root, home).replace(urllib.parse.quote(root), home)
    if isinstance(value, list):
        return [_move(one, root, home) for one in value]
    if isinstance(value, dict):
        return {key: _move(one, root, home) for key, one in value.items()}
    return value


# The files that a pod begins with: Secrets bring them, and a few lines of Python unpack them.

BUNDLE = "/drumline-bundle"
"""Where the Secrets with code, plan and Drumline itself are mounted."""

PACKAGE_FILE, JOB_FILE, TOKEN_FILE, SECRETS_FILE = "drumline.tar.gz", "job.tar.gz", "token", "secrets"
"""The second is in parts (``name_part``)."""

_LIBRARY = "/drumline/lib"

# The first process of a pod ignores a signal that it has no handler for: it waits until there is one.
_BOOT = """\
import io, os, signal, sys, tarfile
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
filtered = {{"filter": "fully_trusted"}} if hasattr(tarfile, "data_filter") else {{}}
for name, place in (("{package}", "{library}"), ("{job}", "{home}")):
    parts = [one for one in sorted(os.listdir("{bundle}")) if one.startswith(name)]
    whole = io.BytesIO(b"".join(open("{bundle}/" + one, "rb").read() for one in parts))
    with tarfile.open(fileobj=whole) as archive:
        archive.extractall(place, **filtered)
    whole.close()
os.environ["PYTHONPATH"] = "{library}"
os.execv(sys.executable, [sys.executable, "-P", "-m", "drumline.engines.kubernetes.pod", *sys.argv[1:]])
"""


def boot(home: str, bundle: str = BUNDLE, library: str = _LIBRARY) -> str:
    """Return the program of a pod. ``home``: of Drumline, there."""
    return _BOOT.format(package=PACKAGE_FILE, job=JOB_FILE, bundle=bundle, home=home, library=library)


def name_part(number: int) -> str:
    """Return the name of that part of the job's archive."""
    return f"{JOB_FILE}.{number:02}"


def make_secrets(
    bundle: Sequence[Mapping[str, str]], make_metadata: Callable[..., Manifest]
) -> list[Manifest]:
    """Return a Secret for each element of the bundle."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": make_metadata(suffix=_suffix(index)),
            "type": "Opaque",
            "data": dict(data),
        }
        for index, data in enumerate(bundle)
    ]


def list_sources(bundle: Sequence[Mapping[str, str]], name: str, *, with_secrets: bool) -> list[Manifest]:
    """Return what a pod sees of the Secrets: the job's own secrets are the supervisor's alone."""
    return [
        {
            "secret": {
                "name": name + _suffix(index),
                "items": [{"key": key, "path": key} for key in data if with_secrets or key != SECRETS_FILE],
            }
        }
        for index, data in enumerate(bundle)
    ]


def _suffix(index: int) -> str:
    return f"-{index}" if index else ""


MOST_BYTES = 1 << 20
"""Of all values of a Secret. Source: Kubernetes, MaxSecretSize."""

MOST_SECRETS = 16
"""
Of a job: each machine of the cluster that gets a pod of it fetches all, and etcd, which has room for 2 GB by default,
keeps those of all jobs.
"""

_COMPILED = "__pycache__"
_PARTS = ("checks", "contract", "linux", "node", "engines", "staging", "store", "supervisor", "tracking")
"""Packages that run in pods: none of them needs more than the standard library."""


class TooLargeError(NotSubmittedError):
    """The error of a job whose files do not fit into Secrets."""

    exit_code = 2


class _FullError(Exception):
    """An archive has become larger than it may."""


class _Memory(io.BytesIO):
    """A file of that many bytes at most."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, data: ReadableBuffer) -> int:
        written = super().write(data)
        if self.tell() > self._most:
            raise _FullError
        return written


def make_bundle(plan: Plan, folder: RunFolder, secrets: str) -> list[dict[str, str]]:
    """
    Return the data of each Secret; the first has all but later parts of the code. Raises TooLargeError, and EngineError
    for a file that cannot be read.
    """
    first = {TOKEN_FILE: os.urandom(32).hex().encode()}
    if secrets:
        first[SECRETS_FILE] = secrets.encode()
    try:
        first[PACKAGE_FILE] = _pack_package()
        taken = sum(map(len, first.values()))
        most = MOST_SECRETS * MOST_BYTES - taken
        job = _pack_job(plan, folder, most)
    except _FullError:
        what = f"code and local inputs have more than {format_size(most)} compressed: {_list_sizes(plan, folder)}"
        hint = (
            "put large inputs on a volume of the compute (volumes: [{claim: NAME, path: /data}]), and give them a "
            "path below its own; an .amlignore leaves files out of the code"
        )
        raise TooLargeError(what, hint) from None
    except OSError as error:
        raise EngineError(f"the code or an input could not be packed: {describe_os_error(error)}") from error
    room = MOST_BYTES - taken
    cuts = [0, *range(room, len(job), MOST_BYTES), len(job)]
    parts = [job[begin:end] for begin, end in itertools.pairwise(cuts)]
    files = [{name_part(number): part} for number, part in enumerate(parts)]
    files[0].update(first)
    return [{name: base64.b64encode(data).decode() for name, data in one.items()} for one in files]


def _list_sizes(plan: Plan, folder: RunFolder) -> str:
    """Return the sizes of the local inputs and the code, the largest first."""
    there = adapt(plan, folder)
    paths = {
        f"inputs.{before.name}": before.source
        for before, after in zip(plan.copies, there.copies, strict=True)
        if before.source != after.source
    }
    if plan.snapshot:
        paths["code"] = os.path.join(folder.root, "snapshots", plan.snapshot)
    sizes = sorted(((_measure(path), name) for name, path in paths.items()), reverse=True)
    return ", ".join(f"{name} has {format_size(size)}" for size, name in sizes)


def _measure(path: str) -> int:
    sizes = [os.stat(path).st_size]
    for place, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                sizes.append(os.stat(os.path.join(place, name)).st_size)
    return sum(sizes)


def _pack_package() -> bytes:
    """Return this package as an archive, without what runs on the submitting machine alone."""
    root = find_package()
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w:gz", compresslevel=9) as archive:
        archive.add(os.path.join(root, "__init__.py"), "drumline/__init__.py", filter=_make_readable)
        for part in _PARTS:
            archive.add(os.path.join(root, part), f"drumline/{part}", filter=_make_readable)
    return memory.getvalue()


def _make_readable(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out compiled files, pipes and devices, and whose the others are here."""
    if os.path.basename(info.name) == _COMPILED or info.isdev():
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
    return info


def _pack_job(plan: Plan, folder: RunFolder, most: int) -> bytes:
    """
    Return the run folder as its supervisor finds it, the stored code, and local inputs that pods lack. Raises
    _FullError.
    """
    there = adapt(plan, folder)
    base = f"jobs/{folder.name}"
    memory = _Memory(most)
    with tarfile.open(fileobj=memory, mode="w:gz", compresslevel=9) as archive:
        for name in (folder.job, folder.events):
            archive.add(name, f"{base}/{os.path.basename(name)}", filter=_make_private)
        _add_text(archive, f"{base}/plan.json", there.to_json())
        if plan.snapshot:
            code = os.path.join(folder.root, "snapshots", plan.snapshot)
            archive.add(code, f"snapshots/{plan.snapshot}", filter=_make_readable)
        for before, after in zip(plan.copies, there.copies, strict=True):
            if after.source != before.source:
                name = os.path.relpath(after.source, HOME)
                _add_input(archive, before.source, name, os.path.realpath(before.source))
    return memory.getvalue()


def _add_input(
    archive: tarfile.TarFile, source: str, name: str, root: str, above: tuple[str, ...] = ()
) -> None:
    """Add a file, or a folder with all that is in it. Links out of the input are added as what they lead to."""
    real = os.path.realpath(source)
    if os.path.islink(source) and os.path.exists(source):
        stays = real.startswith(f"{root}/") and not os.path.isabs(os.readlink(source))
        source = source if stays else real
    archive.add(source, name, recursive=False, filter=_make_readable)
    if os.path.isdir(source) and not os.path.islink(source) and real not in above:
        for entry in sorted(set(os.listdir(source)) - {_COMPILED}):
            _add_input(archive, f"{source}/{entry}", f"{name}/{entry}", root, (*above, real))


def _make_private(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o600
    return info


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o600
    archive.addfile(info, io.BytesIO(data))
