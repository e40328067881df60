"""
The libraries of the studio's page, which this repository does not hold: ``python scripts/page_libraries.py`` fetches
them.

``npm ci`` takes the versions and hashes of package-lock.json. The few files that a browser needs are copied to
``page/vendor``, with their licences; a module that names another one there by its package gets the path instead, so
that browsers need no import map. What needs a compiler or a bundler is not among them.

The package files stand in ``page``, beside this file, and hold no address of a registry: npm asks the one that it is
set up for. scripts/setup and the build hook (hatch_build.py) run this, so it imports the standard library alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = os.path.join(HERE, "page")
PAGE = os.path.join(os.path.dirname(HERE), "src", "drumline", "studio", "page")
VENDOR = os.path.join(PAGE, "vendor")

_MODULES = {
    "preact.js": ("preact", "dist/preact.mjs"),
    "hooks.js": ("preact", "hooks/dist/hooks.mjs"),
    "signals.js": ("@preact/signals", "dist/signals.mjs"),
    "signals-core.js": ("@preact/signals-core", "dist/signals-core.mjs"),
    "htm.js": ("htm", "dist/htm.mjs"),
    "uplot.js": ("uplot", "dist/uPlot.iife.min.js"),
    "uplot.css": ("uplot", "dist/uPlot.min.css"),
}
"""By name in page/vendor: package and file."""

_IMPORTED_AS = {
    "preact": "preact.js",
    "preact/hooks": "hooks.js",
    "@preact/signals": "signals.js",
    "@preact/signals-core": "signals-core.js",
    "htm": "htm.js",
    "uplot": "uplot.js",
}
_IMPORT = re.compile(r"""(\bfrom\s*|\bimport\s*)(["'])([^"']+)\2""")
_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*$\n?", re.MULTILINE)
_LIMIT_S = 300


class LibrariesError(Exception):
    """They could not be fetched; the text says why."""


def find_missing() -> str:
    """Return why the page has no libraries, or not those that the lock names; empty: it has them."""
    if not os.path.exists(os.path.join(VENDOR, "preact.js")):
        return "the libraries of the page are not there"
    return (
        ""
        if _read(os.path.join(VENDOR, "stamp")) == _stamp()
        else "the libraries of the page are of another version"
    )


def fetch_libraries(kept: str | None = None) -> None:
    """
    Fill page/vendor. ``kept``: a folder where npm's packages stay, with the type checker; None: none stay.

    Raises LibrariesError, and leaves page/vendor as it was then.
    """
    if kept:
        _run_npm(kept, ["--include=dev"])
        _write(os.path.join(kept, "tsconfig.json"), _configure_types())
        _copy_modules(kept, has_types=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        _run_npm(folder, ["--omit=dev"])
        _copy_modules(folder, has_types=False)


def _run_npm(folder: str, options: list[str]) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise LibrariesError("no npm here")
    os.makedirs(folder, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        _write(os.path.join(folder, name), _read(os.path.join(PACKAGES, name)))
    # No script of a package is run, and nothing is reported to anyone.
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    try:
        done = subprocess.run(  # A program of PATH, with arguments of ours.
            [npm, "ci", *options, *quiet],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LibrariesError(f"npm: {error}") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise LibrariesError(f"npm: {lines[0] if lines else f'exit code {done.returncode}'}")


def _copy_modules(folder: str, *, has_types: bool) -> None:
    """Copy to a new folder first: a server may read the one that is there."""
    fresh = tempfile.mkdtemp(prefix=".vendor-", dir=os.path.dirname(VENDOR))
    os.chmod(fresh, 0o755)  # As of any folder of a package.
    try:
        for name, (package, path) in _MODULES.items():
            text = _read(os.path.join(folder, "node_modules", package, path))
            _write(os.path.join(fresh, name), _adapt(name, text))
        _write(os.path.join(fresh, "LICENSES.txt"), _join_licences(folder))
        if has_types:
            for package, name in _IMPORTED_AS.items():
                _write(os.path.join(fresh, name[:-3] + ".d.ts"), _types_of(package))
        _write(os.path.join(fresh, "stamp"), _stamp())
        shutil.rmtree(VENDOR, ignore_errors=True)
        os.rename(fresh, VENDOR)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _adapt(name: str, text: str) -> str:
    """
    >>> _adapt("signals.js", 'import{h}from"preact";export*from"@preact/signals-core";')
    'import{h}from"./preact.js";export*from"./signals-core.js";'
    """
    text = _SOURCE_MAP.sub("", text)
    if name == "uplot.js":
        # Its own ES module is not minified, and three times as large.
        return text + "\nexport default uPlot;\n"
    return _IMPORT.sub(_name_file, text) if name.endswith(".js") else text


def _name_file(found: re.Match[str]) -> str:
    before, mark, package = found.groups()
    if package not in _IMPORTED_AS:
        raise LibrariesError(f"a library needs {package}, which is not among the libraries of the page")
    return f"{before}{mark}./{_IMPORTED_AS[package]}{mark}"


def _types_of(package: str) -> str:
    """Return a declaration that refers to the package's own, for the type checker alone."""
    if package in ("htm", "uplot"):
        return f'import one from "{package}";\nexport default one;\n'
    return f'export * from "{package}";\n'


def _configure_types() -> str:
    """Return the settings of the type checker, beside npm's packages: they stand outside the sources."""
    return json.dumps(
        {
            "extends": os.path.join(PACKAGES, "tsconfig.json"),
            "compilerOptions": {"baseUrl": ".", "paths": {"*": ["./node_modules/*"]}},
            "include": [os.path.join(PAGE, "js"), os.path.join(PAGE, "types.d.ts")],
        }
    )


def _join_licences(folder: str) -> str:
    parts = []
    for package in sorted({package for package, _ in _MODULES.values()}):
        there = os.path.join(folder, "node_modules", package)
        facts = json.loads(_read(os.path.join(there, "package.json")))
        text = _read(os.path.join(there, "LICENSE"))
        parts.append(f"{package} {facts['version']} ({facts['license']})\n\n{text.strip()}\n")
    return f"\n{'-' * 79}\n\n".join(parts)


def _stamp() -> str:
    digest = hashlib.sha256()
    for path in (os.path.join(PACKAGES, "package-lock.json"), os.path.abspath(__file__)):
        digest.update(_read(path).encode())
    return digest.hexdigest()


def _read(path: str) -> str:
    """Return the text of a file; empty if there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _write(path: str, text: str) -> None:
    """Replace a file: environments that are copies of one another may share it by a hard link."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.new", path)


def main() -> int:
    """``--keep FOLDER``: leave npm's packages there, with the type checker."""
    import argparse

    parser = argparse.ArgumentParser(description="Fetch the libraries of the studio's page, with npm.")
    parser.add_argument("--keep", metavar="FOLDER", help="leave npm's packages there, with the type checker")
    arguments = parser.parse_args()
    try:
        fetch_libraries(arguments.keep)
    except LibrariesError as error:
        sys.stderr.write(f"page_libraries: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
