"""An instance of standing queries as a process, which SIGTERM ends."""

import json
import logging
import signal
import sys
from datetime import datetime

from headrace.model.event import event_schema
from headrace.queries.declaration import StandingQueries
from headrace.queries.instance.instance import AggregatorInstance


class View:
    id: str
    at: datetime
    user: int
    country: str
    n: int


def arguments(client, queries, topic):
    """What follows the interpreter on the command line."""
    spec = [dict(client), queries.name, queries.partitions, queries.partitions_per_instance, topic]
    return ["-m", "tests.integration.aggregator_instance", json.dumps(spec)]


def main():
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    client, name, partitions, per_instance, topic = json.loads(sys.argv[1])
    queries = StandingQueries(name, partitions, per_instance, max_ttl=None)
    instance = AggregatorInstance(client, queries, {topic: event_schema(View)})
    signal.signal(signal.SIGTERM, lambda *_: instance.stop())
    instance.run(lambda _: None)


if __name__ == "__main__":
    main()
