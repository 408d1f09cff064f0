"""The registry of standing queries: a topic with the newest record of each query.

record -> table, and topic: create, read, write
"""
