"""One database of one process: its catalog, transactions, scans and what they share."""
