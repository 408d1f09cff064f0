"""Ready-made steps, one file for each verb. Each has its contract in its docstring."""
