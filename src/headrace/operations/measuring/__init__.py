"""How fast a project's own worker, pipeline or producer is, on a sample of its topic.

What runs is the declaration itself, on topics that are deleted in the end. Nothing is committed for
the real consumer group, and nothing is written to the project's topics, tables or sinks.
"""
