"""What errors of mirrors, mergers and dispatchers say: one class in the words of each kind."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from headrace import errors
from headrace.links.mirror.kind import KIND as MIRROR
from headrace.project import kinds as registry
from headrace.project.kinds import kinds
from headrace.settings.kinds import kinds_below
from headrace.spark.remote_errors import RemoteError, original_error

MESSAGES = [
    (
        errors.LinkRunningError("mirror", "m", 2),
        "MIRROR_RUNNING",
        (
            "Instances of the link are running: mirror 'm', instances 2. Stop them first; a "
            "killed one is a member of the group for ten seconds more."
        ),
    ),
    (
        errors.LinkNotRefusedError("mirror", "m", "", "a/0"),
        "MIRROR_NOT_REFUSED",
        (
            "Nothing of the partition is lost: there is nothing to accept: mirror 'm', "
            "partition 'a/0'. `headrace mirror list` shows which partitions are refused, and "
            "why."
        ),
    ),
    (
        errors.LinkRecordError(
            "mirror", "m", "waw", "a/0", 5, "too large", "waw.a", "", "max.message.bytes"
        ),
        "MIRROR_RECORD",
        (
            "A record can't be written as it is (mirror 'm', site 'waw', partition 'a/0', "
            "offset 5, setting 'max.message.bytes'): too large. To keep it: give waw.a a "
            "larger max.message.bytes than its sources have. To leave it out: stop the "
            "instances of m, then `headrace mirror accept m a/0 --to 6`."
        ),
    ),
    (
        errors.LinkRecordError(
            "mirror", "m", "waw", "a/0", 5, "its header is no text", "waw.a", ""
        ),
        "MIRROR_RECORD",
        (
            "A record can't be written as it is (mirror 'm', site 'waw', partition 'a/0', "
            "offset 5): its header is no text. To leave it out: stop the instances of m, then"
            " `headrace mirror accept m a/0 --to 6`."
        ),
    ),
    (
        errors.LinkNoPartitionError("mirror", "m", "waw", "a/0"),
        "MIRROR_TOPIC_MISSING",
        (
            "A topic of the source does not exist, or was deleted: mirror 'm', site 'waw', "
            "partition 'a/0'. Create it, or take it out of Mirror 'm'. It is looked for every"
            " 30 seconds."
        ),
    ),
    (
        errors.LinkNoLeaderError("mirror", "m", "waw", "a/0"),
        "MIRROR_NO_LEADER",
        (
            "A partition has no leader: all brokers with an in-sync replica of it are down: "
            "mirror 'm', site 'waw', partition 'a/0'. Start its brokers: the mirror continues"
            " within 30 seconds after it has one."
        ),
    ),
    (
        errors.LinkNoPartitionError("mirror", "m", "waw", "a/0", "waw.a/0"),
        "MIRROR_NO_COPY",
        (
            "A partition of the source is not mirrored, because its copy does not exist: "
            "mirror 'm', site 'waw', partition 'a/0', copy 'waw.a/0'. Declare as many "
            "partitions for waw.a as the source has, then `headrace apply`."
        ),
    ),
    (
        errors.LinkLossError("mirror", "m", "waw", "a/0", 8, 1010, "", "gap"),
        "MIRROR_GAP",
        (
            "Records were deleted before they were mirrored: mirror 'm', site 'waw', "
            "partition 'a/0', next offset 8, accepted offset 1010. 1,002 offsets are lost, 8 "
            "to 1,009. To continue with what the source has: `headrace mirror accept m a/0`. "
            "To copy everything again: delete the copy, `headrace apply`, and run the mirror."
        ),
    ),
    (
        errors.LinkLossError("mirror", "m", "waw", "a/0", 8000, 0, "", "recreated", "old", "new"),
        "MIRROR_RECREATED",
        (
            "The topic was deleted and created again since it was last mirrored: mirror 'm', "
            "site 'waw', partition 'a/0', next offset 8000, accepted offset 0, mirrored topic"
            " id 'old', live topic id 'new'. Records of the old topic from offset 8,000 on "
            "are lost, if there were any; the offsets of the new one mean other records. "
            "To continue with what the source has: `headrace mirror accept m a/0`. To copy "
            "everything again: delete the copy, `headrace apply`, and run the mirror."
        ),
    ),
    (
        errors.LinkLossError("mirror", "m", "waw", "a/0", 8, 5, "", "truncated"),
        "MIRROR_TRUNCATED",
        (
            "The source's log was truncated before a record that has been mirrored: mirror "
            "'m', site 'waw', partition 'a/0', next offset 8, accepted offset 5. The brokers "
            "lost acknowledged records (unclean leader election, lost disk), which the copy "
            "still has; what follows there now is other records. To continue with what the "
            "source has: `headrace mirror accept m a/0`. To copy everything again: delete the"
            " copy, `headrace apply`, and run the mirror."
        ),
    ),
    (
        errors.LinkRunningError("merger", "m", 2),
        "MERGER_RUNNING",
        (
            "Instances of the link are running: merger 'm', instances 2. Stop them first; a "
            "killed one is a member of the group for ten seconds more."
        ),
    ),
    (
        errors.LinkNotRefusedError("merger", "m", "", "a/0"),
        "MERGER_NOT_REFUSED",
        (
            "Nothing of the partition is lost: there is nothing to accept: merger 'm', "
            "partition 'a/0'. `headrace merger list` shows which partitions are refused, and "
            "why."
        ),
    ),
    (
        errors.LinkRecordError(
            "merger", "m", "", "a/0", 5, "too large", "all", "", "cleanup.policy"
        ),
        "MERGER_RECORD",
        (
            "A record can't be written as it is (merger 'm', partition 'a/0', offset 5, "
            "setting 'cleanup.policy'): too large. To keep it: let all not be compacted, or "
            "no record would be without a key."
        ),
    ),
    (
        errors.LinkNoPartitionError("merger", "m", "", "a/0"),
        "MERGER_NO_PARTITION",
        (
            "A topic does not exist, or does not have the partition: merger 'm', partition "
            "'a/0'. All topics of a merger have the same partitions: `headrace apply` makes "
            "the declared ones."
        ),
    ),
    (
        errors.LinkNoLeaderError("merger", "m", "", "a/0"),
        "MERGER_NO_LEADER",
        (
            "A partition has no leader: all brokers with an in-sync replica of it are down: "
            "merger 'm', partition 'a/0'. Start its brokers: the merger continues within 30 "
            "seconds after it has one."
        ),
    ),
    (
        errors.LinkLossError("merger", "m", "", "a/0", 8, 5, "its log was truncated"),
        "MERGER_LOSS",
        (
            "The source does not have the record that comes next (merger 'm', partition "
            "'a/0', next offset 8, accepted offset 5): its log was truncated. To continue at "
            "offset 5: `headrace merger accept m a/0`."
        ),
    ),
    (
        errors.LinkLossError("merger", "m", "", "all/0", 0, 0, "", "target", "old", "new"),
        "MERGER_RECREATED",
        (
            "The target was deleted and created again, and its topic of late records was not: "
            "merger 'm', partition 'all/0', next offset 0, accepted offset 0, mirrored topic id "
            "'old', live topic id 'new'. To merge again all that the sources have: delete the "
            "topic of late records, too, and `headrace apply`; the merger then starts by itself. "
            "What is late in the old one would be there twice otherwise."
        ),
    ),
    (
        errors.LinkNotRefusedError("dispatcher", "d", "waw", "a/0"),
        "DISPATCHER_NOT_REFUSED",
        (
            "Nothing of the partition is lost: there is nothing to accept: dispatcher 'd', "
            "site 'waw', partition 'a/0'. `headrace dispatcher list` shows which partitions "
            "are refused, and why."
        ),
    ),
    (
        errors.LinkRecordError(
            "dispatcher",
            "d",
            "waw",
            "a/0",
            5,
            "too large",
            "",
            "events",
            "message.timestamp.after.max.ms",
        ),
        "DISPATCHER_RECORD",
        (
            "A record can't be written as it is (dispatcher 'd', site 'waw', partition 'a/0',"
            " offset 5, topic 'events', setting 'message.timestamp.after.max.ms'): too large."
            ' To keep it: give events at waw config={"message.timestamp.after.max.ms": '
            '"9223372036854775807"}.'
        ),
    ),
    (
        errors.LinkNoPartitionError("dispatcher", "d", "waw", "a/0"),
        "DISPATCHER_NO_PARTITION",
        (
            "A topic does not exist, or does not have the partition: dispatcher 'd', site "
            "'waw', partition 'a/0'. The source and the topic of the target have the same "
            "partitions: `headrace apply` in the project of their site makes them. They are "
            "looked for every 30 seconds."
        ),
    ),
    (
        errors.LinkNoLeaderError("dispatcher", "d", "waw", "a/0"),
        "DISPATCHER_NO_LEADER",
        (
            "A partition has no leader: all brokers with an in-sync replica of it are down: "
            "dispatcher 'd', site 'waw', partition 'a/0'. Start its brokers: the dispatcher "
            "continues within 30 seconds after it has one."
        ),
    ),
    (
        errors.LinkLossError("dispatcher", "d", "waw", "a/0", 8, 5, "its log was truncated"),
        "DISPATCHER_LOSS",
        (
            "The source does not have the record that comes next (dispatcher 'd', site 'waw',"
            " partition 'a/0', next offset 8, accepted offset 5): its log was truncated. To "
            "continue at offset 5: `headrace dispatcher accept d waw a/0`."
        ),
    ),
]


@pytest.mark.parametrize(("error", "code", "message"), MESSAGES)
def test_an_error_has_the_code_and_the_words_of_its_kind_of_link(error, code, message):
    assert str(error) == message
    assert (error.code, error.exit_code) == (code, 3)
    assert str(original_error(str(RemoteError(error)))) == message


@pytest.mark.parametrize(
    ("error", "facts", "code", "words"),
    [
        (
            errors.LinkLossError,
            ("waw", "a/0", 8, 1010, "", "gap"),
            "RELAY_LOSS",
            ("before they were copied", "1,002 offsets are lost", "`headrace relay accept r a/0`"),
        ),
        (
            errors.LinkLossError,
            ("waw", "a/0", 8, 0, "", "recreated", "old", "new"),
            "RELAY_LOSS",
            ("created again since it was last copied", "run the relay"),
        ),
        (
            errors.LinkLossError,
            ("waw", "a/0", 8, 5, "", "truncated"),
            "RELAY_LOSS",
            ("truncated before a record that has been copied", "run the relay"),
        ),
        (
            errors.LinkLossError,
            ("waw", "a/0", 8, 5, "it moved", "moved"),
            "RELAY_LOSS",
            ("it moved", "`headrace relay accept r waw a/0`"),
        ),
        (
            errors.LinkNoPartitionError,
            ("waw", "a/0", "waw.a/0"),
            "RELAY_NO_PARTITION",
            ("because its copy does not exist", "for waw.a as the source has"),
        ),
    ],
)
def test_a_kind_of_link_without_words_of_its_own_says_what_happened_and_what_to_do(
    monkeypatch, error, facts, code, words
):
    monkeypatch.setitem(sys.modules, "headrace.links.relay.errors", SimpleNamespace(WORDS={}))
    said = error("relay", "r", *facts)
    assert said.code == code
    assert all(word in str(said) for word in words), str(said)


@pytest.mark.parametrize("kind", kinds_below("links"))
def test_errors_that_one_kind_of_link_has_list_codes_of_that_kind_alone(monkeypatch, kind):
    every = (*kinds(), replace(MIRROR, label="relay"))
    monkeypatch.setattr(registry, "kinds", lambda: every)
    assert errors.LinkOffsetError.codes() == ("MIRROR_OFFSET", "RELAY_OFFSET")
    public = (getattr(errors, name) for name in errors.__all__)
    own = [error for error in public if error.__module__ == f"headrace.links.{kind}.errors"]
    codes = {
        code for error in own if issubclass(error, errors.RefusedError) for code in error.codes()
    }
    assert {code for code in codes if not code.startswith(f"{kind.upper()}_")} == set()
