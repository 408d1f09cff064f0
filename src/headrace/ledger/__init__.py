"""What every ledger is made of: sums by hop and fate, books of what was counted, their balance.

**A book** holds what was counted of one thing at one moment: of a pipeline, of a link, of a topic
of standing queries, of its matched events. It lives with what counts it, is a frozen value, and its
fields are its JSON. All books answer the same questions (:class:`headrace.ledger.balance.Book`):

- ``lines()``: what must balance by itself, such as a window. A line has a state, differences by
  hop and partition, and figures, which have the titles of ``columns()``.
- ``unknown``: why something of it is not known, as a sentence. A book without columns has counted
  nothing, and this is the reason.
- ``extras()``: what the book says beside its lines, as sentences. One whose kind is a state counts
  as a line of that state does: an offset that was never read, dead letters that are missing.

**A balance** (:class:`headrace.ledger.balance.Balance`) is what the lines and the extras of a book
come to. It is unbalanced if any of them is, and unknown if any of them is or if the book says so; a
book may be both. Nothing else decides about the exit code of ``reconcile``, and the same lines
and extras are what it shows. So another book needs no change of the balance or its view.

A difference counts although other things are unknown, and what is unknown is never balanced.
"""
