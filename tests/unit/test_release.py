"""What ``scripts/release`` makes of the change notes and the version, and what the Containerfile names."""

import os
import re
import shutil
import tomllib
import zipfile
from pathlib import Path

import pytest
import releasing

import drumline

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tree(tmp_path):
    """A checkout with two notes."""
    for name in ("CHANGELOG.md", "pyproject.toml", str(releasing.VERSION_FILE)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(
        f"# Changelog\n\n{releasing._UNRELEASED}\n## [0.0.9] - 2026-01-01\n\n### Fixed\n\n- Old.\n"
    )
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "README.md").write_text("# Change notes\n")
    (tmp_path / "changes" / "ports.fix.md").write_text("Ports are leased.\nTwo jobs never share one.\n")
    (tmp_path / "changes" / "df.feature.md").write_text("`drumline df` shows sizes.\n")
    return tmp_path


def test_notes_are_folded_below_what_is_not_released(tree):
    releasing.fold_notes(tree, "0.2.0", "2026-11-30")
    text = (tree / "CHANGELOG.md").read_text()
    assert text == (
        f"# Changelog\n\n{releasing._UNRELEASED}\n"
        "## [0.2.0] - 2026-11-30\n\n### Added\n\n- `drumline df` shows sizes.\n\n"
        "### Fixed\n\n- Ports are leased.\n  Two jobs never share one.\n\n"
        "## [0.0.9] - 2026-01-01\n\n### Fixed\n\n- Old.\n"
    )
    assert [path.name for path in (tree / "changes").iterdir()] == ["README.md"]
    with pytest.raises(releasing.ReleaseError, match="no notes"):
        releasing.fold_notes(tree, "0.3.0", "2026-12-01")


def test_many_notes_are_told_by_a_text(tree):
    for number in range(40):
        (tree / "changes" / f"n{number}.fix.md").write_text("Mended.\n")
    with pytest.raises(releasing.ReleaseError, match=r"has 42 notes: write .* to changes/RELEASE\.md"):
        releasing.fold_notes(tree, "0.2.0", "2026-11-30")
    (tree / "changes" / "RELEASE.md").write_text("Faster.\n")
    releasing.fold_notes(tree, "0.2.0", "2026-11-30")
    assert "## [0.2.0] - 2026-11-30\n\nFaster.\n\n## [0.0.9]" in (tree / "CHANGELOG.md").read_text()
    assert [path.name for path in (tree / "changes").iterdir()] == ["README.md"]


def test_a_release_that_is_wrong_is_refused(tree):
    with pytest.raises(releasing.ReleaseError, match=r"has 0\.0\.9 already"):
        releasing.fold_notes(tree, "0.0.9", "2026-11-30")
    with pytest.raises(releasing.ReleaseError, match="is not newer"):
        releasing.prepare(tree, "0.0.1", "", quick=True)
    with pytest.raises(releasing.ReleaseError, match="is not a version"):
        releasing.prepare(tree, "1.0", "", quick=True)
    (tree / "changes" / "speed.faster.md").write_text("Fast.\n")
    with pytest.raises(releasing.ReleaseError, match=r"speed\.faster\.md is not named"):
        releasing.list_notes(tree)


def test_every_note_of_this_checkout_can_be_folded():
    for note in releasing.list_notes(ROOT):
        assert note.read_text().strip(), note.name
    assert releasing._UNRELEASED in (ROOT / "CHANGELOG.md").read_text()


def test_versions_are_in_order():
    ordered = ["0.1.0", "0.2.0a1", "0.2.0rc1", "0.2.0rc2", "0.2.0", "0.10.0", "1.0.0"]
    assert sorted(ordered, key=releasing.parse_version) == ordered


def test_the_version_stands_in_one_place(tree):
    assert "version" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert releasing.read_version(ROOT) == drumline.__version__
    releasing.write_version(tree, "0.2.0rc1")
    assert releasing.read_version(tree) == "0.2.0rc1"
    releasing.write_source(tree, "https://example.org/drumline")
    assert releasing.read_source(tree) == "https://example.org/drumline"
    assert tomllib.loads((tree / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"][
        "custom"
    ]["source"]


def test_a_wheel_holds_the_package_and_its_manual_alone(tmp_path):
    files = {
        "drumline/py.typed": "",
        "drumline-0.2.0.data/data/share/man/man1/drumline-job.1": "",
        "drumline-0.2.0.dist-info/METADATA": "Name: drumline\n",
    }
    for name in ("own.whl", "strange.whl"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
        files["tests/test_it.py"] = ""
    releasing.check_wheel(tmp_path / "own.whl", "")
    with pytest.raises(releasing.ReleaseError, match=r"not the package's: tests/test_it\.py"):
        releasing.check_wheel(tmp_path / "strange.whl", "")


def test_the_extra_all_has_all_others():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        name
        for extra in ("all", "data")
        for line in extras[extra]
        for name in re.fullmatch(r"drumline\[(.+)\]", line)[1].split(",")
    }
    assert named == extras.keys() - {"all"}


def test_the_containerfile_names_what_is_there():
    text = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    known = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "CMD"}
    assert {line.split()[0] for line in lines} == known
    stages, copied = set(), set()
    for line in lines:
        words = line.split()
        if words[0] == "FROM" and "AS" in words:
            stages.add(words[-1])
        if words[0] == "COPY" and words[1].startswith("--from="):
            assert words[1].removeprefix("--from=") in stages
        elif words[0] == "COPY":
            copied |= set(words[1:-1])
    assert all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {"pyproject.toml", "README.md", "src", *project["project"]["license-files"]}
    needed |= {
        hook["path"] for hook in project["tool"]["hatch"]["metadata"]["hooks"].values() if "path" in hook
    }
    assert needed <= copied, "what builds the wheel"
    assert "drumline" in project["project"]["scripts"]
    extras = set(re.findall(r"EXTRAS=(\S+)", (ROOT / "Containerfile").read_text())) - {'""'}
    for extra in extras:
        assert set(extra.split(",")) <= project["project"]["optional-dependencies"].keys()


def test_only_the_working_interpreters_are_used(tmp_path, monkeypatch):
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\necho 'pyenv: version not installed' >&2\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setattr(releasing, "find_uv", lambda: "")
    assert releasing.find_python("3.12") == ""
    shim.write_text("#!/bin/sh\necho 3.12\n")
    assert releasing.find_python("3.12") == str(shim)


def test_the_licence_covers_what_a_wheel_carries_of_others():
    """It was Apache-2.0 alone, beside libraries of the studio's page under MIT."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    licences = ROOT / "src" / "drumline" / "studio" / "page" / "vendor" / "LICENSES.txt"
    if not licences.exists():
        pytest.skip("the libraries of the page are not there, which scripts/setup studio fetches")
    carried = set(re.findall(r"^\S+ \d\S* \(([\w.-]+)\)$", licences.read_text(), re.MULTILINE))
    assert "MIT" in carried
    assert carried <= set(project["license"].split(" AND "))


def test_an_sdist_has_the_studios_page():
    """A wheel that is built from it without npm had none."""
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert "custom" in targets["sdist"]["hooks"]
    assert "custom" in targets["wheel"]["hooks"]


@pytest.mark.parametrize(("extra", "bound"), [("studio", "h11>=0.16"), ("azure", "azure-identity>=1.16.1")])
def test_versions_with_known_holes_are_not_installed(extra, bound):
    """CVE-2025-43859 and CVE-2024-35255."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [one for one in extras[extra] if one.startswith(bound)]
