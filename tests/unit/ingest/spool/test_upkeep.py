"""What was quarantined comes back or goes for good; so do events that wait."""

import shutil

import pytest
from tests.unit.ingest.spool.kafka import taking

from headrace.errors import SpoolError, SpoolFullError
from headrace.ingest.spool import segment, upkeep
from headrace.ingest.spool.loader import Loader, SendResult
from headrace.ingest.spool.spool import Spool, SpoolLimits


@pytest.fixture
def rejecting(open_spool, record):
    """A spool of which Kafka rejects records 1 and 2 of 4."""
    spool = open_spool()
    spool.append([record(number) for number in range(4)])

    def send(records, _):
        texts = [one.value for one in records]
        places = [place for place, text in enumerate(texts) if text in {b"1", b"2"}]
        return SendResult(rejected=dict.fromkeys(places, "events: too large"))

    loader = Loader(spool, send)
    loader.run_once()
    loader.close()
    return spool


@pytest.fixture
def names():
    return lambda spool: [one.name for one in upkeep.quarantined_files(spool)]


def test_rejected_records_come_back_as_they_were(rejecting, drain, names, record):
    (one,) = upkeep.quarantined_files(rejecting)
    assert (one.kind, one.records, one.reasons) == ("rejected", 2, {"too large": 2})
    assert upkeep.put_back(rejecting, one.name) == 2
    assert rejecting.waiting == 2
    assert names(rejecting) == []
    sent = []
    loader = Loader(rejecting, taking(sent.extend))
    loader.run_once()
    loader.close()
    assert sent == [record(1), record(2)]


def test_a_segment_that_was_quarantined_comes_back_below_the_position(open_spool, record, drain):
    spool = open_spool()
    spool.append([record(number) for number in range(3)])
    [written] = segment.segments(spool.store.folder)
    path = spool.store.path(written)
    content = path.read_bytes()
    path.write_bytes(segment.header(0, version=2) + content[segment.HEADER_BYTES :])
    texts, report = drain()
    assert (texts, report.quarantined) == ([], 1)
    (one,) = upkeep.quarantined_files(spool)
    assert (one.kind, one.records) == ("segment", 0)
    assert "another version" in next(iter(one.reasons))
    with pytest.raises(SpoolError, match="another version"):
        upkeep.put_back(spool, one.name)
    (spool.store.quarantine / one.name).write_bytes(content)
    assert upkeep.put_back(spool, one.name) == 3
    assert drain()[0] == ["0", "1", "2"]


def test_segments_of_another_host_come_back_from_quarantine(tmp_path, open_spool, record, drain):
    spool, other = open_spool(), Spool(tmp_path / "other", SpoolLimits())
    spool.append([record(number) for number in range(3)])
    other.append([record("a"), record("b")])
    (found,) = segment.segments(other.store.folder)
    shutil.copy(other.store.path(found), spool.store.quarantine)
    other.close()
    assert upkeep.put_back(spool, found.name) == 2
    assert drain()[0] == ["0", "1", "2", "a", "b"]


def test_bytes_that_are_no_record_do_not_come_back(rejecting):
    (rejecting.store.quarantine / "x.damaged").write_bytes(b"{}\nbytes")
    with pytest.raises(SpoolError, match="no record"):
        upkeep.put_back(rejecting, "x.damaged")
    upkeep.drop(rejecting, "x.damaged")


def test_names_that_are_not_ours_are_left_alone_and_said(rejecting, names, caplog):
    ours, quarantine = names(rejecting), rejecting.store.quarantine
    assert caplog.messages == []
    for name in ("copy-of-host-a.segment", "notes.txt"):
        (quarantine / name).write_bytes(b"x")
    (quarantine / "folder").mkdir()
    assert names(rejecting) == ours
    assert caplog.messages == [
        f"{quarantine}: ignored, not a file of headrace: copy-of-host-a.segment, folder, notes.txt"
    ]
    with pytest.raises(SpoolError, match="the name that headrace gave it"):
        upkeep.put_back(rejecting, "copy-of-host-a.segment")


@pytest.mark.parametrize("name", ["none.rejected", "../position", "../../other"])
def test_only_files_that_were_quarantined_are_touched(rejecting, name):
    for act in (upkeep.put_back, upkeep.drop):
        with pytest.raises(SpoolError, match="there is no file"):
            act(rejecting, name)
    assert rejecting.store.cursor_file.read().counter == 5


def test_dropping_gives_the_budget_back(rejecting, names):
    before = rejecting.store.state.disk_bytes
    (name,) = names(rejecting)
    upkeep.drop(rejecting, name)
    assert rejecting.store.state.disk_bytes < before
    assert names(rejecting) == []


def test_a_file_that_does_not_fit_beside_what_it_becomes_stays(rejecting, folder, clock, names):
    small = Spool(folder, SpoolLimits(budget_bytes=rejecting.store.state.disk_bytes + 10), clock)
    (name,) = names(small)
    with pytest.raises(SpoolFullError):
        upkeep.put_back(small, name)
    assert names(small) == [name]
    small.close()


def test_of_many_records_that_do_not_all_fit_none_is_put_back(open_spool, folder, clock, record):
    spool = open_spool()
    count = 700
    spool.append([record(number) for number in range(count)])
    appended_bytes = spool.store.state.disk_bytes
    loader = Loader(
        spool,
        lambda records, _: SendResult(
            rejected=dict.fromkeys(range(len(records)), "events: too large")
        ),
    )
    loader.run_once()
    loader.close()
    (one,) = upkeep.quarantined_files(spool)
    assert one.records == count
    room = spool.store.state.disk_bytes + appended_bytes * 9 // 10
    small = Spool(folder, SpoolLimits(budget_bytes=room), clock)
    with pytest.raises(SpoolFullError):
        upkeep.put_back(small, one.name)
    assert small.waiting == 0
    small.close()
    assert upkeep.put_back(spool, one.name) == spool.waiting == count


@pytest.mark.parametrize("torn", [b'{"counter":1,"rea', b"[]", b'{"counter":1}'])
def test_a_file_with_a_torn_line_is_listed_by_name_and_can_be_dropped(rejecting, names, torn):
    (name,) = names(rejecting)
    path = rejecting.store.quarantine / name
    path.write_bytes(path.read_bytes() + torn)
    (one,) = upkeep.quarantined_files(rejecting)
    assert (one.name, one.records) == (name, 0)
    assert "a line can't be read" in next(iter(one.reasons))
    with pytest.raises(SpoolError, match=name):
        upkeep.put_back(rejecting, name)
    upkeep.drop(rejecting, name)
    assert names(rejecting) == []


def test_events_that_wait_are_dropped_and_later_ones_are_replayed(open_spool, record, drain):
    spool = open_spool()
    spool.append([record(number) for number in range(3)])
    assert upkeep.drop_waiting(spool) == 3
    assert not spool.pending
    spool.append([record("later")])
    texts, report = drain()
    assert texts == ["later"]
    assert report.missing == 0


def test_events_are_not_dropped_from_under_a_loader(open_spool, record):
    spool = open_spool()
    spool.append([record(1)])
    loader = Loader(
        spool, lambda records, _: SendResult(waiting=range(len(records)), reason="away")
    )
    with pytest.raises(Exception, match="away"):
        loader.run_once()
    with pytest.raises(SpoolError, match="stop the service first"):
        upkeep.drop_waiting(spool)
    loader.close()
    assert upkeep.drop_waiting(spool) == 1
