"""Which pipelines can't be reprocessed."""

import pytest

from headrace import Join, Lake, Pipeline, Topic
from headrace.errors import ReprocessRefusedError
from headrace.pipelines.reprocessing.checks import refuse_inexact, refuse_older_topic
from headrace.pipelines.source.offsets import SourceOffset

TOPIC = SourceOffset("clicks", "new", {0: 10, 1: 10}, 0)


class Store:
    """The numbers that a table records."""

    def __init__(self, recorded):
        self.recorded = recorded

    def versions(self, app_ids):
        return {name: self.recorded[name] for name in app_ids if name in self.recorded}


def test_a_join_is_refused_as_one():
    join = Join(Topic("clicks"), Topic("views"), ("view", "id"), "view_of_click")
    with pytest.raises(ReprocessRefusedError, match="its source is a Join"):
        refuse_inexact(Pipeline("joined", join, Lake("joined")), [])


def test_a_table_with_rows_of_an_earlier_topic_is_refused_by_the_checkpoint_that_read_it():
    store = Store(
        {
            "headrace.p/1": 7,
            "headrace.p/1/clicks/old/0": 5,
            "headrace.p/2": 3,
            "headrace.p/2/clicks/new/1": 5,
        }
    )
    pipeline = Pipeline("p", Topic("clicks"), Lake("clicks"))
    with pytest.raises(ReprocessRefusedError, match=r"rows of headrace\.p/1,"):
        refuse_older_topic(pipeline, store, TOPIC, 2)


def test_checkpoints_of_the_topic_as_it_is_and_those_without_a_batch_are_no_obstacle():
    store = Store({"headrace.p/2": 3, "headrace.p/2/clicks/new/1": 5})
    refuse_older_topic(Pipeline("p", Topic("clicks"), Lake("clicks")), store, TOPIC, 2)
