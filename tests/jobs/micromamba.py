#!/usr/bin/env python
"""
Speaks as much of micromamba's command line as is used: `create -y -p PREFIX -f FILE` and `env export -p PREFIX`.

Nothing of conda can be installed where the tests run. What it makes is a virtual environment with a program for each
package; `numpy=99` cannot be solved, in micromamba's words.
"""

import json
import os
import subprocess
import sys

arguments = sys.argv[1:]
prefix = arguments[arguments.index("-p") + 1]
if arguments[0] == "create":
    assert "-y" in arguments
    assert not os.path.exists(prefix), "micromamba makes the folder by itself"
    with open(arguments[arguments.index("-f") + 1]) as file:
        wanted = json.load(file)
    if "numpy=99" in wanted["dependencies"]:
        print("error    libmamba Could not solve for environment specs", file=sys.stderr)
        print("    The following package could not be installed", file=sys.stderr)
        print("    └─ numpy =99 * does not exist (perhaps a typo or a missing channel).", file=sys.stderr)
        print("critical libmamba Could not solve for environment specs", file=sys.stderr)
        sys.exit(1)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    os.makedirs(f"{prefix}/conda-meta")
    with open(f"{prefix}/conda-meta/wanted.json", "w") as file:
        json.dump(wanted, file)
elif arguments[:2] == ["env", "export"]:
    with open(f"{prefix}/conda-meta/wanted.json") as file:
        print(file.read())
else:
    sys.exit(f"unknown: {arguments}")
