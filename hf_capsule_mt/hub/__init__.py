"""Model cards, and checkpoints on their way to the Hub."""
