"""Projects: loaded, checked, planned, applied, looked at."""
