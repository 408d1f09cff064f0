"""What errors of mergers say."""

from headrace.links.errors import (
    LinkLossError,
    LinkNoPartitionError,
    LinkSameClusterError,
    Words,
    WordsOfKind,
)

WORDS: WordsOfKind = {
    LinkSameClusterError: {},  # all topics of a merger are of one cluster
    LinkLossError: {
        "": Words(),
        "target": Words(
            "MERGER_RECREATED",
            "The target was deleted and created again, and its topic of late records was not.",
            "To merge again all that the sources have: delete the topic of late records, too, and "
            "`headrace apply`; the merger then starts by itself. What is late in the old one "
            "would be there twice otherwise.",
        ),
    },
    LinkNoPartitionError: {
        "": Words(
            remedy="All topics of a merger have the same partitions: `headrace apply` makes the "
            "declared ones."
        )
    },
}
