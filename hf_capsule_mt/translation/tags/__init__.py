"""Tags and kept parts. They are taken out of a sentence, and come back around the words that they belong to.

markup.py reads tags, and segments.py takes them out. placement.py chooses the words of each element in the translation,
and writer.py writes it around them.
"""
