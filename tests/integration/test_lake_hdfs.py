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
