"""An index that is damaged is made again."""

import shutil

import pytest

from headrace.pipelines.join.declaration import Match
from headrace.pipelines.join.events import KeyedEvent, KeyedEvents, fingerprints
from headrace.pipelines.join.facts import FactIndex
from headrace.pipelines.join.sorted_files import sorted_files

SLICE = 60_000_000
EVENT = KeyedEvent(b"a", 1_000_000_000, 1, b"value")


def index_with_event(folder):
    index = FactIndex(folder, SLICE)
    index.apply("one", sorted_files(KeyedEvents.of([EVENT]), SLICE, Match.ID))
    assert index.find([b"a"], fingerprints([b"a"]), [16], 5) == {b"a": EVENT}
    index.close()


def lose_files(folder):
    for file in (folder / "index").glob("*.sst"):
        file.unlink()


def lose_all(folder):
    shutil.rmtree(folder / "index")


@pytest.mark.parametrize("lose", [lose_files, lose_all])
def test_what_was_lost_is_not_taken_for_what_is_there(tmp_path, lose):
    """Else later events would find nothing, without an error."""
    index_with_event(tmp_path)
    lose(tmp_path)
    index = FactIndex(tmp_path, SLICE)
    assert not index.marks.files
    index.close()


def test_an_index_has_one_process_at_a_time(tmp_path):
    index = FactIndex(tmp_path, SLICE)
    with pytest.raises(Exception, match="lock"):
        FactIndex(tmp_path, SLICE)
    index.close()
    index_with_event(tmp_path)


def applied(index, name, *events):
    index.apply(name, sorted_files(KeyedEvents.of(events), SLICE, Match.ID))


def keys_found(index, keys, slices):
    return set(index.find(keys, fingerprints(keys), slices, 10**9))


def test_keys_with_the_same_fingerprint_are_told_apart(tmp_path):
    """CRC-32 gives both of these words 0x4ddb0c25."""
    index = FactIndex(tmp_path, SLICE)
    there, asked = EVENT._replace(key=b"plumless"), b"buckeroo"
    assert fingerprints([there.key]) == fingerprints([asked])
    applied(index, "one", there)
    assert keys_found(index, [there.key, asked], [16]) == {there.key}
    index.close()


def test_many_files_of_a_slice_are_merged_and_nothing_is_lost(tmp_path):
    keys = [b"%d" % number for number in range(100)]
    for offset, key in enumerate(keys):
        index = FactIndex(tmp_path, SLICE)
        applied(index, f"file-{offset}", EVENT._replace(key=key, offset=offset))
        index.close()
    index = FactIndex(tmp_path, SLICE)
    assert keys_found(index, keys, [16]) == {*keys}
    assert len(list((tmp_path / "index").glob("*.sst"))) < 50
    index.close()


def test_an_expired_slice_leaves_the_disk_at_once(tmp_path):
    index = FactIndex(tmp_path, SLICE)
    old, young = EVENT, EVENT._replace(key=b"b", time_us=EVENT.time_us + SLICE)
    applied(index, "one", old, young)
    index.expire(young.time_us, ["one"])
    assert keys_found(index, [b"a", b"b"], [16, 17]) == {b"b"}
    index.close()
    assert len(list((tmp_path / "index").glob("*.sst"))) == 2  # events and fingerprints
    index = FactIndex(tmp_path, SLICE)
    assert keys_found(index, [b"a", b"b"], [16, 17]) == {b"b"}
    index.close()


def test_a_file_that_is_taken_again_changes_nothing(tmp_path):
    index = FactIndex(tmp_path, SLICE)
    for _ in range(2):
        applied(index, "one", EVENT)
    assert index.find([b"a"], fingerprints([b"a"]), [16], 5) == {b"a": EVENT}
    assert index.find([b"a"], fingerprints([b"a"]), [16], EVENT.offset) == {}
    index.close()
