"""
Versions of the site beside each other, as the theme's selector expects them: ``versions.json`` lists them, ``latest``
is the newest, and the start page leads there. A folder like this can be served by any web server.

mike does the same on a branch of git; the fork of it for this generator is in no package index.
"""

import json
import re
import shutil
from pathlib import Path

NEWEST = "latest"


def add(site: Path, folder: Path, name: str) -> None:
    """Put a built site into ``folder`` under a version's name, replacing that version, and make it the newest."""
    if not re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.+-]*", name) or name == NEWEST:
        raise SystemExit(f"docs: {name!r} cannot be a version's name, such as 0.1")
    folder.mkdir(parents=True, exist_ok=True)
    for place in (folder / name, folder / NEWEST):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(site, place)
    listing = folder / "versions.json"
    known = json.loads(listing.read_text()) if listing.exists() else []
    others = [one for one in known if one["version"] != name]
    for one in others:
        one["aliases"] = []
    newest = {"version": name, "title": name, "aliases": [NEWEST]}
    listing.write_text(json.dumps([newest, *others], indent=2) + "\n")
    (folder / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>Drumline</title>'
        f'<meta http-equiv="refresh" content="0; url={NEWEST}/"><a href="{NEWEST}/">Drumline {name}</a>\n'
    )
    print(f"docs: {folder} has {', '.join([name, *(one['version'] for one in others)])}")
