"""A real browser before a real studio: Debian's Chromium, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from studio_jobs import Jobs
from studio_server import StudioServer, run_studio

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
    if not found:
        why = "there is no Chromium here, or no Playwright: scripts/setup browser"
        if os.environ.get("CI"):
            pytest.fail(why, pytrace=False)
        pytest.skip(why)
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = _find_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Chromium has no sandbox of its own where it is run as root, as in a container.
        words = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = playwright.chromium.launch(executable_path=path, args=words)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def jobs(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Jobs]:
    made = Jobs(tmp_path_factory.mktemp("studio"))
    for name in [
        name for name in made.env if name.startswith(("DRUMLINE_", "MLFLOW_", "AZUREML_", "SLURM_"))
    ]:
        del made.env[name]
    made.env |= {"DRUMLINE_HOME": str(made.home), "DRUMLINE_CONTAINER": "none"}
    try:
        made.make()
        yield made
    finally:
        made.end()


@pytest.fixture(scope="session")
def studio(jobs: Jobs) -> Iterator[StudioServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRUMLINE_HOME", str(jobs.home))
        running = run_studio()
        server = running.__enter__()
    yield server
    running.__exit__(None, None, None)


class Visitor:
    """Somebody who is logged in, and what went wrong before their eyes."""

    def __init__(self, studio: StudioServer, context: Any) -> None:
        self._studio = studio
        self.address = f"http://127.0.0.1:{studio.port}"
        self.page = context.new_page()
        self.page.set_default_timeout(30_000)
        self.troubles: list[str] = []
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("console", self._hear)
        self.page.on("request", self._see)
        self.page.add_init_script(LISTEN)

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

    def check(self) -> None:
        """Nothing was refused, thrown or fetched from elsewhere."""
        assert self.page.evaluate("window.taken") == []
        assert self.troubles == []
        assert self.page.title() != "taken"


@pytest.fixture
def visit(studio: StudioServer, browser: Any) -> Iterator[Any]:
    """Makes visitors: ``visit(width=400, color_scheme="dark")``; each is checked at the end."""
    contexts, visitors = [], []

    def come(width: int = 1280, height: int = 900, **options: Any) -> Visitor:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        name, _, value = studio.cookie()["Cookie"].partition("=")
        address = f"http://127.0.0.1:{studio.port}"
        context.add_cookies(
            [{"name": name, "value": value, "url": address, "httpOnly": True, "sameSite": "Strict"}]
        )
        visitors.append(Visitor(studio, context))
        return visitors[-1]

    yield come
    try:
        for visitor in visitors:
            visitor.check()
    finally:
        for context in contexts:
            context.close()
