"""The files that a job's pods begin with, as the data of a Secret: Drumline, plan, code, small inputs."""

from __future__ import annotations

import base64
import io
import os
import tarfile
from typing import TYPE_CHECKING

from drumline.contract.errors import EngineError, NotSubmittedError
from drumline.contract.messages import find_package
from drumline.engines.kubernetes import objects, pod_plan

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan

MOST_BYTES = 1 << 20
"""Of all values of a Secret. Source: Kubernetes, MaxSecretSize."""

_PARTS = ("contract", "linux", "node", "engines", "staging", "store", "supervisor", "tracking")
"""Packages that run in pods: none of them needs more than the standard library."""


class TooLargeError(NotSubmittedError):
    """The error of a job whose files do not fit into a Secret."""

    exit_code = 2


def make_bundle(plan: Plan, folder: RunFolder, secrets: str) -> dict[str, str]:
    """Return the data of the Secret. Raises TooLargeError, and EngineError for a file that cannot be read."""
    try:
        files = {
            objects.PACKAGE_FILE: _pack_package(),
            objects.JOB_FILE: _pack_job(plan, folder),
            objects.TOKEN_FILE: os.urandom(32).hex().encode(),
        }
    except OSError as error:
        raise EngineError(
            f"the code could not be packed: {error.strerror or error}: {error.filename}"
        ) from error
    if secrets:
        files[objects.SECRETS_FILE] = secrets.encode()
    total = sum(map(len, files.values()))
    if total > MOST_BYTES:
        own = (MOST_BYTES - total + len(files[objects.JOB_FILE])) >> 10
        has = len(files[objects.JOB_FILE]) >> 10
        what = f"code and inputs have {has} kB compressed, and a Secret has room for {own} kB"
        raise TooLargeError(
            what, "an .amlignore leaves files out; large inputs go to a volume of the compute"
        )
    return {name: base64.b64encode(data).decode() for name, data in files.items()}


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
    """Leave out compiled files, and whose the others are here."""
    if os.path.basename(info.name) == "__pycache__":
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
    return info


def _pack_job(plan: Plan, folder: RunFolder) -> bytes:
    """Return the run folder as its supervisor finds it, the stored code, and local inputs that are copied."""
    there = pod_plan.adapt(plan, folder)
    base = f"jobs/{folder.name}"
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w:gz", compresslevel=9) as archive:
        for name in (folder.job, folder.events):
            archive.add(name, f"{base}/{os.path.basename(name)}", filter=_make_private)
        _add_text(archive, f"{base}/plan.json", there.to_json())
        if plan.snapshot:
            code = os.path.join(folder.root, "snapshots", plan.snapshot)
            archive.add(code, f"snapshots/{plan.snapshot}", filter=_make_readable)
        for before, after in zip(plan.copies, there.copies, strict=True):
            archive.add(before.source, os.path.relpath(after.source, objects.HOME), filter=_make_readable)
    return memory.getvalue()


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
