"""What errors say while a topic is copied into another one."""

from __future__ import annotations

from headrace.links.errors import LinkLossError, LinkNoPartitionError, Words, WordsOfKind

_AGAIN = "delete the topic of the copies and its records, `headrace apply`, and copy again."

WORDS: WordsOfKind = {
    LinkNoPartitionError: {
        "": Words(
            message="The topic that is copied does not exist, or was deleted.",
            remedy="`headrace apply` creates what is declared.",
        ),
    },
    LinkLossError: {
        "gap": Words(
            remedy="{error.lost:,} offsets are lost, {error.next_offset:,} to "
            f"{{error.last_offset:,}}. To copy what there is: {_AGAIN}",
        ),
        "recreated": Words(
            remedy="Records of the old topic from offset {error.next_offset:,} on are lost, if "
            f"there were any. To copy the topic that there is: {_AGAIN}",
        ),
        "truncated": Words(
            remedy="The brokers lost acknowledged records (unclean leader election, lost disk), "
            f"which the copy still has. To copy what there is: {_AGAIN}",
        ),
    },
}
