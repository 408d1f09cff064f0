import pytest
from tests.contracts.storage import Place, StorageContract

from headrace.storage import files as storage


@pytest.fixture(params=["path", "uri"])
def root(request, tmp_path):
    folder = tmp_path / "a b%20;c"
    return str(folder) if request.param == "path" else folder.as_uri()


class TestLocalFolders(StorageContract):
    @pytest.fixture
    def place(self, root):
        return Place(root)


def test_files_are_listed_below_the_folder_in_order(root):
    for name in ("b", "a/z", "a/b/c"):
        storage.write_bytes_atomic(storage.join(root, name), b"")
    assert storage.list_files(root) == ["a/b/c", "a/z", "b"]


def test_deleting_takes_files_and_folders_and_forgives(root):
    storage.ensure_folder(root, "empty/folder")
    storage.write_bytes_atomic(f"{root}/file", b"")
    storage.delete(f"{root}/file")
    storage.delete(f"{root}/file")
    assert storage.exists(f"{root}/empty/folder")
    storage.delete(root)
    assert not storage.exists(root)


def test_a_relative_path_is_one_below_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    storage.write_bytes_atomic("lake/file", b"x")
    assert (tmp_path / "lake" / "file").read_bytes() == b"x"


@pytest.mark.parametrize(
    ("uri", "joined"), [("/lake/", "/lake/t/x"), ("hdfs://h:1/lake", "hdfs://h:1/lake/t/x")]
)
def test_names_are_joined_with_one_slash(uri, joined):
    assert storage.join(uri, "t", "x") == joined
