"""What Spark's Python workers do with a partition on its way to OpenSearch.

They import this module, and so nothing of headrace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Row

ID, DOCUMENT = "id", "document"
THREADS, MAX_DOCUMENTS, MAX_BYTES = 2, 50_000, 8 << 20
SETTINGS = {
    "thread_count": str(THREADS),
    "chunk_size": str(MAX_DOCUMENTS),
    "max_chunk_bytes": str(MAX_BYTES),
}
_CONFLICT = 409


def load(documents: Iterator[Row], *, url: str, index: str) -> None:
    """Creates documents that are not there.

    Raises:
        RuntimeError: if one is refused for another reason.
    """
    from opensearchpy import OpenSearch
    from opensearchpy.helpers import parallel_bulk

    client = OpenSearch(url, timeout=60)
    items = parallel_bulk(
        client,
        documents,
        index=index,
        thread_count=THREADS,
        chunk_size=MAX_DOCUMENTS,
        max_chunk_bytes=MAX_BYTES,
        expand_action_callback=_lines,
        raise_on_error=False,
    )
    for is_created, item in items:
        if not is_created and item["create"]["status"] != _CONFLICT:
            raise RuntimeError(f"OpenSearch has refused a document: {item}")


def _lines(document: Row) -> tuple[dict[str, dict[str, str]], str]:
    """The action and the document, which is text that the client sends as it is."""
    return {"create": {"_id": document[ID]}}, document[DOCUMENT]
