"""Without the packages of the extras."""

import sys

import pytest

from drumline.contract.errors import NodeError


@pytest.mark.parametrize(
    ("uri", "package", "extra"),
    [
        ("abfss://c@lab.dfs.core.windows.net/a", "obstore", "azure"),
        ("s3://lab/a", "obstore", "s3"),
        ("gs://lab/a", "obstore", "gs"),
        ("hf://lab/net/a", "huggingface_hub", "hf"),
    ],
)
def test_what_is_missing_is_named(open_uri, monkeypatch, uri, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.store", None)
    with pytest.raises(NodeError, match=f"{package}, which is not installed") as caught:
        open_uri(uri)
    assert caught.value.hint == f'pip install "drumline[{extra}]"'
