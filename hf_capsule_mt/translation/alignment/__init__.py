"""Which words of a text and of its translation belong together.

forced.py lets the model read a finished translation. words.py aligns words by its attention, and links.py joins what
belongs together in several sentences.
"""
