"""What a test of a page waits to see."""

import re
from typing import Any

LONG_MS = 30_000
"""On a busy machine a page takes its time."""


def see(locator: Any, text: str | re.Pattern[str]) -> None:
    """Wait until the element shows that text, or a pattern."""
    from playwright.sync_api import expect

    expect(locator).to_contain_text(text, timeout=LONG_MS)


def miss(locator: Any) -> None:
    """Wait until there is no such element."""
    from playwright.sync_api import expect

    expect(locator).to_have_count(0, timeout=LONG_MS)


def count(locator: Any, number: int) -> None:
    """Wait until there are so many such elements."""
    from playwright.sync_api import expect

    expect(locator).to_have_count(number, timeout=LONG_MS)


def arrive(page: Any, address: str | re.Pattern[str]) -> None:
    """Wait until the page has that address."""
    from playwright.sync_api import expect

    expect(page).to_have_url(address, timeout=LONG_MS)
