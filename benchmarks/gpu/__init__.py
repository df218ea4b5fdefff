"""What a GPU is asked."""
