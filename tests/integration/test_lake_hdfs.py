import subprocess
import uuid

import pytest
from hdfs_native import Client
from tests.contracts.delta_lake import DeltaLake
from tests.contracts.sink import SinkContract, row


class TestHdfs(SinkContract):
    @pytest.fixture
    def lake(self, hdfs):
        return DeltaLake(f"{hdfs.uri}/lake-{uuid.uuid4().hex[:8]}/impressions")

    def test_files_have_the_replication_of_the_server(self, lake, hdfs):
        lake.open().commit(lake.write([row(1)]), app_id="a", batch_id=0)
        path = lake.spec.root.removeprefix(hdfs.uri)
        found = [file for file in Client(hdfs.uri).list_status(path, True) if not file.isdir]
        assert {file.replication for file in found} == {1}


def test_a_process_that_has_used_hdfs_can_still_fork(hdfs):
    """As Spark's launcher does; a child that hangs would be waited for until the time limit."""
    from headrace.sinks import storage

    storage.write_bytes_atomic(f"{hdfs.uri}/fork/file", b"x")
    script = ["python3", "-c", "print('alive')"]
    done = subprocess.run(
        script, preexec_fn=lambda: None, capture_output=True, check=True, timeout=60
    )
    assert done.stdout == b"alive\n"
