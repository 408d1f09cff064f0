"""The project's own servers on this machine, and how all that runs there is doing."""
