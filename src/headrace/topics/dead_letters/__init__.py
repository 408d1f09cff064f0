"""Dead letters of a project: counted, looked up, replayed."""
