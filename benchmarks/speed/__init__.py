"""How fast and large models are."""
