"""``python with_drumline.py URI KIND RUN_FOLDER``: as a job's supervisor has an input fetched."""

import os
import sys

from drumline.contract.plan import Fetch, Plan

uri, kind, run = sys.argv[1:]
os.makedirs(run, exist_ok=True)
target = os.path.join(run, "inputs", "data")
fetch = Fetch("inputs.data", uri, kind, target, writable=False, mode="ro_mount")
plan = Plan("bench", "local", "none", (), run, {}, (), (), {}, {}, 0.0, fetches=(fetch,))
with open(os.path.join(run, "plan.json"), "w") as file:
    file.write(plan.to_json())
os.execv(sys.executable, [sys.executable, "-m", "drumline.staging.transfer", "fetch", run])
