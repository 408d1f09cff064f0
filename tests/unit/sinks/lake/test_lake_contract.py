import pytest
from tests.contracts.delta_lake import DeltaLake
from tests.contracts.memory_lake import MemoryLake
from tests.contracts.sink import SinkContract


class TestMemory(SinkContract):
    @pytest.fixture
    def lake(self):
        return MemoryLake()


class TestLocalFolder(SinkContract):
    @pytest.fixture
    def lake(self, tmp_path):
        return DeltaLake(str(tmp_path / "the lake" / "impressions"))


class TestLocalUri(SinkContract):
    @pytest.fixture
    def lake(self, tmp_path):
        return DeltaLake((tmp_path / "lake" / "impressions").as_uri())
