"""Standing queries over HTTP: registered, listed, cancelled, and their results as a stream.

backend (what the project knows of queries) <- routes -> stream, and refusals for what fails
"""
