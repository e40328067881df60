"""Addresses of data."""

import pytest

from drumline.contract import uris
from drumline.contract.errors import SpecError
from drumline.contract.hiding import has_secret, hide_in_text, hide_secrets


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abfss://c@acc.dfs.core.windows.net/a/b", ("azure", "acc", "c", "a/b")),
        ("wasbs://c@acc.blob.core.windows.net/", ("azure", "acc", "c", "")),
        ("https://acc.blob.core.windows.net/c/a%20b.csv", ("azure", "acc", "c", "a b.csv")),
        ("https://acc.dfs.core.usgovcloudapi.net/c/x", ("azure", "acc", "c", "x")),
        ("abfss://s@onelake.dfs.fabric.microsoft.com/x.Lakehouse/F", ("azure", "onelake", "s", "x.Lakehouse/F")),
        ("s3://bucket", ("s3", "", "bucket", "")),
        ("s3a://my-bucket/a//b", ("s3", "", "my-bucket", "a//b")),
        ("gs://b/k", ("gs", "", "b", "k")),
        ("hf://lab/net/config.json", ("hf", "models", "lab/net", "config.json")),
        ("hf://datasets/lab/digits@v2", ("hf", "datasets", "lab/digits@v2", "")),
        ("http://127.0.0.1:80/a/b.csv?x=1#top", ("http", "", "127.0.0.1:80", "a/b.csv")),
        ("http://h/a#top?x=1", ("http", "", "h", "a")),
        ("s3://b/run#3/x", ("s3", "", "b", "run#3/x")),
    ],
)  # fmt: skip
def test_the_parts_of_an_address(text, expected):
    assert uris.parse_uri(text)[:4] == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ftp://h/x", "no address of data"),
        ("adl://store.azuredatalakestore.net/x", "no address of data"),
        ("abfss://c/x", "not complete"),
        ("abfss://@acc.dfs.core.windows.net/x", "not complete"),
        ("s3:///x", "not complete"),
        ("hf://lab", "not complete"),
        ("https:///x", "not complete"),
        ("s3://b/../x", "cannot have a part"),
        ("https://acc.blob.core.windows.net/c/%2e%2e/x", "not complete"),
        ("s3://b/a\nb", "control characters"),
        ("https://acc.blob.core.windows.net/c/a%00b", "not complete"),
        ("s3://b/a?b/c", r"'s3://b/a\?...': what follows '\?' cannot be used"),
        ("wasbs://c@acc.blob.core.windows.net/a?snapshot=1", "cannot be used"),
        ("https://me:pa/canary@h/x", r"^'https://\.\.\.@h/x': the host or port is not valid"),
        ("https://me:pa?canary@h/x", r"^'https://\.\.\.@h/x': the host or port is not valid"),
        ("https://me:canary@h:8o80/x", r"^'https://\.\.\.@h:8o80/x': the host or port is not valid"),
        ("http://h:65536/x", "the host or port is not valid"),
        ("http://[/x", "the host or port is not valid"),
    ],
)
def test_what_is_none(text, said):
    with pytest.raises(SpecError, match=said):
        uris.parse_uri(text)


@pytest.mark.parametrize(
    ("text", "shown", "is_secret"),
    [
        ("https://a.blob.core.windows.net/c/x?sv=1&sig=abc", "https://a.blob.core.windows.net/c/x?...", True),
        ("https://me:word@h/x", "https://...@h/x", True),
        ("https://word@h/x", "https://...@h/x", True),
        ("git+https://word@h/x", "git+https://...@h/x", True),
        ("https://me:wo/rd@h/x", "https://...@h/x", True),
        ("https://h:80/@scope/x", "https://h:80/@scope/x", False),
        ("https://h/@scope/x:y", "https://h/@scope/x:y", False),
        ("ssh://git@h/x", "ssh://git@h/x", False),
        ("s3://key:word@b/x", "s3://...@b/x", True),
        ("s3://b/a@2:3/x", "s3://b/a@2:3/x", False),
        ("https://h/x?page=2", "https://h/x?...", False),
        ("abfss://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x", False),
        ("/data", "/data", False),
    ],
)
def test_secrets_are_not_shown(text, shown, is_secret):
    assert hide_secrets(text) == shown
    assert has_secret(text) is is_secret


@pytest.mark.parametrize(
    "text", ["get https://me:word@h/x?sig=y 'z'", "https://w@h/x", "no address", "https://h/x?"]
)
def test_a_line_may_keep_its_width(text):
    shown = hide_in_text(text, keeps_width=True)
    assert len(shown) == len(text)
    assert hide_in_text(shown, keeps_width=True) == shown == hide_in_text(shown)
    assert "w" not in shown.replace("no w", "")


@pytest.mark.parametrize("path", ["", "a/", "a/b.csv", "a/.."])
def test_the_name_of_what_is_fetched_leads_nowhere(path):
    place = uris.Place("s3", "", "b", path.strip("/"), "", "", "")
    assert place.name in ("data", "a", "b.csv")
