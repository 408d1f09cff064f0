from __future__ import annotations

import enum


class WriteMode(enum.StrEnum):
    """What a row does to existing rows.

    APPEND: it is inserted. UPSERT: it replaces the row of its key. ADD: its numbers are added to
    those of the row of its key. Where rows are documents, a document is a row.
    """

    APPEND = "append"
    UPSERT = "upsert"
    ADD = "add"
