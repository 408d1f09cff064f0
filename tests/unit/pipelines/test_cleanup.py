"""A task or batch fails with its own error, whatever becomes of what it wrote."""

import logging

import pyarrow as pa
import pytest
from tests.unit.pipelines.spark_like import Crashed, Site, without_kafka

from headrace.errors import SinkError, SinkUnavailableError
from headrace.pipelines.batch.commit_rows import commit_rows
from headrace.pipelines.batch.manifest import write_rows
from headrace.runtime.cleanup import cleaning_up_after_failure
from headrace.sinks.api import CommitRejection, RejectedValues, Transaction

AWAY = SinkUnavailableError("the store", "it does not answer")


class Failing:
    """A sink and its writer, whose every cleanup fails."""

    positions = None

    def __init__(self, task_id=""):
        del task_id

    def write(self, rows):
        raise SinkError("the table", f"no room for {rows.num_rows} rows")

    def commit(self, pieces, transaction, watermark_us):
        del transaction, watermark_us
        return CommitRejection([RejectedValues("{}", "not-unique", "key")], pieces)

    def abort(self):
        raise AWAY

    def discard(self, pieces):
        del pieces
        raise AWAY


def test_every_cleanup_is_tried_and_what_fails_is_logged(caplog):
    called = []

    def fail():
        called.append("first")
        raise AWAY

    with pytest.raises(ValueError, match="the cause"):  # noqa: SIM117
        with cleaning_up_after_failure(fail, lambda: called.append("second")):
            raise ValueError("the cause")
    assert called == ["first", "second"]
    [record] = caplog.records
    assert (record.levelno, record.getMessage()) == (
        logging.WARNING,
        f"Cannot delete what was written before ValueError: {AWAY}",
    )


def test_a_body_that_succeeds_is_not_cleaned_up():
    with cleaning_up_after_failure(Failing().abort):
        pass


def test_a_task_fails_with_the_error_of_its_write():
    with pytest.raises(SinkError, match="no room for 1 rows"):
        write_rows(Failing, [pa.table({"n": [1]})], "clicks")


def test_a_commit_fails_with_the_error_of_its_dead_letters():
    def reject(rejection):
        raise ValueError(f"{len(rejection.rejected)} dead letters")

    with pytest.raises(ValueError, match="1 dead letters"):
        commit_rows(Failing(), ["piece"], Transaction({}, {}), 0, reject)


def test_a_batch_fails_with_its_own_error_and_the_next_attempt_succeeds(tmp_path, monkeypatch):
    without_kafka(monkeypatch)
    site = Site(tmp_path, str(tmp_path / "lake"))
    site.cluster.create("clicks", 2)
    site.send(10, 10)
    driver = site.started()
    monkeypatch.setattr(driver.end._sink, "discard", Failing().discard)
    site.crash = "letters written"
    with pytest.raises(Crashed):
        driver.batch()
    site.crash = ""
    assert driver.batch()
    assert sum(site.rows().values()) == 16
