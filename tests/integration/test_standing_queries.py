"""Standing queries on the real broker and Spark: registered, matched, added up, answered."""

import json
import threading
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.flow import Flow
from tests.integration.test_sinks import records

from headrace import BatchLimits, StandingQueries, Topic
from headrace.pipelines.progress import PipelineState
from headrace.queries.instance.instance import AggregatorInstance
from headrace.queries.match.sink import MatchQueries
from headrace.queries.registry.record import RegisteredQuery, encode_query
from headrace.queries.registry.topic import write_registry
from headrace.queries.result import decode_result
from headrace.queries.topics import ensure_query_topics

BEGIN = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=30)


class View:
    id: str
    at: datetime
    country: str
    price: float | None


class Queries:
    """Standing queries of a topic of views, and the stages that answer them."""

    def __init__(self, flow):
        self.flow = flow
        self.declared = StandingQueries(f"ads-{uuid.uuid4().hex[:8]}", partitions=3)
        self.topic = Topic(f"views-{uuid.uuid4().hex[:8]}", event=View, event_time="at")
        flow.create(self.topic.name, 1)
        flow.create(self.topic.dead_letters, 1)
        ensure_query_topics(flow.client, self.declared)
        self.pipeline = flow.pipeline(
            "match", source=self.topic, sink=MatchQueries(self.declared), limits=BatchLimits()
        )

    def register(self, query_id, text):
        now = datetime.now(UTC)
        text = text.replace("views", f'"{self.topic.name}"')
        query = RegisteredQuery(
            query_id, text, self.topic.name, 1, now, now, now + timedelta(hours=1)
        )
        write_registry(self.flow.client, self.declared.queries_topic, *encode_query(query))

    def send(self, *views):
        values = [
            json.dumps(
                {
                    "id": f"v{number}",
                    "at": (BEGIN + timedelta(seconds=second)).isoformat(),
                    "country": country,
                    "price": price,
                }
            ).encode()
            for number, (second, country, price) in enumerate(views)
        ]
        self.flow.send(values, topic=self.topic.name)

    def match(self):
        """Matches what is there."""
        outcome = self.flow.run(self.pipeline)[self.pipeline.name]
        assert outcome.state is PipelineState.FINISHED, outcome.reason

    def aggregate(self, until):
        """Runs an instance until its status is as wanted."""
        schemas = {self.topic.name: self.topic.schema}
        instance = AggregatorInstance(self.flow.client, self.declared, schemas)

        def observe(status):
            if until(status):
                instance.stop()

        threading.Timer(60, instance.stop).start()
        instance.run(observe)
        return instance.status()

    def results(self):
        return [
            decode_result(record.value())
            for record in records(self.flow.client, self.declared.results_topic)
        ]


@pytest.fixture
def queries(broker, spark, tmp_path):
    return Queries(Flow(broker, spark, tmp_path, partitions=1))


def test_a_query_is_answered_for_each_window(queries):
    queries.register("q", "SELECT count(*), sum(price) AS total FROM views FACET country")
    queries.send((0, "PL", 1.5), (10, "PL", 2), (20, "DE", None), (70, "DE", 4))
    queries.match()
    queries.send((130, "FR", 1), (131, "FR", 1))
    queries.match()
    queries.aggregate(lambda status: status.results >= 3)
    answers = {(r.begin, r.facets["country"]): dict(r.values) for r in queries.results()}
    first, second = (
        (BEGIN + timedelta(minutes=n)).isoformat().replace("+00:00", "Z") for n in (0, 1)
    )
    assert answers == {
        (first, "PL"): {"count(*)": 2, "total": 3.5},
        (first, "DE"): {"count(*)": 1, "total": None},
        (second, "DE"): {"count(*)": 1, "total": 4.0},
    }
