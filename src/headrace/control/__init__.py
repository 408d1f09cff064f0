"""Projects: loaded, checked, planned, applied, looked at."""

from headrace.control.project import Project, load_project

__all__ = ["Project", "load_project"]
