"""Topics that tests make, which are there when they are made."""

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewPartitions, NewTopic
from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.kafka.client import admin_request, describe


def make_topic(client, name, partitions=1, **options):
    """Creates a topic; its broker hears of it from the controller after a moment.

    ``options``: those of NewTopic.
    """
    topic = NewTopic(name, partitions, **options)
    try:
        # Not by `admin`: another thread may discard that client, which cancels its requests.
        admin_request(
            client, lambda admin: admin.create_topics([topic])[name].result(LIMIT_SECONDS)
        )
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # a request that was repeated
            raise
    wait_for(lambda: describe(client, [name]))


def grow_topic(client, name, partitions):
    """Gives a topic more partitions, ``partitions`` in all, which brokers know afterwards."""
    grown = NewPartitions(name, partitions)
    admin_request(
        client, lambda admin: admin.create_partitions([grown])[name].result(LIMIT_SECONDS)
    )
    wait_for(lambda: describe(client, [name])[name].partitions == partitions)
