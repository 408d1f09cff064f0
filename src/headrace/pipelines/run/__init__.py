"""Pipelines in a driver: started, restarted, stopped, and shown."""
