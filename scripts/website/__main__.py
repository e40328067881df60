"""``scripts/docs``: the pages, the site of them, its check and its versions."""

import argparse
import functools
import http.server
import subprocess
import sys
from pathlib import Path

from website import check, pages, versions

BUILD = pages.ROOT / "build"


def build(site: Path) -> None:
    """Write the site; any warning of the generator, and anything that the check finds, ends the program."""
    staged = BUILD / "pages"
    config = pages.stage(staged, BUILD / "site.toml", site)
    generator = Path(sys.executable).with_name("zensical")
    done = subprocess.run(
        [generator, "build", "--strict", "--clean", "--config-file", config], cwd=BUILD, check=False
    )
    if done.returncode:
        sys.exit(f"docs: the generator failed ({done.returncode})")
    found = check.problems(site)
    if found:
        sys.exit("\n".join(["docs: the built pages are not right:", *found]))
    print(f"docs: {len(list(site.rglob('*.html')))} pages in {site.relative_to(pages.ROOT)}")


def serve(site: Path, port: int) -> None:
    """Serve the built site on this machine alone."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"docs: http://127.0.0.1:{server.server_port}/ (Ctrl-C ends it)")
        server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/docs", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("build", help="build the site and check it")
    verbs.add_parser("pages", help="write the pages that the generator gets")
    verbs.add_parser("serve", help="build the site and serve it on this machine").add_argument(
        "port", nargs="?", type=int, default=8000
    )
    publish = verbs.add_parser("publish", help="build a version into a folder of versions")
    publish.add_argument("folder", type=Path)
    publish.add_argument("name", help="such as 0.1")
    given = parser.parse_args()
    site = BUILD / "site"
    if given.verb == "pages":
        pages.stage(BUILD / "pages", BUILD / "site.toml", site)
        return
    build(site)
    if given.verb == "publish":
        versions.add(site, given.folder, given.name)
    elif given.verb == "serve":
        serve(site, given.port)


if __name__ == "__main__":
    main()
