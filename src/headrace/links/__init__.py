"""Links copy records between topics: this is what mirrors, mergers and dispatchers share.

Instances of mirrors and mergers are members of a consumer group, which shares the partitions of the
topics that are written. An instance writes records in transactions, and with them the positions
that they lead to: exactly once.
"""
