"""Offline files of a service that had no Kafka: read in order, loaded exactly once.

A line is ``{"table", "row": {..., "body"}, "counter"}``, the body base64 of zlib of JSON.

Contract, for both destinations (:mod:`kafka_destination`, :mod:`postgres_destination`):

- Files are read in the order of their creation, lines in theirs, in batches. A batch is one
  transaction of the destination: what its lines became, its dead letters, and the progress.
- A line is known by (source, counter). One that is done is skipped and counted, wherever it
  stands: files may be copied, renamed, compressed, or read a second time after any crash. A line
  without a counter is known by its bytes.
- Nothing in a file stops the load: what can't be loaded is a dead letter with a reason.
- The end of the newest file may be half written: it is left for the next run.

A loader that follows a folder (:mod:`follow`) is the same load, of files as they are completed.
"""
