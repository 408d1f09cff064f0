"""Where instances of a worker run: processes of this machine, or tasks of Spark."""
