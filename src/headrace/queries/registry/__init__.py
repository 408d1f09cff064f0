"""The registry of standing queries: a topic with the newest record of each query.

``topic`` creates the topic and writes to it; ``followed`` reads each ``record`` into a ``table``.
"""
