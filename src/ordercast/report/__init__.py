"""Pages that a person looks at, each one file that needs nothing else."""
