"""Late data: which events are late, where they go, and what a crash repeats of it.

**Event clock.** Each partition of a topic has one: an event time that one event in a hundred of a
batch has reached, two events at least, and no more than about three in a hundred (a percentile
watermark; Akidau et al., "The Dataflow Model", VLDB 2015, section 2.3). Where a batch has a single
event of a partition, the batch before it counts as the second event. The clock never goes back, and
never passes the wall clock at which the batch was planned. So one event from a wrong clock does not
move it.

**Watermark** of a partition: its event clock less ``Pipeline.allowed_lateness``.

**Late** is an event whose event time lies before the watermark of its own partition, as earlier
batches have left it. It is decided where the record is read, before any step. It is not decided
over the topic or over several sources: all of a partition that was paused, or that is read more
slowly than others, would be late. Events without an event time are never late.

Destinations (``Pipeline.late_data``), all counted as ``late_rows``:

======================== =======================================================================
``LateData.KEEP``        They are rows like all others. This is the default.
``LateData.DROP``        They go nowhere. The ledger has them as ``dropped``.
``LateData.DEAD_LETTER`` The record goes to the dead-letter topic with reason ``late-event`` and
                         its own bytes, counted as ``late_dead_letters``. Such letters do not
                         count against ``dead_letter_limit``, but the driver carries them like
                         all: more than 16 MiB in one range of a batch stop the pipeline. A
                         record that is replayed for the pipeline is kept.
a sink                   The event goes to a side table, as the source gives it before any step,
                         counted as ``late_side_rows``.
======================== =======================================================================

What went elsewhere is not in the main table, and steps do not see it. Spark's own watermark
(``Source.watermark``, ``withWatermark``) is another: it follows the newest event of all partitions,
and a step that keeps state takes no row behind it. Such a row can't be kept. With a side table, and
where the step holds the event time as the source gives it against that watermark, an event behind
it is late, too, and goes to the side table before any step. Otherwise it is taken out before the
step (:mod:`headrace.pipelines.late_data.behind_watermark`) and becomes a dead letter
``behind-watermark`` with the row as JSON, counted as ``behind_watermark_rows``. Like those of late
events, such letters do not count against ``dead_letter_limit``, and more than 16 MiB in one task,
or 256 MiB in a batch, stop the pipeline. With ``LateData.DROP`` Spark drops it, as
``dropped_by_watermark_rows``.

**Replay and restart.** The event clocks that decide about a batch are in its offset in Spark's
checkpoint. A batch that is repeated sends each event to where it went before, on any machine. A
restart continues with these clocks; a new checkpoint (``headrace checkpoint reset``) begins without
any, so at first nothing is late.

**Exactly once.** A batch ends in two commits: the side table's first, then the main one. Each
records the batch. A crash between them repeats the batch; the side table holds it already, its rows
are discarded, and the main table gets its own. A side table that records no positions (``Kafka``)
gets the rows again: at least once. A reset to the table between the two commits repeats the late
rows of that one batch, as its new checkpoint knows no batch of the one before.
"""
