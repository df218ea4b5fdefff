"""How fast our decoder is."""
