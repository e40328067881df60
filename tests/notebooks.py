"""A real kernel of Jupyter, driven cell by cell as a notebook drives it."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PATIENCE_S = 90.0


class Cell:
    """What a cell showed."""

    def __init__(self) -> None:
        self.text = ""
        self.errors = ""
        """On standard error."""

        self.displays: dict[str, list[dict[str, Any]]] = {}
        """By id, each output and what it became; those without an id under a number."""

        self.result: dict[str, Any] = {}
        self.traceback: list[str] = []
        self.is_ok = True

    @property
    def html(self) -> str:
        """Of the last output that is HTML."""
        pages = [shown[-1]["text/html"] for shown in self.displays.values() if "text/html" in shown[-1]]
        return str(self.result.get("text/html") or (pages[-1] if pages else ""))


class Notebook:
    def __init__(self, manager: Any, client: Any) -> None:
        self._manager = manager
        self._client = client

    def run(self, source: str, *, interrupt_when: Callable[[Cell], bool] | None = None) -> Cell:
        """Run a cell to its end; interrupt the kernel once, as soon as what it showed is so."""
        number = self._client.execute(source, stop_on_error=False)
        cell = Cell()
        while True:
            message = self._client.get_iopub_msg(timeout=PATIENCE_S)
            if message["parent_header"].get("msg_id") != number:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return cell
            _add(cell, kind, content)
            if interrupt_when is not None and interrupt_when(cell):
                interrupt_when = None
                self._manager.interrupt_kernel()


def _add(cell: Cell, kind: str, content: dict[str, Any]) -> None:
    if kind == "stream" and content["name"] == "stdout":
        cell.text += content["text"]
    elif kind == "stream":
        cell.errors += content["text"]
    elif kind in ("display_data", "update_display_data"):
        name = content.get("transient", {}).get("display_id") or str(len(cell.displays))
        cell.displays.setdefault(name, []).append(content["data"])
    elif kind == "execute_result":
        cell.result = content["data"]
    elif kind == "error":
        cell.traceback, cell.is_ok = content["traceback"], False


@contextlib.contextmanager
def start_notebook(folder: Path) -> Iterator[Notebook]:
    """A kernel of this Python that works in the folder; ended at the end of the block."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(startup_timeout=PATIENCE_S, kernel_name="python3", cwd=str(folder))
    try:
        yield Notebook(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
