"""Steps that are ready made, one file a verb. Each has its contract in its docstring."""
