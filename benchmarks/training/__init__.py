"""How fast methods train."""
