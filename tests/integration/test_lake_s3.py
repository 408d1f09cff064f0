import logging
import uuid
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest
from tests.contracts.delta_lake import DeltaLake
from tests.contracts.sink import SinkSmoke, add, ids, row
from tests.contracts.storage import Place, RemoteStorageContract
from tests.integration.flow import Flow, click
from tests.integration.http_proxy import FaultyProxy

from headrace import Lake
from headrace.errors import (
    BucketMissingError,
    ConditionalWritesError,
    SinkError,
    StorageAccessError,
    StorageUnavailableError,
)
from headrace.pipelines.ledger.entry import merged
from headrace.pipelines.ledger.folder import LedgerFolder
from headrace.service.status import State
from headrace.settings import S3Settings, Secret
from headrace.sinks.api import SinkContext, Transaction
from headrace.sinks.lake.delta.replacing import LakeReplacingDriver
from headrace.sinks.lake.delta.table import LakeTable, read_table
from headrace.sinks.lake.driver import LakeDriver
from headrace.sinks.lake.row_comparison import RowIdentity
from headrace.sinks.lake.upkeep.compaction import Compaction
from headrace.storage import files as storage
from headrace.storage import s3 as objects


@pytest.fixture
def bucket(s3):
    return s3.create_bucket(f"lake-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def lake(s3, bucket):
    return DeltaLake(f"{bucket}/tables/impressions", storage_options=s3.settings.options)


class TestLake(SinkSmoke):
    """The lake of this module, under the part of the contract that rests on storage."""


class TestFiles(RemoteStorageContract):
    @pytest.fixture
    def place(self, s3, bucket):
        return Place(f"{bucket}/files", s3.settings.options)

    @pytest.fixture
    def unanswered(self, s3):
        losses = iter([True])
        proxy = FaultyProxy(
            s3.settings.endpoint, lambda method, _: method == "PUT" and next(losses, False)
        )
        yield replace(s3.settings, endpoint=proxy.endpoint).options
        proxy.close()
        assert len(proxy.lost) == 1

    def test_an_object_whose_writing_failed_is_not_there(self, s3, bucket):
        output = storage.open_output(bucket, "half", s3.settings.options)
        output.__enter__().write(b"half")
        assert not output.__exit__(KeyError, KeyError(), None)
        assert not storage.exists(f"{bucket}/half", s3.settings.options)


class TestCommits:
    def test_a_commit_whose_answer_is_lost_is_in_the_table_once(self, s3, lake):
        """The first creates the table, by delta-rs; the others are headrace's own."""
        behind_faults, proxy = _behind_faults(s3, lake, lambda _, path: "_delta_log/0" in path)
        try:
            for version in range(4):
                losses = iter([True])
                proxy.lose_answer = lambda method, path, losses=losses: (
                    method == "PUT" and "_delta_log/0" in path and next(losses, False)
                )
                add(behind_faults.open(), lake.write([row(version)]), version=version)
        finally:
            proxy.close()
        assert len(proxy.lost) == 4
        assert ids(lake) == [0, 1, 2, 3]

    def test_merging_whose_answer_is_lost_keeps_each_row_once(self, s3, lake):
        table = lake.open()
        for version in range(6):
            add(table, lake.write([row(version)]), version=version)
        losses = iter([True])
        behind_faults, proxy = _behind_faults(
            s3,
            lake,
            lambda method, path: method == "PUT" and "_delta_log/0" in path and next(losses, False),
        )
        try:
            behind_faults.open().compact()
        finally:
            proxy.close()
        assert len(proxy.lost) == 1
        assert ids(lake) == list(range(6))

    def test_rows_that_are_written_once_more_are_there_once_where_the_answer_is_lost(
        self, s3, lake
    ):
        for version in range(3):
            add(lake.open(), lake.write([row(version), row(10 + version, "men")]), version=version)
        losses = iter([True])
        behind_faults, proxy = _behind_faults(
            s3,
            lake,
            lambda method, path: method == "PUT" and "_delta_log/0" in path and next(losses, False),
        )
        try:
            driver = LakeReplacingDriver(behind_faults.spec, RowIdentity("id"), ())
            rows = [row(0), row(1) | {"clicked": True}, row(2, "women"), row(50)]
            pieces = [file.to_json() for file in behind_faults.write(rows)]
            driver.begin((), lambda _: None)
            done = driver.commit(pieces, Transaction({"r": 1}, {"r": None}), 0)
        finally:
            proxy.close()
        assert len(proxy.lost) == 1
        assert dict(done.figures) == {"rows_added": 3, "rows_removed": 2, "rows_kept": 1}
        assert ids(lake) == [0, 1, 2, 10, 11, 12, 50]
        assert {each["id"]: each["campaign"] for each in lake.rows()}[2] == "women"
        assert all(each["clicked"] for each in lake.rows() if each["id"] == 1)

    def test_files_of_a_killed_attempt_are_removed_by_vacuum(self, lake):
        add(lake.open(), lake.write([row(1)]))
        lake.write([row(2), row(3, "men")])
        assert lake.stored() == 3
        spec = lake.spec
        removed = Compaction(spec.root, spec.storage_options).vacuum(timedelta(0)).vacuumed
        assert (removed, lake.stored(), ids(lake)) == (2, 1, [1])


def _behind_faults(s3, lake, lose_answer):
    proxy = FaultyProxy(s3.settings.endpoint, lose_answer)
    options = replace(s3.settings, endpoint=proxy.endpoint).options
    return DeltaLake(lake.spec.root, storage_options=options), proxy


class TestRefusals:
    def test_a_missing_bucket_is_named(self, s3):
        lake = DeltaLake("s3://no-such-bucket/t", storage_options=s3.settings.options)
        with pytest.raises(BucketMissingError, match=r"no-such-bucket.*Create it"):
            LakeDriver(lake.spec)
        with pytest.raises(BucketMissingError):
            LakeTable(lake.spec).versions(["a"])

    def test_wrong_credentials_are_named_and_stay_secret(self, s3, bucket, caplog):
        caplog.set_level(logging.DEBUG)
        wrong = replace(s3.settings, secret_access_key=Secret("not-the-secret")).options
        lake = DeltaLake(f"{bucket}/t", storage_options=wrong)
        reading = LakeTable(lake.spec).versions
        for attempt, argument in ((LakeDriver, lake.spec), (reading, ["a"])):
            with pytest.raises(StorageAccessError, match="SignatureDoesNotMatch") as caught:
                attempt(argument)
            assert "not-the-secret" not in f"{caught.value}{lake.spec!r}{caplog.text}"

    def test_a_server_that_is_away_is_waited_for(self, s3, bucket, monkeypatch):
        monkeypatch.setattr(objects, "RETRIES", {"max_retries": 1})
        away = S3Settings("http://127.0.0.1:1", allow_http=True, access_key_id="a").options
        lake = DeltaLake(f"{bucket}/t", storage_options=away | {"secret_access_key": "b"})
        with pytest.raises(StorageUnavailableError, match=r"\[s3\]"):
            LakeDriver(lake.spec)

    @pytest.mark.parametrize(("status", "says"), [(200, "overwrites"), (501, "conditional")])
    def test_a_server_without_conditional_writes_is_refused(self, s3, lake, status, says):
        proxy = FaultyProxy(s3.settings.endpoint, lambda *_: False)
        proxy.condition_failed = status
        options = replace(s3.settings, endpoint=proxy.endpoint).options
        spec = replace(lake.spec, storage_options=options)
        try:
            with pytest.raises(ConditionalWritesError, match=says):
                LakeDriver(spec)
        finally:
            proxy.close()
        assert storage.list_files(lake.spec.root, lake.spec.storage_options) == []

    def test_what_delta_rs_cannot_read_keeps_its_own_words(self, s3, lake):
        spec = lake.spec
        log = f"{spec.root}/_delta_log/{0:020}.json"
        storage.write_bytes_atomic(log, b"no json", spec.storage_options)
        with pytest.raises(SinkError, match="Delta log can't be read"):
            LakeTable(spec).versions(["a"])


def test_a_declared_table_is_planned_written_read_merged_and_vacuumed(s3, bucket):
    context = SinkContext("p", f"{bucket}/lake", {}, storage=s3.settings.options)
    clicks, columns = Lake("clicks"), pa.schema([("id", pa.int64())])
    driver = clicks.open(context, columns)
    for number in range(3):
        writer = driver.writers("task")
        writer.write(pa.table({"id": [number]}))
        before = number - 1 if number else None
        driver.commit(writer.close(), Transaction({"a": number}, {"a": before}), 0)
    driver.close(60)
    assert sorted(clicks.read(context)["id"].to_pylist()) == [0, 1, 2]
    wider = columns.append(pa.field("price", pa.float64()))
    assert clicks.changes(context, wider) == ["gets column 'price', double"]
    assert clicks.merge_small_files(context).merged == 3
    assert clicks.remove_dead_files(context).vacuumed == 0
    assert clicks.position_store(context).versions(["a"]) == {"a": 2}


class OnS3(Flow):
    def __init__(self, server, broker, spark, folder):
        super().__init__(broker, spark, folder)
        self.s3 = server.settings
        self.lake = f"{server.create_bucket(self.name)}/lake"

    def settings(self, **changes):
        return super().settings(s3=self.s3, **changes)

    def rows(self, table="fused"):
        return read_table(f"{self.lake}/{table}", None, self.s3.options).to_pylist()


def test_pipelines_land_each_event_once_on_s3(s3, broker, spark, tmp_path):
    """Fused, and with a step, whose reports of bad records are staged in the bucket."""
    flow = OnS3(s3, broker, spark, tmp_path)
    pipelines = flow.pipeline(), flow.stepped()
    for first in (0, 500):
        flow.send([click(n) for n in range(first, first + 500)] + [b"not json"])
        outcomes = flow.run(*pipelines)
        assert {outcome.state for outcome in outcomes.values()} == {State.FINISHED}
    for pipeline in pipelines:
        assert flow.ids(pipeline.name) == {f"e{n}": 1 for n in range(1000)}
    assert len(flow.dead()) == 4
    left = storage.list_files(f"{flow.lake}/_headrace/staging", s3.settings.options)
    assert left == []
    for pipeline in pipelines:
        entries = LedgerFolder(flow.lake, pipeline.name, s3.settings.options).counted({1: 99})
        assert sum(range_.end - range_.start for range_ in merged(entries).ranges) == 1002


def test_a_missing_bucket_ends_a_pipeline_with_the_remedy(s3, broker, spark, tmp_path):
    flow = OnS3(s3, broker, spark, tmp_path)
    flow.lake = "s3://no-such-bucket/lake"
    outcome = flow.run(flow.pipeline())["fused"]
    assert outcome.state is State.FAILED
    assert "headrace does not create buckets" in outcome.reason
