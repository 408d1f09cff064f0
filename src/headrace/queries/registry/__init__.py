"""The registry of standing queries: a topic with the newest record of each query.

topic: create, write    record -> table -> followed: the queries of the topic as it is now
"""
