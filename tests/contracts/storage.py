"""What a lake asks of the storage that holds its files: run on local folders, HDFS and S3.

A test module subclasses ``StorageContract`` and gives the fixture ``place``, a :class:`Place`.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from tests.contracts.sink import AWKWARD

from headrace.storage import files as storage
from headrace.storage.files import Options

MEBIBYTE = 2**20


@dataclass(frozen=True)
class Place:
    """An empty folder, the options of its storage, and characters that no name has there."""

    uri: str
    options: Options = field(default_factory=dict)
    without: str = ""

    def put(self, name: str, content: bytes = b"") -> None:
        storage.write_bytes_atomic(f"{self.uri}/{name}", content, self.options)

    def get(self, name: str) -> bytes:
        return storage.read_bytes(f"{self.uri}/{name}", self.options)

    def names(self, folder: str = "") -> list[str]:
        return storage.list_files(f"{self.uri}/{folder}".rstrip("/"), self.options)

    def exists(self, name: str) -> bool:
        return storage.exists(f"{self.uri}/{name}", self.options)


class StorageContract:
    def test_names_with_any_character_are_written_listed_and_deleted(self, place):
        def write(name: str) -> None:
            with storage.open_output(place.uri, name, place.options) as stream:
                stream.write(name.encode())

        def read(name: str) -> bytes:
            with storage.open_input(place.uri, name, place.options) as stream:
                return stream.read()

        place.put("plain", b"plain")
        each = (f"c={name}" for name in (*AWKWARD, "a?b", "50%25"))
        names = sorted(name for name in each if not set(name) & set(place.without))
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(write, names))
            assert list(pool.map(read, names)) == [name.encode() for name in names]
        assert place.names() == [*names, "plain"]
        storage.delete_files(place.uri, [*names[:5], "never there"], place.options)
        assert place.names() == [*names[5:], "plain"]
        for _ in range(2):
            storage.delete(place.uri, place.options)
            assert place.names() == []
            assert not storage.exists(place.uri, place.options)

    def test_a_prefix_is_a_whole_name(self, place):
        for name in ("clicks/a", "clicks-2/b", "clicks.json"):
            place.put(name)
        assert place.names("clicks") == ["a"]
        assert (place.exists("clicks"), place.exists("clic")) == (True, False)
        storage.delete(f"{place.uri}/clicks", place.options)
        assert place.names() == ["clicks-2/b", "clicks.json"]

    def test_what_is_missing_is_no_error_of_storage(self, place):
        for read in (place.get, lambda name: storage.open_input(place.uri, name, place.options)):
            with pytest.raises(FileNotFoundError):
                read("none")
        assert (place.names("none"), place.exists("none")) == ([], False)

    def test_of_several_writers_of_a_new_file_one_succeeds(self, place):
        def create(content: bytes) -> bytes | None:
            try:
                storage.write_bytes_new(f"{place.uri}/log/0", content, place.options)
            except FileExistsError:
                return None
            return content

        with ThreadPoolExecutor(4) as pool:
            created = list(filter(None, pool.map(create, [b"0", b"1", b"2", b"3"])))
        assert created == [place.get("log/0")]
        assert create(b"later") is None
        assert place.names() == ["log/0"]

    def test_a_file_is_replaced_and_nothing_else_is_left(self, place):
        for content in (b"one", b"two, and longer", b"3"):
            place.put("deep/file", content)
            assert place.get("deep/file") == content
        assert place.names() == ["deep/file"]

    def test_a_large_file_is_whole(self, place):
        content = bytes(range(256)) * (12 * MEBIBYTE // 256) + b"end"
        place.put("data/marker")
        with storage.open_output(place.uri, "data/large", place.options) as stream:
            stream.write(content[:MEBIBYTE])
            stream.write(content[MEBIBYTE:])
        assert place.get("data/large") == content
        with storage.open_input(place.uri, "data/large", place.options) as stream:
            stream.seek(-4, 2)
            assert stream.read() == b"\xffend"

    def test_a_write_that_fails_leaves_what_was_there(self, place):
        place.put("old", b"kept")
        with pytest.raises((TypeError, ValueError)):
            storage.write_bytes_atomic(f"{place.uri}/old", object(), place.options)
        with pytest.raises((TypeError, ValueError)):
            storage.write_bytes_new(f"{place.uri}/new", object(), place.options)
        assert (place.get("old"), place.exists("new")) == (b"kept", False)
        storage.write_bytes_new(f"{place.uri}/new", b"whole", place.options)
        assert place.get("new") == b"whole"


class RemoteStorageContract(StorageContract):
    """Of servers; gives the fixture ``unanswered`` too: options that lose the answer to a write."""

    def test_a_new_file_whose_answer_is_lost_is_there_whole(self, place, unanswered):
        """Its writer may hear that it is there; who reads it then finds its own content."""
        uri = f"{place.uri}/log/1"
        with suppress(FileExistsError):
            storage.write_bytes_new(uri, b"mine", unanswered)
        with pytest.raises(FileExistsError):
            storage.write_bytes_new(uri, b"other", place.options)
        assert (place.get("log/1"), place.names()) == (b"mine", ["log/1"])
