"""Which topics can't be changed into which: what would not be exact is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.errors import TopicChangeRefusedError
from headrace.kafka.admin.topics import topic_states
from headrace.kafka.client.clients import ClientConfig
from headrace.links.change.topics import live_topic
from headrace.model import ByAccount, Topic

_RETENTION = "retention.ms"
_RETENTION_BYTES = "retention.bytes"


def require_fit(config: ClientConfig, old: Topic, new: Topic) -> None:
    """Checks that all records of a topic can be copied, and counted.

    Raises:
        TopicChangeRefusedError: if not.
        TopicMissingError: if one of them is not in Kafka.
        BrokerUnreachableError: if the brokers do not answer.
    """
    live = {topic.name: live_topic(config, topic.name).partitions for topic in (old, new)}
    for reason in _declared_faults(old, new):
        raise TopicChangeRefusedError(old.name, new.name, reason)
    if live[new.name] != new.partitions:
        reason = (
            f"{new.name} declares {new.partitions} partitions, and Kafka has {live[new.name]}: "
            "producers count the declared ones, see `headrace plan`"
        )
        raise TopicChangeRefusedError(old.name, new.name, reason)
    states = topic_states(config, [old.name, new.name])
    settings = {name: state.config for name, state in states.items()}
    for reason in _live_faults(settings[old.name], settings[new.name], live[old.name], new):
        raise TopicChangeRefusedError(old.name, new.name, reason)


def _declared_faults(old: Topic, new: Topic) -> Iterator[str]:
    if old.name == new.name:
        yield "declare another topic, with the partitions and the key that it is to get"
    for topic in (old, new):
        if topic.is_compacted:
            yield (
                f"{topic.name} is compacted: records vanish from both at different times, so that "
                "no count says whether all were copied"
            )
        if topic.envelope is not None:
            yield f"records of {topic.name} are envelopes: the events of one have several keys"
    if type(old.record_format) is not type(new.record_format):
        yield "values are copied as they are, and the two declare different formats"
    if old.key is not None and new.key is None:
        yield f"{new.name} declares no key: its key is the account, which copies do not have"
    by_account = isinstance(new.partitioning, ByAccount) and new.partitioning.account is None
    if old.key is None and new.key is not None and by_account:
        yield (
            f"{new.name} is partitioned by account and has a key, so that the account is in a "
            f"header, which records of {old.name} do not have: it is their key. Declare its field "
            "with ByAccount(account=...)"
        )


def _live_faults(
    old: Mapping[str, str | None], new: Mapping[str, str | None], partitions: int, topic: Topic
) -> Iterator[str]:
    if new.get("message.timestamp.type") == "LogAppendTime":
        yield f"{topic.name} has message.timestamp.type=LogAppendTime: times would not be kept"
    if _is_less(new.get(_RETENTION), old.get(_RETENTION)):
        yield f"{topic.name} has a shorter {_RETENTION}: it would delete copies"
    whole = {
        name: _whole(settings.get(_RETENTION_BYTES), count)
        for name, settings, count in (("old", old, partitions), ("new", new, topic.partitions))
    }
    if _is_less(whole["new"], whole["old"]):
        yield f"{topic.name} has a smaller {_RETENTION_BYTES} as a whole: it would delete copies"


def _whole(limit: str | None, partitions: int) -> str:
    number = int(limit or -1)
    return str(number if number < 0 else number * partitions)


def _is_less(new: str | None, old: str | None) -> bool:
    kept, was_kept = int(new or -1), int(old or -1)
    return kept >= 0 and (was_kept < 0 or kept < was_kept)
