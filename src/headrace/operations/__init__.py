"""What commands do with a project as a whole: checked, planned, applied, started, compared."""
