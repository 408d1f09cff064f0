"""Keys of the control topic."""

import pytest

from headrace.model import TopicPartition
from headrace.workers.consumer_group.pause_requests import _key, _partition

PARTITION = TopicPartition("clicks.eu", 3)


def test_a_key_names_worker_and_partition():
    assert _key("enrich", PARTITION) == b"worker/enrich/clicks.eu/3"
    assert _partition(_key("enrich", PARTITION), "enrich") == PARTITION


@pytest.mark.parametrize(
    "key",
    [
        b"worker/other/clicks/3",
        b"worker/enrich-2/clicks/3",
        b"worker/enrich/clicks",
        b"worker/enrich/clicks/x",
        b"worker/enrich/clicks/-1",
        b"pipeline/enrich/clicks/3",
        b"\xff",
        b"",
    ],
)
def test_what_is_about_others_or_of_later_versions_is_left_alone(key):
    assert _partition(key, "enrich") is None
