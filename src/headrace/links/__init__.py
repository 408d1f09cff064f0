"""Links copy records between topics: this is what they share, with a folder for each kind.

A :class:`headrace.links.instance.LinkInstance` is a member of a consumer group, which shares the
partitions of the topics that are written. It writes records in transactions, and with them the
positions that they lead to: exactly once. Kinds whose records stay within Spark have their own.
"""
