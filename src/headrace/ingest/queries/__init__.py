"""Serves standing queries over HTTP: registers, lists and cancels them, and streams results.

backend (access to the project's queries) <- routes -> stream, and refusals for errors
"""
