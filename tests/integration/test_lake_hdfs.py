import subprocess
import uuid

import pytest
from hdfs_native import Client
from hdfs_native.fsspec import HdfsFileSystem
from tests.contracts.delta_lake import DeltaLake
from tests.contracts.sink import SinkSmoke, add, row
from tests.contracts.storage import Place, RemoteStorageContract
from tests.unit.pipelines.spark_like import Site, once, without_kafka

from headrace.spark.lock import lock_folder

ESCAPED = ":;?#"  # by the lake; the client of HDFS takes them for parts of a URI


class TestFiles(RemoteStorageContract):
    @pytest.fixture
    def place(self, hdfs):
        return Place(f"{hdfs.uri}/files-{uuid.uuid4().hex[:8]}", without=ESCAPED)

    @pytest.fixture
    def unanswered(self, monkeypatch):
        rename = HdfsFileSystem.mv

        def lose_answer(files, *paths, **options):
            rename(files, *paths, **options)
            monkeypatch.undo()
            raise OSError("the connection is gone")

        monkeypatch.setattr(HdfsFileSystem, "mv", lose_answer)
        return {}


class TestLake(SinkSmoke):
    @pytest.fixture
    def lake(self, hdfs):
        return DeltaLake(f"{hdfs.uri}/lake-{uuid.uuid4().hex[:8]}/impressions")

    def test_files_have_the_replication_of_the_server(self, lake, hdfs):
        add(lake.open(), lake.write([row(1)]))
        path = lake.spec.root.removeprefix(hdfs.uri)
        found = [file for file in Client(hdfs.uri).list_status(path, True) if not file.isdir]
        assert {file.replication for file in found} == {1}


def test_a_process_that_has_used_hdfs_can_still_fork(hdfs):
    """As Spark's launcher does; a child that hangs would be waited for until the time limit."""
    from headrace.storage import files as storage

    storage.write_bytes_atomic(f"{hdfs.uri}/fork/file", b"x")
    script = ["python3", "-c", "print('alive')"]
    done = subprocess.run(
        script, preexec_fn=lambda: None, capture_output=True, check=True, timeout=60
    )
    assert done.stdout == b"alive\n"


def test_two_project_folders_on_one_lake_add_each_row_once(hdfs, tmp_path, monkeypatch):
    """As two machines would: no lock is in the way of the second, only the table's positions."""
    without_kafka(monkeypatch)
    site = Site(tmp_path / "one", f"{hdfs.uri}/lake-{uuid.uuid4().hex[:8]}")
    other = site.other(tmp_path / "other")
    site.cluster.create("clicks", 2)
    site.send(10, 5)
    site.run()
    for place in ("planned", "files written", "letters written"):
        site.send(4, 4)
        first, second = site.started(), other.started()
        site.beside[place] = second.batch
        while first.batch():
            pass
    other.run()
    assert site.rows() == once(22, 17)
    locks = [lock_folder(one.folder, one.lake) for one in (site, other)]
    assert locks[0] != locks[1]
