"""What a person sees of a statement that runs, and how it is stopped: progress, Ctrl-C."""
