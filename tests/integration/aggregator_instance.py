"""An instance of standing queries as a process, which SIGTERM ends.

SIGUSR1 has it write its last status and the stacks of its threads.
"""

import faulthandler
import json
import logging
import os
import signal
import sys
from collections import deque
from datetime import datetime

from headrace.model.event import event_schema
from headrace.queries.declaration import StandingQueries
from headrace.queries.windows.instance.instance import AggregatorInstance


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
    statuses = deque(maxlen=1)

    def describe(*_):
        logging.getLogger(__name__).warning("%d: %s", os.getpid(), list(statuses))
        faulthandler.dump_traceback()

    signal.signal(signal.SIGUSR1, describe)
    instance.run(statuses.append)


if __name__ == "__main__":
    main()
