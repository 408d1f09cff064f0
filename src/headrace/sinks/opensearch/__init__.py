"""Sink ``opensearch``: documents of an index of OpenSearch or Elasticsearch.

    OpenSearch("clicks", index_by="day")
    OpenSearch("clicks", data_stream=True)
    OpenSearch("accounts", mode=WriteMode.UPSERT, key=("account_id",), newest_by="changed_at")

Each row is one document. Tasks send them by ``_bulk``; the driver writes the positions of the batch
behind the last answer.

Ids and order:
- APPEND: the id of a document is that of its event, by the columns of ``unique``, or else
  ``topic id:partition:offset``, with ``:index`` behind it for an event of an envelope. A document
  whose id exists stays as it is, and the row is counted in ``opensearch_repeated_rows``. Values
  are not compared. Of two rows of one ``write`` with one id the first one is sent.
- UPSERT: the id is that of ``key``. A row takes the place of the document unless that is newer by
  ``newest_by``, which is its version (``external_gte``); an older row is counted in
  ``opensearch_older_rows``. Of rows with one time, the one that is written last stays: within a
  task the later one, and of two batches that of the later batch. Of two tasks of one batch, as of
  ``min_tasks`` or of several sources, it is not known which.
- An id of one column is its value as text, of several a JSON array of them. An empty id, and one of
  more than 512 bytes, is a dead letter.
- With ``index_by``, the index is named by the event time of the row in UTC:
  ``clicks-2026.11.30``. A row that is read again goes where it went before, whatever the day is.
  Without ``index_by`` there is one index.
- With ``data_stream``, documents have the event time in ``@timestamp``, too, and go into the newest
  index of the stream. An id is unique within that alone: a batch that is repeated after a rollover,
  and a topic that is read again, add their rows again.

Delivery:
- Effectively once, but for data streams, which are at least once: a batch that is repeated after a
  crash, and a topic that is read again, add nothing. Rows become visible one by one (after a
  refresh of the index), before the batch is committed.
- Each item of a bulk has its own outcome. A document with 429 or 5xx is sent again alone, with
  exponential backoff; where nothing of a bulk is taken, it is sent again in halves. 400 of a
  document is a dead letter. 401, 403, a blocked index, and one that lacks a field of the rows are
  waited for: the start that follows adds the field. A bulk whose answer is lost is sent again: the
  ids make that safe.
- An answer counts only if it is one of the cluster's: an error with its type, or JSON of the form
  that answers to the request have. Any other is that of a proxy, and is waited for.
- Before its first row of an index, a task looks whether that exists, or else the template with
  patterns that match it, and no other of a higher priority. Where neither does, the batch fails:
  the server would guess the fields.
  The next start puts the template. Until the cluster says what exists, no row is sent. The patterns
  are those of one ``index_by``: pipelines of two projects that write to one name with another one
  each take them from the other.
- ``write`` returns once every row is taken or rejected. If nothing is taken for
  ``max_wait_seconds``, it raises SinkUnavailableError with the reason: the pipeline waits, and
  repeats the batch.
- Positions are a document of the index ``headrace-positions``, one for each pipeline and index. It
  is written only if it is as this driver has read it (``if_seq_no``), so of two drivers one fails.
  Whether it was written is known by reading it where the answer is lost: the document names its
  writer. Rows of the driver that failed stay: they are the same documents.
- Of a single index, a batch is refused (TABLE_MISMATCH) where the index is not the one that the
  batches before went into: it was deleted or replaced, by its UUID, or restored, by that of its
  history. A reset of the pipeline to its topic accepts the index as it is. Of indices by time and
  of data streams nothing is compared.

Values:
- A document is kept as it is sent, and its values come back equal: 64-bit integers, decimals (as
  text), microseconds, bytes (base64), ``Any`` as its JSON text. What is indexed may be less exact:
  decimals as ``double``, times to the millisecond. Maps and ``Any`` are kept and not indexed.
- NaN and infinity, which JSON lacks, make a row a dead letter; so do texts of more than 32,766
  bytes, which a ``keyword`` does not take: name their column in ``text``.

The index:
- ``headrace apply``, or else the start, puts the index template ``headrace-NAME``, creates the
  index, and adds fields to both; those of other rows stay, so that pipelines with other
  event classes may share it. A field of another type needs a new index, and is refused.

What it does not do: deletes, and aliases that roll over. A start refuses these, and a data stream
rolls over, too.
"""
