"""The lake under the suite that every sink must pass."""

from datetime import timedelta

import pytest
from deltalake import DeltaTable

from headrace import Lake, Unique
from headrace.sinks.api import SinkContext
from headrace.sinks.lake.delta.table import read_table
from headrace.storage.files import list_files
from headrace.testing import SinkContract, SinkLab


class TestLake(SinkContract):
    @pytest.fixture
    def lab(self, tmp_path):
        uri = str(tmp_path / "clicks")

        def read():
            return read_table(uri).to_pylist() if DeltaTable.is_deltatable(uri) else []

        def stored():
            return sum(name.endswith(".parquet") for name in list_files(uri))

        sink = Lake("clicks", partition_by=("day",))
        context = SinkContext("p", str(tmp_path), {}, event_time="at")
        lab = SinkLab(sink, context, read, stored, leftovers_stay=True)
        yield lab
        lab.close()


class TestLakeByValue(TestLake):
    @pytest.fixture
    def lab(self, tmp_path):
        sink = Lake("clicks", partition_by=("id",))
        uri = str(tmp_path / "clicks")

        def read():
            return read_table(uri).to_pylist() if DeltaTable.is_deltatable(uri) else []

        lab = SinkLab(sink, SinkContext("p", str(tmp_path), {}), read)
        yield lab
        lab.close()


class TestUniqueLake(TestLake):
    @pytest.fixture
    def lab(self, tmp_path):
        sink = Lake("clicks", unique=Unique(by=["id"], within=timedelta(days=1)))
        uri = str(tmp_path / "clicks")

        def read():
            return read_table(uri).to_pylist() if DeltaTable.is_deltatable(uri) else []

        lab = SinkLab(sink, SinkContext("p", str(tmp_path), {}, event_time="at"), read)
        yield lab
        lab.close()
