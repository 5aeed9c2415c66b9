"""Changes in from sources, and changes out to subscribers and copies."""
