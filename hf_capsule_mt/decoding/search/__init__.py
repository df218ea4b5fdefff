"""The searches for translations, and what may be written. They know no family of models."""
