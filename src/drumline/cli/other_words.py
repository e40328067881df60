"""The verbs of other tools, and ours for the same. Imported once a verb is unknown."""

from __future__ import annotations

VERBS = {
    "stop": ("stop", "cancel"),
    "kill": ("cancel",),
    "end": ("cancel",),
    "abort": ("cancel",),
    "terminate": ("cancel",),
    "log": ("logs", "stream"),
    "logs": ("logs", "stream"),
    "tail": ("logs", "stream"),
    "follow": ("logs", "stream"),
    "attach": ("logs", "stream"),
    "watch": ("logs", "stream"),
    "status": ("show",),
    "get": ("show",),
    "describe": ("show",),
    "inspect": ("show",),
    "info": ("show",),
    "view": ("show",),
    "ls": ("list",),
    "ps": ("list",),
    "queue": ("list",),
    "history": ("list",),
    "submit": ("create",),
    "run": ("create",),
    "start": ("create",),
    "add": ("create",),
    "new": ("create",),
    "register": ("create",),
    "apply": ("create",),
    "remove": ("delete", "detach", "archive"),
    "rm": ("delete", "detach", "archive"),
    "delete": ("detach", "archive"),
    "hide": ("archive",),
    "unarchive": ("restore",),
    "edit": ("update",),
    "set": ("update",),
    "rename": ("update",),
    "retry": ("rerun",),
    "restart": ("rerun",),
    "resubmit": ("rerun",),
    "clone": ("rerun",),
    "ssh": ("exec",),
    "shell": ("exec",),
    "web": ("open",),
    "ui": ("open",),
    "get-url": ("open",),
    "cp": ("download",),
    "pull": ("download",),
    "fetch": ("download",),
    "check": ("validate",),
    "compare": ("diff",),
    "join": ("wait", "stream"),
    "wait": ("stream",),
    "stats": ("top",),
    "usage": ("top",),
    "stack": ("stacks",),
    "py-spy": ("stacks",),
    "plot": ("metrics",),
    "nodes": ("list-nodes",),
}
"""The first that a command has is suggested."""

COMMANDS = ("cache", "df", "init", "mlflow", "plan", "prune", "ps", "studio", "sweep", "tensorboard")
"""Commands that one may look for among the verbs of another."""

_MACHINES_EXIST = "machines are not started or stopped by Drumline; drumline compute detach only forgets one"
_IN_COMMAND: dict[str, dict[str, tuple[str, ...]]] = {
    "cache": {
        "rm": ("prune",),
        "remove": ("prune",),
        "delete": ("prune",),
        "gc": ("prune",),
        "ls": ("list",),
    },
    "warm": {"kill": ("stop",), "end": ("stop",), "rm": ("stop",), "delete": ("stop",), "ps": ("list",)},
    "environment": {"start": (), "run": ()},
    "workspace": {"start": (), "run": (), "submit": ()},
}
_TEXTS = {
    **{("compute", word): _MACHINES_EXIST for word in ("start", "stop", "restart", "resize", "run", "kill")},
    ("run", "--gpus"): "each process gets a GPU of its own, as long as there are some: --procs 2;"
    " CUDA_VISIBLE_DEVICES chooses among them",
    ("run", "--set"): "a job file has inputs and fields: drumline job create -f FILE --set inputs.lr=0.01",
    **{("run", word): "drumline job create -f FILE runs a job file" for word in ("-f", "--file")},
}


def find_verb(noun: str, word: str, known: list[str]) -> str:
    """Return the verb of a command that a word of another tool stands for; empty for none."""
    meant = _IN_COMMAND.get(noun, {}).get(word, VERBS.get(word, ()))
    return next((verb for verb in meant if verb in known), "")


def find_text(noun: str, word: str) -> str:
    """Return the hint for a word that no verb of a command stands for; empty for none."""
    return _TEXTS.get((noun, word), "")
