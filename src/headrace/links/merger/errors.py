"""What errors of mergers say."""

from headrace.links.errors import LinkNoPartitionError, Words, WordsOfKind

WORDS: WordsOfKind = {
    LinkNoPartitionError: {
        "": Words(
            remedy="All topics of a merger have the same partitions: `headrace apply` makes the "
            "declared ones."
        )
    }
}
