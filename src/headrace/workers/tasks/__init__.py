"""What users write and name: tasks, records, policies of failures, partitioners."""
