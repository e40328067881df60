"""A real browser before a real studio: Debian's Chromium, driven by Playwright."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_libraries import find_missing
from studio_jobs import Jobs
from studio_server import StudioServer, run_studio

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LISTEN = """
window.taken = [];
document.addEventListener("securitypolicyviolation", (one) => {
  window.taken.push(`${one.violatedDirective} ${one.blockedURI}`);
});
"""


def _find_browser() -> str:
    """The path of a browser. A machine without one is skipped with that reason; CI must have it."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found:
        try:
            import playwright  # noqa: F401
        except ImportError:
            found = None
    why = "there is no Chromium here, or no Playwright: scripts/setup browser"
    if found and find_missing():
        found, why = (
            None,
            "the page's libraries could not be fetched: scripts/setup studio, where there is npm",
        )
    if not found:
        if os.environ.get("CI"):
            pytest.fail(why, pytrace=False)
        pytest.skip(why)
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = _find_browser()
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        # Chromium has no sandbox of its own where it is run as root, as in a container.
        words = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = playwright.chromium.launch(executable_path=path, args=words)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def jobs(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Jobs]:
    made = Jobs(tmp_path_factory.mktemp("studio"))
    try:
        made.make()
        yield made
    finally:
        made.end()


@pytest.fixture(scope="session")
def hung(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Jobs]:
    """One job that hangs, in a home and so in a queue of its own."""
    made = Jobs(tmp_path_factory.mktemp("hung"))
    try:
        made.hang()
        yield made
    finally:
        made.end()


@pytest.fixture(scope="session")
def studio(jobs: Jobs) -> Iterator[StudioServer]:
    with run_studio(home=jobs.home) as server:
        yield server


@pytest.fixture(scope="session")
def hung_studio(hung: Jobs) -> Iterator[StudioServer]:
    with run_studio(home=hung.home) as server:
        yield server


class Visitor:
    """Somebody who is logged in, and what went wrong before their eyes."""

    def __init__(self, studio: StudioServer, context: Any) -> None:
        self.context = context
        self.address = f"http://127.0.0.1:{studio.port}"
        self.page = context.new_page()
        self.page.set_default_timeout(30_000)
        self.troubles: list[str] = []
        self._expected: tuple[str, ...] = ()
        self.log_in(studio)
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("console", self._hear)
        self.page.on("request", self._see)
        self.page.add_init_script(LISTEN)

    def log_in(self, studio: StudioServer) -> None:
        name, _, value = studio.cookie()["Cookie"].partition("=")
        known = {"name": name, "value": value, "url": self.address}
        self.context.add_cookies([{**known, "httpOnly": True, "sameSite": "Strict"}])

    def expect(self, *words: str) -> None:
        """Have ``check`` accept troubles with one of these words: those that the test causes."""
        self._expected = words

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(message.text)

    def _see(self, request: Any) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.troubles.append(f"asked for {request.url}")

    def open(self, path: str) -> Any:
        self.page.goto(self.address + path)
        return self.page

    def find(self, test: str) -> Any:
        """The elements with that ``data-test``."""
        return self.page.locator(f'[data-test="{test}"]')

    def wait_until_quiet(self) -> None:
        """Wait until no answer is on its way. A condition in JavaScript would be refused as it is asked again."""
        self.page.wait_for_selector('[aria-busy="true"]', state="detached")

    def check(self) -> None:
        """Nothing was refused, thrown or fetched from elsewhere."""
        assert self.page.evaluate("window.taken") == []
        assert [one for one in self.troubles if not any(word in one for word in self._expected)] == []
        assert self.page.title() != "taken"


class Visits:
    """Makes visitors of one studio: ``visit(width=400, color_scheme="dark")``."""

    def __init__(self, studio: StudioServer, browser: Any) -> None:
        self._studio = studio
        self._browser = browser
        self._visitors: list[Visitor] = []

    def __call__(
        self, width: int = 1280, height: int = 900, studio: StudioServer | None = None, **options: Any
    ) -> Visitor:
        """``studio``: another one than usual."""
        context = self._browser.new_context(viewport={"width": width, "height": height}, **options)
        self._visitors.append(Visitor(studio or self._studio, context))
        return self._visitors[-1]

    def end(self) -> None:
        """Check each visitor, and close its windows."""
        try:
            for visitor in self._visitors:
                visitor.check()
        finally:
            for visitor in self._visitors:
                visitor.context.close()


@pytest.fixture
def visit(studio: StudioServer, browser: Any) -> Iterator[Visits]:
    visits = Visits(studio, browser)
    yield visits
    visits.end()


@pytest.fixture
def visit_hung(hung_studio: StudioServer, browser: Any) -> Iterator[Visits]:
    visits = Visits(hung_studio, browser)
    yield visits
    visits.end()


@pytest.fixture
def picture() -> Callable[[Visitor, str], None]:
    """``picture(visitor, name)``: write a picture for the docs, where ``TEST_PICTURES`` asks for it."""

    def take(visitor: Visitor, name: str) -> None:
        if os.environ.get("TEST_PICTURES"):
            PICTURES.mkdir(exist_ok=True)
            visitor.page.screenshot(path=PICTURES / f"{name}.png")

    return take
