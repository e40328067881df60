"""
``python -m drumline.engines.kubernetes.pod supervisor JOB`` and ``node JOB HOST PORT``: the first processes of pods.
"""

from __future__ import annotations

import os
import sys

from drumline.contract.folder import RunFolder
from drumline.engines.kubernetes import bundle, manifests
from drumline.linux import kernel


def main() -> int:
    role, job, *where = sys.argv[1:]
    kernel.lose_output_without_room()
    folder = RunFolder(os.path.join(bundle.HOME, "jobs", job))
    for path in (folder.outputs, folder.user_logs, folder.system_logs):
        os.makedirs(path, mode=0o700, exist_ok=True)
    with open(os.path.join(bundle.BUNDLE, bundle.TOKEN_FILE), encoding="ascii") as file:
        token = file.read()
    if role == manifests.SUPERVISOR:
        from drumline.engines.kubernetes.pod import supervisor_pod

        return supervisor_pod.main(folder)
    # Ranks have Pythons of their own.
    os.environ.pop("PYTHONPATH", None)
    from drumline.engines.kubernetes.pod import node_pod

    return node_pod.main(folder, token, (where[0], int(where[1])))


if __name__ == "__main__":
    sys.exit(main())
