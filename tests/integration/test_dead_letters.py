"""Dead letters on a real broker: written with the original bytes, found, replayed once."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition as Assignment
from tests.integration.dead_letters import write_dead_letters
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, wait_for

from headrace.errors import (
    ReplayedRecordError,
    ReplayRefusedError,
    ReplayRunningError,
    SinkError,
    TopicMissingError,
)
from headrace.kafka.admin.topics import (
    Action,
    TopicChange,
    apply_changes,
    plan_topics,
    topic_states,
    with_dead_letters,
)
from headrace.kafka.client import admin_requests, clients
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.dead_letters import letters as dead_letters
from headrace.kafka.dead_letters import replay as replay_module
from headrace.kafka.dead_letters.letters import find_written, scan
from headrace.kafka.dead_letters.replay import MAX_REPLAYS, DeadLetterFilter, Replay, replay
from headrace.kafka.dead_letters.replayed import PartitionId, Window, addressees, windows
from headrace.kafka.dead_letters.sole_replay import sole_replay
from headrace.model import DeadLetter, Topic, TopicPartition
from headrace.settings import KafkaSettings
from headrace.topics.dead_letters.held_letters import find_dead_letters, summarize


@pytest.fixture
def config(broker) -> dict[str, str]:
    return clients.client_config(KafkaSettings(), broker.bootstrap_servers)


@pytest.fixture
def origin(config, topic) -> str:
    """A topic of two partitions with its dead-letter topic."""
    declared = Topic(topic(), partitions=2)
    create(config, declared)
    return declared.name


def create(config, declared: Topic) -> None:
    topics = with_dead_letters([declared], [declared])
    apply_changes(config, plan_topics(topics, topic_states(config, [one.name for one in topics])))


def letter(topic: str, offset: int, **changes) -> DeadLetter:
    values = {"reason": "not-json", "detail": "it is no JSON", "key": b"k", "value": b"{"} | changes
    return DeadLetter(TopicPartition(topic, 1), offset, timestamp_ms=1_700_000_000_000, **values)


def place(config, topic: str) -> PartitionId:
    """Where the records of all letters are from."""
    return PartitionId(TopicPartition(topic, 1), admin_requests.topic_ids(config, [topic])[topic])


def records(config, topic: str) -> list:
    """(partition, key, value, headers) of everything in a topic."""
    live = admin_requests.describe(config, [topic])[topic]
    marks = watermarks(config, live.all_partitions)
    reader = clients.consumer(config)
    reader.assign([Assignment(topic, one.partition, 0) for one in marks])
    found, wanted = [], sum(end for _, end in marks.values())
    while len(found) < wanted:
        message = reader.poll(LIMIT_SECONDS)
        assert message is not None
        if message.error() is None:
            found.append(
                (message.partition(), message.key(), message.value(), message.headers() or [])
            )
    reader.close()
    return found


def test_a_dead_letter_keeps_the_original_bytes_and_says_where_it_came_from(config, origin):
    value = bytes(range(256))
    headers = (("trace", b"\xff"), ("trace", None))
    write_dead_letters(
        config, [letter(origin, 5, key=None, value=value, headers=headers)], "p", "v2"
    )
    [(_, key, found, kept)] = records(config, f"{origin}.dead")
    assert (key, found) == (None, value)
    assert kept[-2:] == [("trace", b"\xff"), ("trace", None)]
    assert dict(kept[:-2]) == {
        "headrace-reason": b"not-json",
        "headrace-detail": b"it is no JSON",
        "headrace-topic": origin.encode(),
        "headrace-topic-id": admin_requests.topic_ids(config, [origin])[origin].encode(),
        "headrace-partition": b"1",
        "headrace-offset": b"5",
        "headrace-timestamp": b"1700000000000",
        "headrace-pipeline": b"p",
        "headrace-version": b"v2",
    }


def test_a_null_value_stays_null(config, origin):
    write_dead_letters(config, [letter(origin, 1, value=None)], "p", "1")
    [stored] = scan(config, origin)
    assert stored.letter.value is None
    assert stored.origin == f"{origin}/1:1"


def test_what_was_written_is_found_by_topic_and_pipeline(config, origin):
    write_dead_letters(config, [letter(origin, 1), letter(origin, 4)], "p", "1")
    write_dead_letters(config, [letter(origin, 2)], "q", "1")
    partition = TopicPartition(origin, 1)
    assert {one.letter.position for one in find_written(config, origin, "p")} == {
        (partition, 1),
        (partition, 4),
    }


@pytest.mark.parametrize("since_ms", [-1, 0])
def test_what_was_written_beside_an_open_transaction_is_found_once_it_ends(
    config, origin, monkeypatch, since_ms
):
    """The loader of offline files writes its letters in transactions."""
    transaction = {"transactional.id": f"loader-of-{origin}"}
    loader = confluent_kafka.Producer(config | transaction)
    loader.init_transactions()
    loader.begin_transaction()
    written = []
    loader.produce(f"{origin}.dead", b"a line", on_delivery=lambda error, _: written.append(error))
    assert loader.flush(FLUSH_SECONDS) == 0
    assert written == [None]
    write_dead_letters(config, [letter(origin, 1)], "p", "1")
    assert not list(scan(config, origin))
    read_ranges = dead_letters.read_ranges

    def end_and_read(*given, **options):
        loader.abort_transaction()
        return read_ranges(*given, **options)

    monkeypatch.setattr(dead_letters, "read_ranges", end_and_read)
    assert [one.letter.offset for one in find_written(config, origin, "p", since_ms)] == [1]


def test_letters_of_a_deleted_topic_of_the_same_name_are_not_taken_for_written(config, origin):
    write_dead_letters(config, [letter(origin, 1)], "p", "1")
    admin_requests.admin(config).delete_topics([origin])[origin].result()
    wait_for(lambda: not admin_requests.topic_ids(config, [origin]))
    create(config, Topic(origin, partitions=2))
    assert not list(find_written(config, origin, "p"))
    assert len(list(scan(config, origin))) == 1


def test_a_missing_dead_letter_topic_is_an_error_that_names_it(config, topic):
    with pytest.raises(TopicMissingError, match=r"\.dead"):
        write_dead_letters(config, [letter(topic(), 1)], "p", "1")


def test_a_letter_that_the_broker_refuses_is_an_error(config, topic):
    declared = Topic(topic(), config={"max.message.bytes": "1000"})
    create(config, declared)
    with pytest.raises(SinkError, match="too large"):
        write_dead_letters(
            config, [letter(declared.name, 1, value=random.randbytes(200_000))], "p", "1"
        )


def test_a_topic_without_dead_letters_has_none(config, topic):
    assert list(scan(config, topic())) == []


def test_a_replay_sends_the_original_once_to_its_own_partition(config, origin):
    write_dead_letters(config, [letter(origin, 5, headers=(("trace", b"1"),))], "p", "1")
    assert replay(config, origin, DeadLetterFilter()) == Replay(
        1, already=0, given_up=0, readers={"p": 1}
    )
    assert replay(config, origin, DeadLetterFilter()) == Replay(sent=0, already=1, given_up=0)
    readers = addressees(["p"], place(config, origin))
    headers = [("trace", b"1"), ("headrace-replays", b"1"), readers]
    assert records(config, origin) == [(1, b"k", b"{", headers)]


def test_a_record_that_two_refused_is_sent_once_for_both(config, origin):
    for pipeline in "qp":
        write_dead_letters(config, [letter(origin, 5)], pipeline, "1")
    write_dead_letters(config, [letter(origin, 6)], "p", "1")
    assert replay(config, origin, DeadLetterFilter()) == Replay(2, 0, 0, readers={"p": 2, "q": 1})
    write_dead_letters(config, [letter(origin, 5)], "late", "1")
    assert replay(config, origin, DeadLetterFilter()) == Replay(1, 3, 0, readers={"late": 1})
    sent = [headers[-1] for _, _, _, headers in records(config, origin)]
    here = place(config, origin)
    assert sent == [addressees(names, here) for names in (["p", "q"], ["p"], ["late"])]


def test_where_replayed_records_lie_is_known_before_they_are_sent(config, origin, monkeypatch):
    """A replay that is cut short leaves an open window; the next one closes it."""

    def cut_short(*_):
        raise SinkError(origin, "cut short")

    write_dead_letters(config, [letter(origin, 5)], "p", "1")
    partitions = admin_requests.describe(config, [origin])[origin].all_partitions
    assert windows(config, origin, partitions) == {}
    with monkeypatch.context() as patch:
        patch.setattr(replay_module, "send_each", cut_short)
        with pytest.raises(SinkError):
            replay(config, origin, DeadLetterFilter())
    assert windows(config, origin, partitions) == {0: Window(0, None), 1: Window(0, None)}
    replay(config, origin, DeadLetterFilter())
    assert windows(config, origin, partitions) == {0: Window(0, 0), 1: Window(0, 1)}


def test_a_dry_run_sends_and_remembers_nothing(config, origin):
    write_dead_letters(config, [letter(origin, 5)], "p", "1")
    assert replay(config, origin, DeadLetterFilter(), dry_run=True).sent == 1
    assert records(config, origin) == []
    assert replay(config, origin, DeadLetterFilter()).sent == 1


def test_replays_by_reason_remember_exactly_what_they_sent(config, origin):
    reasons = ["a", "b", "a", "c", "b"]
    letters = [letter(origin, number, reason=reason) for number, reason in enumerate(reasons)]
    write_dead_letters(config, letters, "p", "1")
    outcomes = [
        replay(config, origin, DeadLetterFilter(reasons=frozenset({reason}))) for reason in "bacab"
    ]
    assert [one.sent for one in outcomes] == [2, 2, 1, 0, 0]
    assert [one.already for one in outcomes] == [0, 0, 0, 2, 2]
    write_dead_letters(config, [letter(origin, 9, reason="a")], "p", "1")
    assert replay(config, origin, DeadLetterFilter()) == Replay(1, 5, 0, readers={"p": 1})


def test_rows_that_a_sink_rejected_are_shown_by_their_own_place_and_not_replayed(config, origin):
    row = DeadLetter(TopicPartition(origin, -1), -1, "conflicting-key", "a", None, b'{"n":1}')
    write_dead_letters(config, [letter(origin, 5), row, row], "p", "1")
    names = [stored.origin for stored in scan(config, origin) if not stored.is_of_record]
    assert len(set(names)) == 2
    for name in names:
        (found,) = find_dead_letters(config, name)
        assert found.letter.value == b'{"n":1}'
    outcome = replay(config, origin, DeadLetterFilter())
    assert outcome == Replay(1, 0, 0, without_record=2, readers={"p": 1})
    assert [key for _, key, _, _ in records(config, origin)] == [b"k"]
    counts = summarize(config, origin, DeadLetterFilter())
    assert (counts.count, counts.waiting, counts.without_record) == (3, 0, 2)


def test_a_replay_can_be_repeated_on_demand(config, origin):
    write_dead_letters(config, [letter(origin, 5)], "p", "1")
    replay(config, origin, DeadLetterFilter())
    assert replay(config, origin, DeadLetterFilter(), again=True).sent == 1


def test_a_record_that_always_comes_back_is_given_up(config, origin):
    count = ("headrace-replays", str(MAX_REPLAYS).encode())
    headers = (count, addressees(["p"], place(config, origin)))
    write_dead_letters(config, [letter(origin, 5, headers=headers)], "p", "1")
    assert replay(config, origin, DeadLetterFilter()) == Replay(sent=0, already=0, given_up=1)


def test_a_replay_that_could_not_be_remembered_sends_nothing(config, origin):
    dice = random.Random(1)
    letters = [letter(origin, n, reason=dice.choice("ab"), value=None) for n in range(40_000)]
    write_dead_letters(config, letters, "p", "1")
    with pytest.raises(ReplayRefusedError):
        replay(config, origin, DeadLetterFilter(reasons=frozenset({"a"})))
    assert records(config, origin) == []


def test_what_was_sent_beside_a_record_that_is_refused_is_not_sent_again(config, topic):
    declared = Topic(topic(), partitions=2, config={"max.message.bytes": "1000"})
    create(config, declared)
    name = declared.name
    letters = [letter(name, 0), letter(name, 1, value=random.randbytes(1000)), letter(name, 2)]
    write_dead_letters(config, letters, "p", "1")
    [(partition, offset)] = [one.position for one in scan(config, name) if one.letter.offset == 1]
    for sent in (2, 0):
        with pytest.raises(ReplayedRecordError, match="too large") as caught:
            replay(config, name, DeadLetterFilter())
        assert caught.value.record == f"{name}/1:1"
        assert caught.value.dead_letter == f"{partition.topic}/{partition.partition}:{offset}"
        assert (caught.value.sent, caught.value.refused) == (sent, 1)
    assert len(records(config, name)) == 2
    change = TopicChange(name, Action.ALTER_CONFIG, "", config={"max.message.bytes": "2000"})
    apply_changes(config, [change])
    assert replay(config, name, DeadLetterFilter()) == Replay(
        1, already=2, given_up=0, readers={"p": 1}
    )


def test_a_second_replay_is_refused_while_one_runs(config, origin, monkeypatch):
    """It would send the same, and overwrite what the first one remembers."""
    letters = [letter(origin, number, reason="ab"[number % 2]) for number in range(4)]
    write_dead_letters(config, letters, "p", "1")
    send_each = replay_module.send_each

    def send_beside_another(*given):
        with pytest.raises(ReplayRunningError, match=origin):
            replay(config, origin, DeadLetterFilter(reasons=frozenset({"b"})))
        return send_each(*given)

    with monkeypatch.context() as patch:
        patch.setattr(replay_module, "send_each", send_beside_another)
        assert replay(config, origin, DeadLetterFilter(reasons=frozenset({"a"}))).sent == 2
    assert replay(config, origin, DeadLetterFilter()).sent == 2
    assert len(records(config, origin)) == 4


def test_of_replays_that_begin_together_one_is_refused(config, origin):
    write_dead_letters(config, [letter(origin, number) for number in range(4)], "p", "1")
    with ThreadPoolExecutor() as threads:
        replays = [threads.submit(replay, config, origin, DeadLetterFilter()) for _ in range(2)]
    errors = [error for one in replays if (error := one.exception())]
    assert all(isinstance(error, ReplayRunningError) for error in errors)
    assert sum(one.result().sent for one in replays if not one.exception()) == 4
    assert len(records(config, origin)) == 4
    assert replay(config, origin, DeadLetterFilter()).already == 4


def test_a_replay_that_its_group_took_for_dead_says_that_it_is_not_remembered(config, origin):
    """Another one may have begun: its memory is not to be overwritten."""
    write_dead_letters(config, [letter(origin, 5)], "p", "1")
    with sole_replay(config, origin) as member:
        member._member_id = "another"
        with pytest.raises(SinkError, match="session"):
            member.commit([Assignment(origin, 0, 7)])
    partitions = admin_requests.describe(config, [origin])[origin].all_partitions
    assert windows(config, origin, partitions) == {}
