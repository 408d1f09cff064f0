"""An index that is damaged is made again."""

import shutil

import pytest

from headrace.pipelines.join.declaration import Match
from headrace.pipelines.join.events import KeyedEvent
from headrace.pipelines.join.facts import FactIndex, sorted_file

SLICE = 60_000_000
EVENT = KeyedEvent(b"a", 1_000_000_000, 1, b"value")


def index_with_event(folder):
    index = FactIndex(folder, SLICE)
    index.apply("one", [sorted_file([EVENT], SLICE, Match.ID)])
    assert index.find([b"a"], [16], 5) == {b"a": EVENT}
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
