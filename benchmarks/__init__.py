"""What measures the package, from a clone: studies, probing and speed, and their records."""
