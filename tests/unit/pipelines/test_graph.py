import pytest

from headrace import Lake, Pipeline, UnsafeValues
from headrace.model import Topic, event_schema
from headrace.pipelines.graph import validated_partition_columns


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
    assert validated_partition_columns(pipeline, event_schema(Click)) == judged
