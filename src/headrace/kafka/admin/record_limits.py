"""The limits of records: how large they may be, and which settings of a topic limit their times."""

from headrace.model import Topic

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""What headrace's clients send and read; the topic's own limit is the one that counts."""
BROKERS_MAX_MESSAGE_BYTES = 1_048_588
"""The setting message.max.bytes of a broker, by default."""


TIMES_AHEAD, TIMES_BEHIND = "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"
"""Settings of a topic: how far its records' times may be ahead of the broker's, and behind."""
ANY_TIME = 2**63 - 1
"""Their value for no limit, in milliseconds."""


def max_batch_bytes(topic: Topic) -> int:
    """Returns the size of a batch of records that the topic takes, as it is declared."""
    return int(topic.config.get("max.message.bytes", BROKERS_MAX_MESSAGE_BYTES))
