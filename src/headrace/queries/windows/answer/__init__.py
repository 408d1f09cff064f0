"""Writes the results of each query in order, and results for windows without events.

It reads a partition of the topic of ended windows, and writes the results of their queries:

- The results of a query are in order: by the ends of windows if these end by event time, else in
  the order in which they closed. A window waits until all partitions of the matched topic have
  passed the time when it closed. An early result does not wait.
- Each ended window has its final result once.
- Windows without events: a query with ``EMPTY WINDOWS EMIT`` has a result for each, and a query
  with ``LOSS OF SIGNAL`` has one result after that many windows without events.
"""
