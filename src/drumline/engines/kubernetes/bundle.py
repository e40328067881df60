"""The files that a job's pods begin with, as the data of Secrets: Drumline, plan, code, small inputs."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import os
import tarfile
from typing import TYPE_CHECKING

from drumline.contract.errors import EngineError, NotSubmittedError, describe_os_error
from drumline.contract.messages import find_package
from drumline.engines.kubernetes import objects, pod_plan
from drumline.engines.kubernetes.manifests import pod_files

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan

MOST_BYTES = 1 << 20
"""Of all values of a Secret. Source: Kubernetes, MaxSecretSize."""

MOST_SECRETS = 16
"""
Of a job: each machine of the cluster that gets a pod of it fetches all, and etcd, which has room for 2 GB by default,
keeps those of all jobs.
"""

_COMPILED = "__pycache__"
_PARTS = ("contract", "linux", "node", "engines", "staging", "store", "supervisor", "tracking")
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
    first = {pod_files.TOKEN_FILE: os.urandom(32).hex().encode()}
    if secrets:
        first[pod_files.SECRETS_FILE] = secrets.encode()
    try:
        first[pod_files.PACKAGE_FILE] = _pack_package()
        taken = sum(map(len, first.values()))
        most = MOST_SECRETS * MOST_BYTES - taken
        job = _pack_job(plan, folder, most)
    except _FullError:
        what = f"code and local inputs have more than {most >> 20} MB compressed: {_list_sizes(plan, folder)}"
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
    files = [{pod_files.name_part(number): part} for number, part in enumerate(parts)]
    files[0].update(first)
    return [{name: base64.b64encode(data).decode() for name, data in one.items()} for one in files]


def _list_sizes(plan: Plan, folder: RunFolder) -> str:
    """Return the sizes of the local inputs and the code, the largest first."""
    there = pod_plan.adapt(plan, folder)
    paths = {
        f"inputs.{before.name}": before.source
        for before, after in zip(plan.copies, there.copies, strict=True)
        if before.source != after.source
    }
    if plan.snapshot:
        paths["code"] = os.path.join(folder.root, "snapshots", plan.snapshot)
    sizes = sorted(((_measure(path), name) for name, path in paths.items()), reverse=True)
    return ", ".join(f"{name} has {size / 1e6:.1f} MB" for size, name in sizes)


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
    there = pod_plan.adapt(plan, folder)
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
                name = os.path.relpath(after.source, objects.HOME)
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
