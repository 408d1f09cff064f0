"""Records of topics into others, exactly once: what mirrors and mergers have in common.

Instances are members of a consumer group, which shares the partitions of the topics that are
written. An instance writes records in transactions, and with them the positions that they lead to.
"""
