"""What a corpus costs."""
