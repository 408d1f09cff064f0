"""Spreads of large accounts that change while producers run: `headrace topics spread`.

Contract, of a topic with ``ByAccount(lead=...)``:

- *The table.* The compacted topic ``_headrace.spreads`` has a record for each topic: every spread
  that was ever applied to it, and a version. An account is spread as the latest ``since`` says,
  declared or applied; of equal ones the applied one counts. Nothing is removed from it, so an event
  of any window lies where the first one lies, whichever producer sends it and however late.
- *Applying.* A new version counts for windows that begin at least ``lead`` and ``MARGIN`` after it
  is written. It follows the version that the operator has seen, or is refused: each writer fences
  those before it (a transactional id for each topic), and reads the version after that.
- *Following.* A producer that has read the table at a time knows each spread of windows that begin
  before that time and ``lead``: a version that it has not seen counts later. It reads it again and
  again, and refuses to place events of later windows (:class:`SpreadsUnknownError`). So two
  producers never place a window differently, whichever of them is cut off.
- *The margin* is for what the two clocks differ, for the transaction that writes a version, which
  may last a minute, and for brokers that are late to show a new topic.
"""
