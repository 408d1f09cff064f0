"""The stage that puts the windows of each query in order, and names those without events.

It reads a partition of the topic of ended windows, and writes the results of the same queries:

- The windows of a query are in order: of those that end by event time, by their ends; of others, as
  they ended. A window waits until the time of all partitions of the matched topic has passed its
  end. An early result does not wait.
- Each window that ends has its final result once.
- Windows without events: queries that ask for them (``EMPTY WINDOWS EMIT``) have a result of each,
  and those with ``LOSS OF SIGNAL`` one when they have had no event for that many windows.
"""
