"""Azure's blobs, on Azurite."""

import hashlib
from pathlib import Path

import pytest
from services import ACCOUNT, ACCOUNT_KEY, Azurite
from store_reading import found_in, whole

from drumline.contract.errors import NodeError
from drumline.staging.stores import azure
from drumline.staging.stores.store import ObjectChangedError

FILES = {
    "digits/train/0.bin": b"zero" * 1000,
    "digits/train/sub/a b # % ü.txt": "ü".encode(),
    "digits/empty.txt": b"",
    "digits/marker": b"",
    "digits/marker/inside.txt": b"x",
    "digits-too/other.txt": b"no",
}


@pytest.fixture(scope="module")
def container(azurite: Azurite) -> str:
    azurite.make_container("reading", FILES)
    return "reading"


@pytest.fixture
def known(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in azurite.environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("known")
class TestReading:
    def test_a_folder_is_listed_without_its_neighbours_and_markers(self, azurite, container, open_uri):
        store = open_uri(azurite.uri(container, "digits"))
        found = found_in(store)
        assert {path: one.size for path, one in found.items()} == {
            "train/0.bin": 4000,
            "train/sub/a b # % ü.txt": 2,
            "empty.txt": 0,
            "marker/inside.txt": 1,
        }
        assert store.stat() is None
        assert store.can_list
        assert store.ranges
        for path, one in found.items():
            assert whole(store, one, 999) == FILES[f"digits/{path}"]

    def test_a_file_is_one_object(self, azurite, container, open_uri):
        store = open_uri(azurite.uri(container, "digits/train/0.bin"))
        found = store.stat()
        assert (found.path, found.size) == ("", 4000)
        assert store.read(found, 2, 6) == b"roze"
        assert open_uri(azurite.uri(container, "digits/nothing")).stat() is None
        assert found_in(open_uri(azurite.uri(container, "digits/nothing"))) == {}

    def test_versions_of_listing_and_look_are_the_same(self, azurite, container, open_uri):
        listed = found_in(open_uri(azurite.uri(container, "digits/train")))["0.bin"]
        assert open_uri(azurite.uri(container, "digits/train/0.bin")).stat().version == listed.version

    def test_what_was_written_meanwhile_is_not_read(self, azurite, container, open_uri):
        azurite.put(container, "changing", b"old")
        store = open_uri(azurite.uri(container, "changing"))
        found = store.stat()
        azurite.put(container, "changing", b"new")
        with pytest.raises(ObjectChangedError, match="changing changed, or was removed"):
            store.read(found, 0, 3)

    def test_the_digest_is_that_of_the_content(self, azurite, container, open_uri):
        content = bytes(1 << 20)
        azurite.put(container, "large", content)
        store = open_uri(azurite.uri(container, "large"))
        assert store.digest(store.stat()) == ("md5", hashlib.md5(content).hexdigest())

    def test_small_and_large_files_are_written(self, azurite, container, open_uri, tmp_path: Path):
        store = open_uri(azurite.uri(container, "written"))
        large = bytes(range(256)) * 80_000
        for name, content in {"a/small.txt": b"few", "empty": b"", "large.bin": large}.items():
            (tmp_path / "file").write_bytes(content)
            told: list[int] = []
            store.put(name, str(tmp_path / "file"), told.append)
            assert sum(told) == len(content)
            assert azurite.get(container, f"written/{name}") == content
        assert len(told) > 2

    def test_all_of_a_container(self, azurite, open_uri):
        azurite.make_container("small-one", {"a": b"1"})
        assert list(found_in(open_uri(azurite.uri("small-one")))) == ["a"]

    @pytest.mark.parametrize("bad", ["a/\tb", "a//b", "n" * 300])
    def test_names_that_are_none_here_are_refused(self, azurite, open_uri, bad):
        name = f"bad-names-{len(bad)}-{bad.count(chr(47))}"
        azurite.make_container(name, {f"x/{bad}": b""})
        with pytest.raises(NodeError) as caught:
            found_in(open_uri(azurite.uri(name, "x")))
        assert repr(bad)[1:5] in caught.value.message.replace("x/", "")

    def test_a_container_that_is_not_there(self, azurite, open_uri):
        with pytest.raises(NodeError, match=r"404 \(ContainerNotFound: .*\)") as caught:
            found_in(open_uri(azurite.uri("nothing-here", "x")))
        assert "account" in caught.value.hint


class TestAccess:
    def test_nobody_is_let_in_and_told_what_to_set(self, azurite, container, open_uri):
        record = {"endpoint": azurite.endpoint}
        with pytest.raises(NodeError, match="403") as caught:
            found_in(open_uri(azurite.uri(container, "digits"), record))
        assert "without any credentials" in caught.value.hint
        assert "AZURE_STORAGE_CONNECTION_STRING" in caught.value.hint

    def test_everybody_where_the_container_is_public(self, azurite, open_uri):
        azurite.make_container("public-one", {"a": bytes(1 << 20)}, is_public=True)
        store = open_uri(azurite.uri("public-one"), {"endpoint": azurite.endpoint})
        found = found_in(store)["a"]
        assert store.digest(found) == ("md5", hashlib.md5(bytes(1 << 20)).hexdigest())

    def test_the_datastores_key(self, azurite, container, open_uri):
        record = {"endpoint": azurite.endpoint, "credentials": {"account_key": ACCOUNT_KEY}}
        assert open_uri(azurite.uri(container, "digits/train/0.bin"), record).stat().size == 4000

    @pytest.mark.usefixtures("known")
    def test_the_datastores_key_at_the_endpoint_of_the_connection(self, azurite, container, open_uri):
        wrong = ACCOUNT_KEY.replace("Eby8", "AAAA")
        record = {"name": "lab", "endpoint": "core.windows.net", "credentials": {"account_key": wrong}}
        with pytest.raises(NodeError, match="403") as caught:
            found_in(open_uri(azurite.uri(container, "digits"), record))
        assert "with the account key of the datastore 'lab'" in caught.value.hint
        assert wrong not in str(caught.value)

    @pytest.mark.parametrize("by", ["datastore", "connection", "address"])
    def test_a_signature(self, azurite, container, open_uri, monkeypatch, by):
        uri, record, sas = azurite.uri(container, "digits/train/0.bin"), {}, azurite.signature()
        if by == "datastore":
            record = {"endpoint": azurite.endpoint, "credentials": {"sas_token": f"?{sas}"}}
        elif by == "connection":
            text = f"BlobEndpoint={azurite.endpoint};AccountName={ACCOUNT};SharedAccessSignature={sas}"
            monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
        else:
            uri, record = f"{uri}?{sas}", {"endpoint": azurite.endpoint}
        store = open_uri(uri, record)
        azurite.put(container, "digits/train/0.bin", FILES["digits/train/0.bin"])
        assert whole(store, store.stat()) == FILES["digits/train/0.bin"]
        assert "sig" not in store.url_shown

    def test_a_signature_that_is_for_nothing_is_not_told(self, azurite, container, open_uri):
        record = {
            "endpoint": azurite.endpoint,
            "credentials": {"sas_token": azurite.signature("r")[:-6] + "AA%3D"},
        }
        with pytest.raises(NodeError) as caught:
            found_in(open_uri(azurite.uri(container, "digits"), record))
        assert "sig" not in caught.value.message.replace("signature", "")

    def test_another_accounts_connection_is_not_for_this_one(self, azurite, container, open_uri, monkeypatch):
        text = azurite.connection_string.replace(f"AccountName={ACCOUNT}", "AccountName=other")
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
        with pytest.raises(NodeError, match="403"):
            found_in(open_uri(azurite.uri(container, "digits"), {"endpoint": azurite.endpoint}))

    def test_keys_of_variables_go_to_azure_alone(self, azurite, container, open_uri, monkeypatch):
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", ACCOUNT)
        monkeypatch.setenv("AZURE_STORAGE_KEY", ACCOUNT_KEY)
        with pytest.raises(NodeError, match="403"):
            found_in(open_uri(azurite.uri(container, "digits"), {"endpoint": azurite.endpoint}))

    def test_a_key_of_nobodys_account_is_shown_to_none(self, monkeypatch):
        for name in ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sig=word")
        assert azure._variable_credential("lab") is None
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "lab")
        assert azure._variable_credential("lab") is not None
        assert azure._variable_credential("another") is None

    def test_a_connections_secrets_go_to_its_own_server_alone(self, open_uri, monkeypatch):
        monkeypatch.setenv(
            "AZURE_STORAGE_CONNECTION_STRING", "AccountName=127;SharedAccessSignature=sig=word"
        )
        with pytest.raises(NodeError, match="connection refused") as caught:
            found_in(open_uri("wasb://c1@127.0.0.1:9/a"))
        assert "without any credentials" in caught.value.hint

    def test_nobody_answers(self, open_uri):
        with pytest.raises(NodeError, match="connection refused") as caught:
            found_in(
                open_uri("abfss://c1@lab.dfs.core.windows.net/a", {"endpoint": "http://127.0.0.1:9/lab"})
            )
        assert "127.0.0.1" not in caught.value.message
        assert "HTTPS_PROXY" in caught.value.hint
