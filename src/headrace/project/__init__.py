"""A project: its modules and declarations, checked, by kind; and the servers that it works on."""
