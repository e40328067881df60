"""The page of the studio as files: what must not be in it, how much it weighs, and that its parts are there."""

import asyncio
import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path

import page_libraries as libraries
import pytest
from starlette.requests import Request

from drumline.studio import page_bundle, pages, serve
from drumline.studio.page_bundle import drop_style_space, drop_types
from drumline.studio.pages import Pages
from drumline.studio.security import StudioSettings

PAGE = Path(libraries.PAGE)
PACKAGES = Path(libraries.PACKAGES)
SCRIPTS = sorted((PAGE / "js").rglob("*.js"))
STYLES = sorted((PAGE / "css").glob("*.css"))
MOST_BYTES = 80_000
"""Of our own JavaScript and CSS together, as browsers are sent it, compressed."""

MOST_LINES = 300
MOST_FILES = 14

AS_MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc"
    r"|\beval\(|new Function|setTimeout\(\s*[\"'`]"
)
"""What would read text as markup or as a program: text of jobs must stay text."""

IMPORT = re.compile(r"""(?:\bfrom|\bimport|\bimport\()\s*["']([^"']+)["']""")


def named(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: str(path.relative_to(PAGE)))


@named(SCRIPTS)
def test_no_text_is_read_as_markup_or_as_a_program(path):
    assert AS_MARKUP.findall(path.read_text()) == []


@named(SCRIPTS)
def test_what_a_module_imports_is_there(path):
    for target in IMPORT.findall(path.read_text()):
        assert target.startswith("."), f"a browser cannot find {target}"
        found = (path.parent / target).resolve()
        if found.parent == PAGE / "vendor":
            assert found.name in libraries._MODULES
            assert path.name == "lib.js", "the one file that knows the libraries"
        else:
            assert found in SCRIPTS


@named([*SCRIPTS, *STYLES])
def test_a_file_can_be_read_in_one_go(path):
    most = MOST_LINES if path.suffix == ".js" else 2 * MOST_LINES
    assert len(path.read_text().splitlines()) < most


def test_no_folder_has_more_files_than_one_remembers():
    folders = {path.parent for path in SCRIPTS}
    counts = {str(folder.relative_to(PAGE)): len(list(folder.glob("*.js"))) for folder in folders}
    assert {name: count for name, count in counts.items() if count > MOST_FILES} == {}


def test_our_own_scripts_and_styles_stay_light():
    together = b"".join(
        [
            *(drop_types(path.read_bytes()) for path in SCRIPTS),
            *(drop_style_space(path.read_bytes()) for path in STYLES),
        ]
    )
    assert len(gzip.compress(together, 9)) < MOST_BYTES


