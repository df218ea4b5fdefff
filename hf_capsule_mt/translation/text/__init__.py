"""What a text is, without a model.

segments.py finds its sentences, and words.py finds words, addresses and other parts that are kept.
"""
