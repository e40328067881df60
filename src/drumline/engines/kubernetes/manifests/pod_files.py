"""The files that a pod begins with: Secrets bring them, and a few lines of Python unpack them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
    bundle: Sequence[Mapping[str, str]], make_metadata: Callable[..., dict[str, Any]]
) -> list[dict[str, Any]]:
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


def list_sources(
    bundle: Sequence[Mapping[str, str]], name: str, *, with_secrets: bool
) -> list[dict[str, Any]]:
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
