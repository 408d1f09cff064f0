"""Topics that tests make, which are there when they are made."""

import time

from confluent_kafka.admin import NewTopic

from headrace.kafka.client import admin, describe


def make_topic(client, name, partitions=1, **options):
    """Creates a topic; its broker hears of it from the controller after a moment.

    ``options``: those of NewTopic.
    """
    admin(client).create_topics([NewTopic(name, partitions, **options)])[name].result(30)
    while not describe(client, [name]):
        time.sleep(0.05)
