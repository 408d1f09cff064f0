"""Projects: loaded, checked, planned, applied, looked at."""

from headrace.project.check import LoadedProject, load_project

__all__ = ["LoadedProject", "load_project"]
