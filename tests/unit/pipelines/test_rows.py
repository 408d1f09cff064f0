import pytest

from headrace import Join, Lake, Pipeline, UnsafeValues
from headrace.model import Topic
from headrace.pipelines.rows import validated_partition_columns


class Click:
    n: int
    url: str


LAKE = Lake("clicks", partition_by=("url", "n"))
RESCUING = Lake("clicks", partition_by=("url",), unsafe_values=UnsafeValues.RESCUE)


@pytest.mark.parametrize(
    ("sink", "steps", "judged"),
    [(LAKE, [], ("url",)), (LAKE, [lambda rows: rows], ()), (RESCUING, [], ())],
    ids=["no steps", "a step may make the value safe", "every value has a home"],
)
def test_texts_that_name_directories_are_judged_where_the_record_is_at_hand(sink, steps, judged):
    pipeline = Pipeline("p", source=Topic("clicks", event=Click), sink=sink, steps=steps)
    [source] = pipeline.sources
    assert validated_partition_columns(pipeline, source) == judged


def test_texts_of_the_earlier_topic_of_a_join_name_no_directory():
    join = Join(Topic("clicks", event=Click), Topic("views", event=Click), ("n", "n"), "view")
    pipeline = Pipeline("p", source=join, sink=LAKE)
    later, earlier = pipeline.sources
    assert validated_partition_columns(pipeline, later) == ("url",)
    assert validated_partition_columns(pipeline, earlier) == ()
