"""Standing queries: queries that are matched with a stream of events, with results by window.

================== ============================ ====================================
stage              reads                        writes
================== ============================ ====================================
``registry``       commands                     ``NAME.queries``
``match``          events, ``NAME.queries``     ``NAME.matched``
``aggregate``      ``NAME.matched``             ``NAME.snapshots``, ``NAME.ended``
``answer``         ``NAME.ended``               ``NAME.results``
``matched_events`` events, ``NAME.queries``     ``NAME.matched-events``
================== ============================ ====================================

An ``instance`` runs ``aggregate`` and ``answer`` for the partitions of its lease. ``language``
parses the text of a query, ``evaluation`` evaluates it on Arrow columns, and ``columns`` compiles
it to Spark columns. Sums, sketches and their partials are in ``aggregate_functions``, and the
records of topics in ``records``.
"""
