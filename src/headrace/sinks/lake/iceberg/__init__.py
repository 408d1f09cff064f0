"""Tables of the lake in the format Iceberg: ``Lake("impressions", format=Iceberg())``.

Tasks write the Parquet files of a Delta table, with the field ids of the Iceberg table in them, and
hand over what the table records of each, from its own footer. They load no Iceberg library. The
driver, by pyiceberg, adds all files of a batch in one snapshot.

- Positions: each application id is a property of the table, ``headrace.version.ID``. Properties
  decide what the table holds: a merge of files has no position in its snapshot, and expiry removes
  snapshots. The summary of a batch's snapshot shows its positions and metadata, for people, and for
  what a rollback removed.
- Every commit is a snapshot, also one without rows, and rests on the snapshot before it. So of two
  drivers that expect the same, one commits; the other fails with a SinkError.
- A conflict, with another writer or a merge of files: the table is read again, and its properties
  say whether to commit again.
- An answer that is lost, or that does not say whether the commit was made: the properties say that
  too, with the id of the snapshot that each pipeline made last. Files of such a commit are never
  deleted; what no snapshot holds is removed after the retention.
- pyiceberg's own retries are not used: they would not look at positions.
- A rollback to an earlier snapshot removes rows and leaves properties. It is known by the last
  snapshot of the pipeline, which is none of the table's ancestors then: commits are refused, and a
  start of the pipeline too, as after a RESTORE of a Delta table.
- Columns: ``headrace apply`` and the start of the pipeline make the table and add nullable columns,
  since files need the ids. Whole numbers and floats become wider where the class says so.
- Partitions: ``day`` and ``hour`` are Iceberg's transforms of the event time, and no columns; a
  column of the rows is an identity partition, and is in the files too. Values are as in Delta
  tables: null and the empty text are one partition, and read back as null.
- A unique table is read from the catalog before each batch: rows that another engine has deleted
  are no duplicates any more. Merges of small files are known by the summary of their snapshot.
- A part of a reprocessing is one snapshot: an append, or an overwrite where rows go. It goes in
  only while the table has the files that it rewrites, with the rows that were compared.

Deletes of other engines stay in force, their rewrites of files too.
"""
