"""Sink ``bigquery``: a table of BigQuery, written by its Storage Write API.

    BigQuery("clicks")                                            # partitioned by day of event time
    BigQuery("ads.clicks", partition_by="hour", cluster_by=["country"])

Its project and dataset, and where another server than Google's is asked, are in headrace.toml::

    [sinks.bigquery]
    project = "my-project"
    dataset = "ads"

Guarantees:
- Exactly once, without a column in the table and without a query. Each task opens a PENDING stream
  at its first row, appends Arrow rows at offsets, and finalizes it. The driver *prepares* the
  commit: it records the names of the streams and the positions behind the batch, durably. Then it
  commits all streams at once. Readers see the rows of a batch together, or none.
- A prepared commit is decided: what finds one, such as the next start, commits its streams too,
  which changes nothing where they are committed already. So a driver that died, hangs or got no
  answer between the two steps neither loses nor repeats a batch, whatever it does later.
- Of two drivers of a pipeline one prepares: the commit state is changed only as it was read.
- A batch whose streams have expired before anyone committed them is rewritten. Where they are
  so old that BigQuery may have forgotten committed ones, too, the start is refused
  (``COMMIT_UNKNOWN``): an operator looks, and says which it was. The age of streams is counted by
  BigQuery's clock.
- A commit that BigQuery refuses stays prepared, and each start tries again, until the cause is
  removed or an operator says that the batch is void; then it is rewritten.
- A row that the table does not take is a dead letter; the others go in. An append with such rows
  takes none, so it is sent again without them: at the same offset, or into another stream where
  what was sent behind it was not answered.
- An append or commit whose answer was lost is sent again: at an offset that is taken, or of
  streams that are committed, it changes nothing. What passes is waited for: two minutes in the
  task, 20 seconds in a commit, then by the pipeline, for as long as it takes, without using up a
  restart.
- No value is changed: ``columns`` says which column is made of which type, and which values are
  rejected.
- ``apply`` and a start make the table, and add columns. Anything else that differs is refused, and
  so is a table that was recreated since a pipeline wrote to it: its rows are lost. A running
  pipeline notices that before it prepares a batch.

What a crash repeats: the batch, into new streams. Those of the attempt before are never committed,
and expire. What it does not do: keep an order between rows, replace or delete rows, read the table
(``reconcile --recount`` does not count it), make the dataset.

The modules, in the order of a batch: ``declaration``; ``connection`` to the two interfaces;
``table``, ``columns``, ``rejections`` and ``conversion``; ``writer`` in the tasks; ``driver``;
``state``, the commit state of a pipeline, and ``streams``, whether streams are committed.
"""
