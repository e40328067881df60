"""The steps of ``scripts/release``: everything is done in a copy of the checkout, and taken over if it is good."""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
HEADINGS = {
    "breaking": "Breaking",
    "feature": "Added",
    "fix": "Fixed",
    "docs": "Documentation",
    "internal": "Internal",
}
"""The headings of a version in the changelog, by the kinds of notes, in their order."""

VERSION_FILE = Path("src", "drumline", "__init__.py")
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_SOURCE = re.compile(r'^source = "([^"]*)"', re.MULTILINE)
_UNRELEASED = "## [Unreleased]\n\nSee [changes/](changes/README.md).\n"
_PAGE = "RELEASE.md"
"""The text of the next version that stands in place of its notes, in ``changes/``."""

_MOST_NOTES = 40
"""A version with more is told by such a text: nobody reads hundreds of lines."""

_SEMANTIC = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:(a|b|rc)(0|[1-9]\d*))?")
_LIMIT_S = 900


class ReleaseError(Exception):
    """The release cannot be made, and why."""


def parse_version(text: str) -> tuple[int, int, int, str, int]:
    """Return the parts of a version; a pre-release sorts before its release. Raises ReleaseError."""
    found = _SEMANTIC.fullmatch(text)
    if found is None:
        raise ReleaseError(f"{text!r} is not a version: 0.2.0, or 0.2.0rc1 before it")
    major, minor, patch, kind, number = found.groups()
    return int(major), int(minor), int(patch), kind or "release", int(number or 0)


def read_version(root: Path) -> str:
    """Return the version that the package has; it stands in one place."""
    found = _VERSION.search((root / VERSION_FILE).read_text())
    assert found, f"{VERSION_FILE} has no __version__"
    return found[1]


def write_version(root: Path, version: str) -> None:
    path = root / VERSION_FILE
    path.write_text(_VERSION.sub(f'__version__ = "{version}"', path.read_text()))


def read_source(root: Path) -> str:
    """Return the public address of the repository; empty while it has none."""
    found = _SOURCE.search((root / "pyproject.toml").read_text())
    assert found, "pyproject.toml has no source"
    return found[1]


def write_source(root: Path, source: str) -> None:
    path = root / "pyproject.toml"
    path.write_text(_SOURCE.sub(lambda _: f'source = "{source}"', path.read_text(), count=1))


def list_notes(root: Path) -> list[Path]:
    """Return the change notes. Raises ReleaseError for a file of no known kind."""
    notes = []
    for path in sorted((root / "changes").iterdir()):
        if path.name in ("README.md", _PAGE):
            continue
        if path.name.count(".") != 2 or path.suffix != ".md" or path.name.split(".")[1] not in HEADINGS:
            raise ReleaseError(f"changes/{path.name} is not named SLUG.KIND.md; kinds: {', '.join(HEADINGS)}")
        notes.append(path)
    return notes


def render_section(version: str, date: str, notes: Sequence[Path]) -> str:
    """Return the part of the changelog that the notes become: a heading for each kind, a bullet for each note."""
    lines = [f"## [{version}] - {date}"]
    for kind, heading in HEADINGS.items():
        chosen = [note for note in notes if note.name.split(".")[1] == kind]
        if chosen:
            lines += ["", f"### {heading}", ""]
        for note in chosen:
            first, *rest = note.read_text().strip().splitlines()
            lines += [f"- {first.removeprefix('- ')}", *(f"  {line}".rstrip() for line in rest)]
    return "\n".join(lines) + "\n"


def fold_notes(root: Path, version: str, date: str) -> None:
    """Move the notes, or the text in their place, into CHANGELOG.md. Raises ReleaseError if they cannot be."""
    notes, page = list_notes(root), root / "changes" / _PAGE
    if not notes:
        raise ReleaseError("there is nothing to release: changes/ has no notes")
    if len(notes) > _MOST_NOTES and not page.exists():
        raise ReleaseError(
            f"changes/ has {len(notes)} notes: write what users read of them, headlines first, to changes/{_PAGE}"
        )
    path = root / "CHANGELOG.md"
    text = path.read_text()
    if f"## [{version}]" in text:
        raise ReleaseError(f"CHANGELOG.md has {version} already")
    if _UNRELEASED not in text:
        raise ReleaseError("CHANGELOG.md has no section for what is not released")
    section = render_section(version, date, notes)
    if page.exists():
        section = f"## [{version}] - {date}\n\n{page.read_text().strip()}\n"
        page.unlink()
    path.write_text(text.replace(_UNRELEASED, f"{_UNRELEASED}\n{section}"))
    for note in notes:
        note.unlink()


