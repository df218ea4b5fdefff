"""What a text is, without a model.

segments.py finds its sentences, languages.py says between which languages it is translated, and words.py finds words.
"""
