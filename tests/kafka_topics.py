"""Topics that tests make, which are there when they are made."""

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewPartitions, NewTopic
from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.kafka.client.admin_requests import admin_request, describe
from headrace.kafka.client.offsets import high_watermarks, watermarks


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


def wait_until_settled(client, topic):
    """Waits until no transaction is open in a topic.

    Brokers answer a commit before its markers are in the log: until then, a reader of committed
    records finds the end before them.
    """
    partitions = describe(client, [topic])[topic].all_partitions

    def is_settled():
        stable = {at: latest for at, (_, latest) in watermarks(client, partitions).items()}
        return stable == high_watermarks(client, partitions)

    wait_for(is_settled, f"the end of all transactions in {topic}")
