"""The line that installs what is missing, from wherever this package came."""

import json
import sys
from importlib import metadata

import pytest

from drumline.contract import extras


def installed_as(monkeypatch, direct_url):
    class Distribution:
        def read_text(self, name):
            assert name == "direct_url.json"
            return None if direct_url is None else json.dumps(direct_url)

    monkeypatch.setattr(metadata, "distribution", lambda name: Distribution())


@pytest.mark.parametrize(
    ("direct_url", "arguments"),
    [
        (None, '"drumline[s3]"'),
        (
            {"url": "file:///home/ann/drum%20line", "dir_info": {"editable": True}},
            "-e '/home/ann/drum line[s3]'",
        ),
        ({"url": "file:///home/ann/drumline", "dir_info": {}}, "'/home/ann/drumline[s3]'"),
        ({"url": "file:///tmp/drumline.whl", "archive_info": {}}, '"drumline[s3]"'),
        (
            {"url": "ssh://host/drumline.git", "vcs_info": {"vcs": "git"}},
            "'drumline[s3] @ git+ssh://host/drumline.git'",
        ),
    ],
)
def test_the_line_installs_from_the_clone_that_we_came_from(monkeypatch, direct_url, arguments):
    installed_as(monkeypatch, direct_url)
    assert extras.install_line("s3").endswith(f" install {arguments}")


def test_the_line_installs_from_a_file_that_is_still_there(monkeypatch, tmp_path):
    wheel = tmp_path / "drumline-1-py3-none-any.whl"
    wheel.touch()
    installed_as(monkeypatch, {"url": f"file://{wheel}", "archive_info": {}})
    assert extras.install_line("s3").endswith(f" install '{wheel}[s3]'")


@pytest.mark.parametrize(
    ("receipt", "line"),
    [
        ("uv-receipt.toml", 'uv tool install "drumline[s3]"'),
        ("pipx_metadata.json", 'pipx install --force "drumline[s3]"'),
    ],
)
def test_the_line_names_the_tool_that_installed_us(monkeypatch, tmp_path, receipt, line):
    installed_as(monkeypatch, None)
    (tmp_path / receipt).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert extras.install_line("s3") == line


def test_an_environment_without_pip_is_uvs(monkeypatch):
    installed_as(monkeypatch, None)
    monkeypatch.setattr(sys, "executable", "/venv/bin/python")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(extras.shutil, "which", lambda name: f"/bin/{name}")
    assert extras.install_line("s3") == 'uv pip install --python /venv/bin/python "drumline[s3]"'


def test_the_line_uses_our_own_pip(monkeypatch, tmp_path):
    installed_as(monkeypatch, None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "my venv" / "python"))
    assert extras.install_line("hf").startswith(f"'{tmp_path}/my venv/python' -m pip install ")


@pytest.mark.parametrize(
    ("uri", "package", "extra"),
    [
        ("s3://lab/a", "obstore", "s3"),
        ("abfss://c@lab.dfs.core.windows.net/a", "obstore", "azure"),
        ("hf://lab/net/a", "huggingface_hub", "hf"),
    ],
)
def test_the_package_that_a_place_needs_is_looked_for(monkeypatch, uri, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    assert extras.missing_for(uri) == (package, extra)


def test_a_web_server_needs_no_package():
    assert extras.missing_for("https://host/a") is None
