"""How many sentences the server translates."""
