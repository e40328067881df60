"""The built pages: everything that a browser loads comes from the site itself, and all Markdown became HTML."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

LOADED = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "iframe": ("src",),
    "embed": ("src",),
    "object": ("data",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
    "audio": ("src",),
    "form": ("action",),
}
"""What a browser fetches, or sends to, without a click."""

_LINKS = (
    "stylesheet",
    "preload",
    "prefetch",
    "preconnect",
    "dns-prefetch",
    "icon",
    "manifest",
    "modulepreload",
)
_ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
_IN_STYLES = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])((?:[a-z]+:)?//[^'\")\s]+)", re.IGNORECASE)
_FETCHED = re.compile(r"class=\"mermaid\"|data-md-component=\"source\"")
"""What makes the theme's own script load something of others: diagrams, and the numbers of a repository."""


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.paragraphs: list[str] = []
        self._in_code = 0
        self._in_paragraph = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.loaded += [str(values[name]) for name in LOADED.get(tag, ()) if values.get(name)]
        if tag == "link" and set(str(values.get("rel")).split()) & set(_LINKS):
            self.loaded.append(str(values.get("href")))
        if values.get("style"):
            self.loaded += _IN_STYLES.findall(str(values["style"]))
        if tag in ("code", "pre", "script", "style"):
            self._in_code += 1
        if tag == "p":
            self._in_paragraph = True
            self.paragraphs.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("code", "pre", "script", "style"):
            self._in_code -= 1
        if tag == "p":
            self._in_paragraph = False

    def handle_data(self, data: str) -> None:
        if self._in_paragraph and not self._in_code:
            self.paragraphs[-1] += data


def problems(site: Path) -> list[str]:
    """Return what is wrong with a built site, a line each; empty if nothing is."""
    found = []
    pages = sorted(site.rglob("*.html"))
    if not pages:
        return [f"{site}: no pages"]
    for path in pages:
        text = path.read_text(encoding="utf-8")
        found += [f"{path.relative_to(site)}: {one}" for one in of_page(text)]
    for path in sorted(site.rglob("*.css")):
        for address in _IN_STYLES.findall(path.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(site)}: loads {address}")
    for path in sorted(site.rglob("*.svg")):
        for address in re.findall(r"(?:href|src)=\"(https?:[^\"]+)\"", path.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(site)}: loads {address}")
    return found


def of_page(text: str) -> Iterator[str]:
    """Yield what is wrong with one page."""
    page = _Page()
    page.feed(text)
    for address in page.loaded:
        if _ELSEWHERE.match(address):
            yield f"loads {address}"
    for style in re.findall(r"<style[^>]*>(.*?)</style>", text, re.DOTALL):
        for address in _IN_STYLES.findall(style):
            yield f"loads {address}"
    for thing in _FETCHED.findall(text):
        yield f"has {thing}, for which the theme loads something from elsewhere"
    for paragraph in page.paragraphs:
        for line in paragraph.splitlines():
            if re.match(r"\s*(?:[-*] |\d+\. |\||#+ |```|<!--)", line) and not line.strip().startswith("- -"):
                yield f"Markdown that is no HTML: {line.strip()[:60]!r}"
