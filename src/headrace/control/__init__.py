"""Projects: loaded, checked, planned, applied, looked at."""

from headrace.control.project import LoadedProject, load_project

__all__ = ["LoadedProject", "load_project"]
