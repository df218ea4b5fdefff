"""Scores of translations, tests of their significance, and word alignment."""
