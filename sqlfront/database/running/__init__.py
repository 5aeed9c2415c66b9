"""What a person has of a statement that runs: its progress, Ctrl-C, a lazy result."""