def copy_checkout(target: Path) -> None:
    """Copy the files that git tracks, as they are now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)


def run(*argv: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """Run a program in a clean environment, and return its output. Raises ReleaseError with it if the program fails."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV", "DRUMLINE_"))
    }
    done = subprocess.run(
        [str(one) for one in argv],
        cwd=cwd,
        env={**kept, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise ReleaseError(f"{' '.join(map(str, argv))} failed:\n{done.stdout[-4000:]}")
    return done.stdout


def build(root: Path) -> list[Path]:
    """Build the sdist, and the wheel from it, and check their metadata. Raises ReleaseError."""
    run(sys.executable, "-m", "build", "--outdir", root / "dist", root)
    files = sorted((root / "dist").iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    return files


def check_wheel(wheel: Path, source: str) -> None:
    """Check what users get: typed, without tests, with absolute links. Raises ReleaseError."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        text = archive.read(metadata).decode()
    if "drumline/py.typed" not in names:
        raise ReleaseError("the wheel has no py.typed")
    # hatch_build.py adds the manual pages.
    own = r"drumline(/|-[^/]+\.dist-info/|-[^/]+\.data/data/share/man/man1/drumline)"
    strange = [name for name in names if not re.match(own, name)]
    if strange:
        raise ReleaseError(f"the wheel holds files that are not the package's: {strange[0]}")
    relative = re.findall(r"\]\((?!https?://|#)([^)]+)\)", text)
    if source and relative:
        raise ReleaseError(f"the long description has a link that leads nowhere on an index: {relative[0]}")


# clean environments


def find_python(version: str) -> str:
    """Return an interpreter of that version that works; empty if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    found = [shutil.which(f"python{version}"), *map(str, pyenv.glob(f"{version}.*/bin/python"))]
    uv = find_uv()
    if uv:
        said = subprocess.run(
            [uv, "python", "find", "--offline", version], capture_output=True, text=True, check=False
        )
        found.append(said.stdout.strip() if said.returncode == 0 else None)
    probe = "import sys; print('%d.%d' % sys.version_info[:2])"
    for path in filter(None, found):
        said = subprocess.run([path, "-c", probe], capture_output=True, text=True, check=False, cwd="/")
        if said.stdout.strip() == version:
            return path
    return ""


def find_uv() -> str:
    return shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent)) or ""


def try_command(drumline: Path, version: str, folder: Path) -> None:
    """Run the installed command: its version, and a job of two ranks. Raises ReleaseError."""
    home = {"DRUMLINE_HOME": str(folder / "home"), "DRUMLINE_WARM": "off", "PYTHONDONTWRITEBYTECODE": "1"}
    work = folder / "work"
    work.mkdir()
    said = run(drumline, "--version", cwd=folder, **home).strip()
    if said != f"drumline {version}":
        raise ReleaseError(f"{drumline} --version prints {said!r}")
    said = run(drumline, "run", "--procs", "2", "--", "sh", "-c", "echo rank $RANK", cwd=work, **home)
    if "rank 0" not in said or "rank 1" not in said:
        raise ReleaseError(f"a job of two ranks printed {said!r}")
    # The code is stored in the background, which must be over before the folder goes.
    deadline = time.monotonic() + _LIMIT_S
    while not list(folder.glob("home/jobs/*/code.json")):
        if time.monotonic() > deadline:
            raise ReleaseError("the code of the job was not stored")
        time.sleep(0.05)


def check_in_venv(python: str, package: Path, version: str, folder: Path) -> None:
    """Install into a new virtual environment with pip, with all that it requires. Raises ReleaseError."""
    run(python, "-m", "venv", folder / "venv")
    pip = folder / "venv" / "bin" / "pip"
    run(pip, "install", "--quiet", "--disable-pip-version-check", package)
    run(pip, "check", "--disable-pip-version-check")
    inside = folder / "venv" / "bin" / "python"
    run(
        inside,
        "-c",
        "from drumline import MLClient, Input, command; from drumline.v1 import Experiment",
        cwd=folder,
    )
    try_command(folder / "venv" / "bin" / "drumline", version, folder)


def check_with_uv(wheel: Path, version: str, folder: Path) -> None:
    """Install with ``uv tool install``. Raises ReleaseError."""
    variables = {"UV_TOOL_DIR": str(folder / "tools"), "UV_TOOL_BIN_DIR": str(folder / "bin")}
    run(find_uv(), "tool", "install", "--quiet", "--python", sys.executable, wheel, cwd=folder, **variables)
    try_command(folder / "bin" / "drumline", version, folder)


def check_with_pipx(pipx: Sequence[str], wheel: Path, version: str, folder: Path) -> None:
    """Install with ``pipx install``. Raises ReleaseError."""
    variables = {"PIPX_HOME": str(folder / "pipx"), "PIPX_BIN_DIR": str(folder / "bin")}
    run(*pipx, "install", "--quiet", "--python", sys.executable, wheel, cwd=folder, **variables)
    try_command(folder / "bin" / "drumline", version, folder)


def list_checks(files: Sequence[Path], version: str) -> list[tuple[str, Callable[[Path], None] | str]]:
    """Return the checks by name; a text in place of a check is the reason why it is left out."""
    wheel = next(path for path in files if path.suffix == ".whl")
    sdist = next(path for path in files if path.name.endswith(".tar.gz"))
    checks: list[tuple[str, Callable[[Path], None] | str]] = []
    for number in PYTHONS:
        python = find_python(number)
        checks.append(
            (
                f"pip, Python {number}",
                (lambda folder, python=python: check_in_venv(python, wheel, version, folder))
                if python
                else f"no Python {number} on this machine",
            )
        )
    checks.append(
        ("pip, from the sdist", lambda folder: check_in_venv(sys.executable, sdist, version, folder))
    )
    has_uv = bool(find_uv())
    checks.append(
        (
            "uv tool install",
            (lambda folder: check_with_uv(wheel, version, folder)) if has_uv else "no uv here",
        )
    )
    pipx = shutil.which("pipx")
    words = [pipx] if pipx else [sys.executable, "-m", "pipx"]
    checks.append(("pipx install", lambda folder: check_with_pipx(words, wheel, version, folder)))
    return checks


def check_installs(files: Sequence[Path], version: str) -> None:
    """Install in clean environments, and print how it went. Raises ReleaseError at the first failure."""
    for name, check in list_checks(files, version):
        if isinstance(check, str):
            print(f"release: {name}: left out: {check}", flush=True)
            continue
        with tempfile.TemporaryDirectory(prefix="drumline-release-") as folder:
            check(Path(folder))
        print(f"release: {name}: ok", flush=True)


def write_sums(files: Sequence[Path]) -> Path:
    """Write the SHA-256 of the files beside them, for who signs them."""
    path = files[0].parent / "SHA256SUMS"
    path.write_text(
        "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    )
    return path


# the release


def prepare(root: Path, version: str, source: str, *, quick: bool) -> list[Path]:
    """Do everything in that copy of the checkout. Raises ReleaseError."""
    before = read_version(root)
    if (
        parse_version(version) <= parse_version(before)
        and (root / "CHANGELOG.md").read_text().count("## [") > 1
    ):
        raise ReleaseError(f"{version} is not newer than {before}")
    if source:
        write_source(root, source)
    write_version(root, version)
    fold_notes(root, version, datetime.now(UTC).strftime("%Y-%m-%d"))
    files = build(root)
    check_wheel(next(path for path in files if path.suffix == ".whl"), read_source(root))
    if not quick:
        check_installs(files, version)
    return [*files, write_sums(files)]


def take_over(copy: Path, files: Sequence[Path]) -> None:
    """Bring the changes of the copy into the checkout."""
    for name in ("CHANGELOG.md", "pyproject.toml", str(VERSION_FILE)):
        shutil.copyfile(copy / name, ROOT / name)
    for note in (ROOT / "changes").glob("*.md"):
        if not (copy / "changes" / note.name).exists():
            note.unlink()
    (ROOT / "dist").mkdir(exist_ok=True)
    for file in files:
        shutil.copyfile(file, ROOT / "dist" / file.name)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__)
    parser.add_argument("version", help="such as 0.2.0")
    parser.add_argument("--source", default="", metavar="URL", help="the public address of the repository")
    parser.add_argument("--dry-run", action="store_true", help="change nothing in the checkout")
    parser.add_argument("--quick", action="store_true", help="build, and install nowhere")
    given = parser.parse_args(arguments)
    try:
        if not given.dry_run and run("git", "status", "--porcelain", cwd=ROOT).strip():
            raise ReleaseError("the checkout has changes that are not committed")
        with tempfile.TemporaryDirectory(prefix="drumline-release-") as folder:
            copy = Path(folder) / "drumline"
            copy_checkout(copy)
            files = prepare(copy, given.version, given.source, quick=given.quick)
            for file in files:
                print(f"release: {file.name}: {file.stat().st_size:,} bytes")
            if given.dry_run:
                print("release: a dry run: nothing was changed")
                return 0
            take_over(copy, files)
            if not read_source(ROOT):
                print(
                    "release: the repository has no public address (--source URL): links on an index would lead nowhere"
                )
    except ReleaseError as reason:
        print(f"release: {reason}", file=sys.stderr)
        return 1
    print(
        "release: now look at CHANGELOG.md, then:\n"
        f"  git commit -am 'release: {given.version}'\n"
        f"  git tag -s v{given.version} -m {given.version}\n"
        "  push both; CONTRIBUTING.md, Releases, says how the files are signed and published"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
