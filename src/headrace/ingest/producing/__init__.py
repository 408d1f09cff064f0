"""Events of files and programs, checked and placed as the HTTP service does."""