def test_browsers_are_sent_scripts_without_their_types():
    request = Request({"type": "http", "headers": [], "path_params": {"hash": "", "path": "js/lib.js"}})
    sent = asyncio.run(Pages(None, None).send_file(request)).body
    assert sent == drop_types((PAGE / "js" / "lib.js").read_bytes())
    assert b"/**" not in sent
    assert not [line for line in sent.splitlines() if line.strip().startswith(b"//")]


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here")
def test_scripts_without_their_types_are_scripts_still(tmp_path):
    """A comment that began within a text would take program with it."""
    (tmp_path / "package.json").write_text('{"type": "module"}')
    for number, path in enumerate(SCRIPTS):
        (tmp_path / f"{number}.js").write_bytes(drop_types(path.read_bytes()))
    checks = [f"import(process.argv[1] + '/{number}.js').catch(tell)" for number in range(len(SCRIPTS))]
    tell = "const tell = (error) => error instanceof SyntaxError && console.log(String(error));"
    command = [
        "node",
        "--input-type=module",
        "--eval",
        f"{tell} await Promise.all([{', '.join(checks)}])",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_index_refers_to_files_that_are_there_and_to_nothing_else():
    text = (PAGE / "index.html").read_text()
    named = re.findall(r'(?:href|src)="([^"]*)"', text)
    assert named
    for one in named:
        assert one.startswith("__STATIC__/"), one
        name = one.removeprefix("__STATIC__/")
        path = PAGE / name
        assert name in (page_bundle.SCRIPT, page_bundle.STYLE) or path.is_file()


def test_a_new_browser_asks_for_few_files():
    """A browser has six connections: of fifty files, most wait for others."""
    named = re.findall(
        r'<(?:link|script)[^>]*(?:href|src)="__STATIC__/([^"]+)"', (PAGE / "index.html").read_text()
    )
    assert sorted(set(named)) == ["css/joined.css", "icon.svg", "js/first.js", "js/joined.js"]


# joined modules


has_libraries = pytest.mark.skipif(
    bool(libraries.find_missing()), reason="scripts/setup studio has fetched nothing here"
)
APART = {PAGE / "js" / "first.js", PAGE / "js" / "login.js"}
"""What index.html and login.html load themselves."""


@has_libraries
def test_all_modules_are_joined_each_once():
    text = page_bundle.join_scripts(str(PAGE)).decode()
    named = re.findall(r'^\$make\["([^"]+)"\]', text, re.MULTILINE)
    own = {str(path.relative_to(PAGE)) for path in SCRIPTS if path not in APART}
    assert len(named) == len(set(named))
    assert {name for name in named if name.startswith("js/")} == own
    assert {name for name in named if name.startswith("vendor/")} == {
        f"vendor/{name}" for name in libraries._MODULES if not name.startswith("uplot")
    }


@has_libraries
def test_nothing_is_left_for_a_browser_to_ask_for():
    text = page_bundle.join_scripts(str(PAGE)).decode()
    left = re.findall(r"""(?:^|[;}])\s*(?:import|export)\b[^.(][^\n]{0,60}""", text, re.MULTILINE)
    assert left == []
    assert re.findall(r"""\bimport\(\s*["'`]([^"'`]*)""", text) == ["../vendor/uplot.js"]


def test_no_module_imports_itself_through_others():
    """Joined, it would begin again before it has ended."""
    needed = {
        path: [
            (path.parent / one).resolve()
            for one in re.findall(r"""\bfrom ["'](\.[^"']+)["']""", path.read_text())
        ]
        for path in SCRIPTS
    }

    def walk(path, above):
        assert path not in above, " -> ".join(one.name for one in [*above, path])
        for target in needed.get(path, ()):
            walk(target, [*above, path])

    for path in SCRIPTS:
        walk(path, [])


@has_libraries
@pytest.mark.skipif(shutil.which("node") is None, reason="no node here")
def test_joined_modules_are_a_program(tmp_path):
    (tmp_path / "joined.mjs").write_bytes(page_bundle.join_scripts(str(PAGE)))
    command = ["node", "--check", str(tmp_path / "joined.mjs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


FORMS = {
    "js/main.js": (
        'import { one, two as other } from "./a/b.js";\nimport whole from "../vendor/c.js";\n'
        'import("./late.js").then(({ late }) => tell(one, other(), whole(), late));\n'
    ),
    "js/a/b.js": (
        'export const one = 1;\nexport function two() {\n  return "two";\n}\nexport { three } from "../d.js";\n'
    ),
    "js/d.js": "const kept = 3;\nexport { kept as three };\n",
    "js/late.js": 'import { three } from "./a/b.js";\nexport class Late {}\nexport const late = three;\n',
    "vendor/c.js": "var n=4;export default function(){return n}\n",
}


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here")
def test_all_forms_of_import_and_export_mean_the_same_joined(tmp_path):
    for name, text in FORMS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    text = page_bundle.join_scripts(str(tmp_path)).decode()
    (tmp_path / "joined.mjs").write_text(
        f"const tell = (...all) => console.log(JSON.stringify(all));\n{text}"
    )
    done = subprocess.run(
        ["node", str(tmp_path / "joined.mjs")], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ('[1,"two",4,3]\n', "")


def test_index_has_no_script_or_style_of_its_own():
    text = (PAGE / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text)


# libraries


def test_versions_are_pinned_with_hashes_and_without_a_registry():
    lock = json.loads((PACKAGES / "package-lock.json").read_text())
    wanted = json.loads((PACKAGES / "package.json").read_text())
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", one) for one in wanted["dependencies"].values())
    packages = {name: one for name, one in lock["packages"].items() if name}
    assert packages
    assert all(one["integrity"].startswith("sha512-") for one in packages.values())
    assert not any("resolved" in one for one in packages.values())
    assert lock["packages"][""]["dependencies"] == wanted["dependencies"]


def test_a_module_names_its_neighbours_by_path():
    text = 'import{h as e}from"preact";import"@preact/signals-core";const x="from preact";\n//# sourceMappingURL=a.map'
    assert (
        libraries._adapt("signals.js", text)
        == 'import{h as e}from"./preact.js";import"./signals-core.js";const x="from preact";\n'
    )


def test_uplot_becomes_a_module():
    assert libraries._adapt("uplot.js", "var uPlot=1;").endswith("\nexport default uPlot;\n")


def test_a_library_that_needs_another_one_is_refused():
    with pytest.raises(libraries.LibrariesError, match="left-pad, which is not among"):
        libraries._adapt("signals.js", 'import pad from"left-pad"')


def test_without_npm_the_reason_is_said(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.argv", ["libraries"])
    assert libraries.main() == 1
    assert capsys.readouterr().err == "page_libraries: no npm here\n"


def test_a_studio_without_libraries_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pages, "FOLDER", str(tmp_path))
    serve._announce("http://localhost:1", "/record", StudioSettings(1))
    assert "the page cannot be shown: this Drumline was built without npm" in capsys.readouterr().err


@pytest.mark.parametrize("left", [[], ["preact.js"]])
def test_missing_and_older_libraries_are_noticed(tmp_path, monkeypatch, left):
    monkeypatch.setattr(libraries, "VENDOR", str(tmp_path))
    for name in left:
        (tmp_path / name).touch()
    assert libraries.find_missing() == (
        "the libraries of the page are of another version"
        if left
        else "the libraries of the page are not there"
    )


@pytest.mark.skipif(bool(libraries.find_missing()), reason="scripts/setup studio has fetched nothing here")
def test_the_libraries_are_there_with_their_licences():
    vendor = Path(libraries.VENDOR)
    assert set(libraries._MODULES) <= {path.name for path in vendor.iterdir()}
    licences = (vendor / "LICENSES.txt").read_text()
    for package in ("preact", "@preact/signals", "@preact/signals-core", "htm", "uplot"):
        assert re.search(rf"^{package} \d+\.\d+\.\d+ \((MIT|Apache-2\.0)\)$", licences, re.MULTILINE)
    for path in vendor.glob("*.js"):
        assert all(name.startswith("./") for name in IMPORT.findall(path.read_text())), path.name


# colours


TOKEN = re.compile(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)")


def luminance(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * one for one in colour[1:])
    channels = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["bg", "panel"])
@pytest.mark.parametrize("name", ["ink", "dim", "accent", "ok", "run", "bad", "warn"])
def test_words_can_be_read_in_both_themes(theme, ground, name):
    """WCAG 2.2 AA: 4.5 to 1 for text."""
    tokens = {found[0]: found[1:] for found in TOKEN.findall((PAGE / "css" / "base.css").read_text())}
    assert contrast(tokens[name][theme], tokens[ground][theme]) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("name", "ground"), [("on-bad", "bad"), ("ink", "bad-wash"), ("ink", "warn-wash"), ("dim", "sunk")]
)
def test_words_on_a_colour_can_be_read(theme, name, ground):
    tokens = {found[0]: found[1:] for found in TOKEN.findall((PAGE / "css" / "base.css").read_text())}
    assert contrast(tokens[name][theme], tokens[ground][theme]) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["bg", "panel"])
def test_the_colours_of_ranks_curves_and_terminals_can_be_read(theme, ground):
    base = {found[0]: found[1:] for found in TOKEN.findall((PAGE / "css" / "base.css").read_text())}
    styles = "".join((PAGE / "css" / name).read_text() for name in ("panels.css", "logs.css"))
    colours = {found[0]: found[1:] for found in TOKEN.findall(styles)}
    assert set(colours) == {f"{letter}{number}" for letter in "sa" for number in range(8)}
    ratios = {name: contrast(one[theme], base[ground][theme]) for name, one in colours.items()}
    assert {name: ratio for name, ratio in ratios.items() if ratio < 4.5} == {}
