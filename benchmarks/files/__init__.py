"""What becomes of real files of each format."""
