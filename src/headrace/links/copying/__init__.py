"""What links share that copy each partition of a topic to one partition of another, as mirrors do.

A kind of such links is a :class:`headrace.links.copying.kind.CopyKind`, and says what is its own: a
:class:`headrace.links.copying.plan.CopyPlan` with the rule which records are copied, and a
:class:`headrace.links.copying.status.CopyStatus` with counters of the others. Each record that is
copied gets the header ``headrace-origin``: by it the end of a copy says where the link continues,
and the ledger compares records.
"""
