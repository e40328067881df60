"""
The pages that the generator gets: those of ``docs/`` and a few of the repository, with every link made to lead inside
the site, and the generated parts of the reference in their places.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from website import commands, records, surface

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = {
    "tutorials": "Tutorials",
    "howto": "How-to guides",
    "reference": "Reference",
    "explanation": "Explanation",
    "development": "Development",
}
FROM_THE_ROOT = {
    "ARCHITECTURE.md": "explanation/architecture.md",
    "SECURITY.md": "explanation/security-policy.md",
    "CONTRIBUTING.md": "development/contributing.md",
    "CHANGELOG.md": "development/changelog.md",
}
GENERATED: dict[str, Callable[[], str]] = {
    "commands": commands.reference,
    "job-files": records.job_files,
    "other-files": records.other_files,
    "python": surface.reference,
    "run-folder": surface.run_folder,
    "events": surface.events,
    "errors": surface.errors,
}
"""What stands in the place of ``<!-- generated: NAME -->`` on the site."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
_FENCE = re.compile(r" *(```+|~~~+)")
_ITEM = re.compile(r"( *)(?:[-*]|\d+\.) ")
_MARK = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)


def sources() -> dict[Path, str]:
    """By file of the repository, its place on the site."""
    found = {path: path.relative_to(ROOT / "docs").as_posix() for path in sorted(ROOT.glob("docs/**/*.*"))}
    found |= {ROOT / name: place for name, place in FROM_THE_ROOT.items() if (ROOT / name).exists()}
    for readme in sorted(ROOT.glob("examples/**/README.md")):
        found[readme] = f"{readme.parent.relative_to(ROOT).as_posix()}/index.md"
    return found


def stage(folder: Path, config: Path, site: Path) -> Path:
    """Write the pages and the generator's configuration, and return the latter."""
    shutil.rmtree(folder, ignore_errors=True)
    places = sources()
    for path, place in places.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(page(path, places))
        else:
            shutil.copyfile(path, target)
    config.write_text(configuration(folder, config, site))
    return config


def page(path: Path, places: dict[Path, str]) -> str:
    """Return a page as the generator gets it."""
    text = path.read_text()
    text = _MARK.sub(lambda found: GENERATED[found[1]](), text)
    return to_python_markdown(_outside_code(text, lambda part: inside_links(part, path, places)))


def inside_links(text: str, path: Path, places: dict[Path, str]) -> str:
    """Make links lead to pages of the site; one to another file of the repository becomes that file's path."""

    def replaced(found: re.Match[str]) -> str:
        image, words, target, anchor = found[1], found[2], found[3], found[4] or ""
        if not target or ":" in target:
            return found[0]
        file = Path(os.path.normpath(path.parent / target))
        if file.is_dir() and file / "README.md" in places:
            file /= "README.md"
        if file in places:
            here = os.path.dirname(places[path])
            return f"{image}[{words}]({os.path.relpath(places[file], here or '.')}{anchor})"
        if not file.exists():
            raise SystemExit(f"docs: {path.relative_to(ROOT)}: {target} does not exist")
        place = f"`{file.relative_to(ROOT).as_posix()}`"
        return place if words.strip("`") in (target, place.strip("`")) else f"{words} ({place})"

    return _LINK.sub(replaced, text)


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """Apply the change to everything but fenced code."""
    parts: list[str] = []
    plain: list[str] = []
    for is_code, line in lines_of(text):
        if is_code:
            parts.append(change("".join(plain)))
            plain = []
            parts.append(line)
        else:
            plain.append(line)
    return "".join(parts) + change("".join(plain))


def lines_of(text: str) -> Iterator[tuple[bool, str]]:
    """Each line, and whether it belongs to fenced code."""
    fence = ""
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if fence:
            yield True, line
            if mark and line.strip() == fence:
                fence = ""
        elif mark:
            fence = mark[1]
            yield True, line
        else:
            yield False, line


def to_python_markdown(text: str) -> str:
    """
    Write GitHub's Markdown as the generator's parser reads it: a list or table begins after an empty line, nested
    lists are indented by four, and a ``|`` in code of a table needs no backslash.
    """
    done: list[str] = []
    in_list = False
    for is_code, line in lines_of(text):
        if is_code:
            done.append(line)
            continue
        before = done[-1] if done else "\n"
        item = _ITEM.match(line)
        if item:
            if not in_list and before.strip():
                done.append("\n")
            in_list = True
            nested = 0 < len(item[1]) < 4
            done.append(" " * (2 * len(item[1])) + line[len(item[1]) :] if nested else line)
            continue
        if not line.startswith(" "):
            in_list = False
        if line.startswith("|"):
            if not before.startswith("|") and before.strip():
                done.append("\n")
            done.append(re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), line))
            continue
        done.append(line)
    return "".join(done)


def configuration(folder: Path, config: Path, site: Path) -> str:
    """Return the generator's configuration with the folders and the navigation."""
    text = (ROOT / "zensical.toml").read_text()
    written = {
        "docs_dir": f'"{os.path.relpath(folder, config.parent)}"',
        "site_dir": f'"{os.path.relpath(site, config.parent)}"',
        "nav": navigation(folder),
    }
    lines = "\n".join(f"{name} = {value}" for name, value in written.items())
    return text.replace("[project]\n", f"[project]\n{lines}\n", 1)


def navigation(folder: Path) -> str:
    """Return the sections, each with its pages in the order in which its index lists them, as TOML."""
    sections = ['  { "Drumline" = "index.md" },']
    for section, title in SECTIONS.items():
        listed = ", ".join(f'"{place}"' for place in listed_in(folder, section))
        sections.append(f'  {{ "{title}" = [{listed}] }},')
    examples = sorted(path.relative_to(folder).as_posix() for path in (folder / "examples").rglob("*.md"))
    listed = ", ".join(f'"{place}"' for place in examples)
    sections.append(f'  {{ "Examples" = [{listed}] }},')
    return "[\n" + "\n".join(sections) + "\n]"


def listed_in(folder: Path, section: str) -> list[str]:
    """Return the index of a section and the pages that it links to. Ends the program if it leaves one out."""
    index = folder / section / "index.md"
    found = [f"{section}/index.md"]
    for link in _LINK.finditer(index.read_text()):
        place = os.path.normpath(f"{section}/{link[3]}")
        if place.startswith(f"{section}/") and place.endswith(".md") and place not in found:
            found.append(place)
    there = {path.relative_to(folder).as_posix() for path in (folder / section).rglob("*.md")}
    if missing := sorted(there - set(found)):
        raise SystemExit(f"docs: {section}/index.md does not list {', '.join(missing)}")
    return found
