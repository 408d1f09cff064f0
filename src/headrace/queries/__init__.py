"""Standing queries: a stream of events is matched with them, and each has results by window.

================== ============================ ====================================
stage              reads                        writes
================== ============================ ====================================
``registry``       commands                     ``NAME.queries``
``match``          events, ``NAME.queries``     ``NAME.matched``
``aggregate``      ``NAME.matched``             ``NAME.snapshots``, ``NAME.ended``
``answer``         ``NAME.ended``               ``NAME.results``
``matched_events`` events, ``NAME.queries``     ``NAME.matched-events``
================== ============================ ====================================

An ``instance`` runs ``aggregate`` and ``answer`` for the partitions of its lease. The text of a
query is read in ``language``, evaluated on Arrow columns in ``evaluation``, and compiled to Spark's
columns in ``columns``. Sums, sketches and their partials are in ``aggregate_functions``, and the
records of topics in ``records``.
"""
