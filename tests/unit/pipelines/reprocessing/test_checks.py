"""Which pipelines can't be reprocessed."""

import pytest

from headrace import Join, Lake, Pipeline, Topic
from headrace.errors import ReprocessRefusedError
from headrace.pipelines.reprocessing.checks import refuse_inexact


def test_a_join_is_refused_as_one():
    join = Join(Topic("clicks"), Topic("views"), ("view", "id"), "view_of_click")
    with pytest.raises(ReprocessRefusedError, match="its source is a Join"):
        refuse_inexact(Pipeline("joined", join, Lake("joined")), [])
