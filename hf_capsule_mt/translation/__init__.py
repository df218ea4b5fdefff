"""Translation of texts of any kind: sentences, documents, pages with tags, files, and corpora.

To read it, follow a text down and up in text_translator.py. preparation.py cuts it into sentences and makes token ids
of them, generation/ decodes sentences in batches, and text_translator.py joins their translations. translation.py has
what goes in and what comes out.

Below stand text/ (sentences, languages, words), tags/ (tags and kept parts), terms/ (glossaries), alignment/ (which
words belong together) and formats/ (one file a format). quality/ stands beside, and judges what was decoded. Above are
pipeline.py, which is `pipeline("translation")`, and files/. portable_pipeline.py is what checkpoints carry, and stands
alone.
"""
