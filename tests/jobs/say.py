"""Print the variables named, as one JSON object, and the working folder."""

import json
import os
import sys

print(
    json.dumps(
        {"cwd": os.getcwd(), "pid": os.getpid(), **{name: os.environ.get(name) for name in sys.argv[1:]}}
    )
)
