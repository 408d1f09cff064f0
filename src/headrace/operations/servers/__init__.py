"""The project's own servers on this machine, and the status of everything that runs there."""
