"""What measures the package, from a clone: a folder for each question."""
