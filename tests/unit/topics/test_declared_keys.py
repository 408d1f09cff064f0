from __future__ import annotations

from headrace.kafka.admin.topics import KnownKey
from headrace.model import Topic
from headrace.topics.declared_keys import read_keys, remember_keys


class Click:
    id: str


def test_keys_are_remembered_with_the_topics_id_beside_those_of_others(tmp_path):
    clicks = Topic("clicks", event=Click, key="id")
    remember_keys(tmp_path, [Topic("raw"), clicks], {"raw": "1"})
    remember_keys(tmp_path, [clicks], {"clicks": "2"})
    assert read_keys(tmp_path) == {"raw": KnownKey("1", None), "clicks": KnownKey("2", "id")}


def test_nothing_is_known_at_first(tmp_path):
    assert read_keys(tmp_path) == {}


def test_a_torn_file_is_as_none(tmp_path):
    (tmp_path / "topics.json").write_bytes(b"")
    assert read_keys(tmp_path) == {}
    remember_keys(tmp_path, [Topic("raw")], {"raw": "1"})
    assert read_keys(tmp_path) == {"raw": KnownKey("1", None)}
