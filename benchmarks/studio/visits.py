"""What a person does in a browser before the studio, and how long they wait for it."""

import contextlib
import itertools
import random
import re
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from homes import CURVE, LINES, LIVE, WIDE
from studio_server import StudioServer

SCRIPT = (Path(__file__).resolve().parent / "page.js").read_text()
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SETTLE_S = 3.0
MANY = 5

Samples = defaultdict[str, list[float]]
"""Milliseconds, or megabytes, by what was measured."""

TABS = (
    *("/jobs", "/jobs?status=failed", f"/jobs/{WIDE}", f"/jobs/{WIDE}/system", f"/jobs/{LINES}/logs"),
    *(f"/jobs/{CURVE}/metrics", f"/jobs/{LIVE}/logs", f"/jobs/{LIVE}", f"/jobs/{WIDE}/logs", "/queue"),
)


def find_browser() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not found:
        raise SystemExit("there is no Chromium here: scripts/setup browser")
    return found


class Guest:
    """Somebody who is logged in, with a browser that knows nothing yet."""

    def __init__(self, browser: Any, studio: StudioServer) -> None:
        self.address = f"http://127.0.0.1:{studio.port}"
        self.context = browser.new_context(viewport={"width": 1280, "height": 900})
        name, _, value = studio.cookie()["Cookie"].partition("=")
        cookie = {"name": name, "value": value, "url": self.address, "httpOnly": True, "sameSite": "Strict"}
        self.context.add_cookies([cookie])
        self.context.add_init_script(SCRIPT)
        self.context.set_default_timeout(120_000)
        self.page = self.context.new_page()

    def __enter__(self) -> "Guest":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def open(self, path: str) -> None:
        self.page.goto(self.address + path, wait_until="commit")

    def ask(self, script: str) -> Any:
        return self.page.evaluate(script)


def visit(browser: Any, studio: StudioServer, samples: Samples, *, lines: int, listen_s: float) -> None:
    """Measure all but the start of a studio that nobody has asked yet."""
    _look_at_list(browser, studio, samples)
    for job, tab, what in ((WIDE, "ranks", "grid"), (WIDE, "ranks", "heat"), (CURVE, "metrics", "curve")):
        with Guest(browser, studio) as guest:
            _switch(guest, samples, job, tab, what)
    _look_at_lines(browser, studio, samples, lines)
    _listen(browser, studio, samples, listen_s)
    _open_tabs(browser, studio, samples)


def _look_at_list(browser: Any, studio: StudioServer, samples: Samples) -> None:
    for what in ("list, new server", "list"):
        with Guest(browser, studio) as guest:
            guest.open("/jobs")
            samples[what].append(guest.ask("bench.firstRows()"))
            if what == "list":
                guest.open("/jobs")
                samples["list again"].append(guest.ask("bench.firstRows()"))
        # The others come to a server that has looked at all jobs.
        while studio.get("/jobs?limit=0")["pending"]:
            time.sleep(0.1)


def _switch(guest: Guest, samples: Samples, job: str, tab: str, what: str) -> None:
    """Come from another tab of the job: first what nobody has asked for, then the same again."""
    guest.open(f"/jobs/{job}/code")
    guest.ask("bench.see('code')")
    samples[f"{what}, first"].append(guest.ask(f"bench.click('tab-{tab}', '{what}')"))
    for _ in range(MANY):
        guest.ask("bench.click('tab-code', 'code')")
        samples[what].append(guest.ask(f"bench.click('tab-{tab}', '{what}')"))


def _look_at_lines(browser: Any, studio: StudioServer, samples: Samples, lines: int) -> None:
    chosen = random.Random(len(samples["line"]))
    with Guest(browser, studio) as guest:
        guest.open(f"/jobs/{LINES}/code")
        guest.ask("bench.see('code')")
        samples["line, first"].append(guest.ask("bench.click('tab-logs', 'anyLine')"))
        for _ in range(2 * MANY):
            n = chosen.randrange(lines) + 1
            # Unfolded: a folded row stands for equal lines of other ranks.
            found = guest.ask(f"bench.go('/jobs/{LINES}/logs?fold=0&line={n}', {n})")
            samples["line"].append(found)


def _listen(browser: Any, studio: StudioServer, samples: Samples, listen_s: float) -> None:
    with Guest(browser, studio) as guest:
        guest.open(f"/jobs/{LIVE}/logs")
        guest.ask("bench.see('anyLine')")
        guest.ask("bench.watchStamps()")
        guest.page.wait_for_timeout(1000 * listen_s)
        samples["live line"] += guest.ask("bench.late")


def _open_tabs(browser: Any, studio: StudioServer, samples: Samples) -> None:
    # Without windows all tabs are in sight, each with a stream, and a browser opens six connections to a server.
    with contextlib.ExitStack() as stack:
        guests = [stack.enter_context(Guest(browser, studio)) for _ in range(4)]
        for guest, path in zip(itertools.cycle(guests), TABS, strict=False):
            page = guest.context.new_page()
            page.goto(guest.address + path)
            page.wait_for_selector("main .card, main table, main .log-row")
        time.sleep(SETTLE_S)
        samples["memory"].append(_read_megabytes(studio, "VmRSS"))
        samples["memory, most"].append(_read_megabytes(studio, "VmHWM"))


def _read_megabytes(studio: StudioServer, key: str) -> float:
    text = Path(f"/proc/{studio.process.pid}/status").read_text()
    found = re.search(rf"^{key}:\s+(\d+) kB$", text, re.MULTILINE)
    assert found
    return int(found[1]) / 1000
