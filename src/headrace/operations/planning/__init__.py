"""What `apply` changes, and shows before."""
