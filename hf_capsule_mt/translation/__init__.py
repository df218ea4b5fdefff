"""Translation of texts of any kind: sentences, documents, pages with tags, files, and corpora.

To read it, follow a text down and up in text_translator.py. preparation.py cuts a text into sentences and makes token
ids of them: documents.py finds sentences, direction.py says between which languages. generation/ decodes sentences in
batches. Then text_translator.py joins the translations. translation.py has what goes in and what comes out.

Tags and kept parts: markup.py reads them, and marked_segments.py takes them out of a sentence. word_spans.py says what
a word is. alignment/ aligns the words of a translation with those of the source. word_owners.py and element_ranges.py
choose the words of each element, and putting_back.py writes it around them.

Terms: glossary.py finds them in a source and in a translation, glossary_files.py reads them, and term_writer.py
searches for a translation that has them.

Can a translation be trusted? quality/ stands beside the translator, and judges what was decoded.

Who calls all this: pipeline.py is `pipeline("translation")`, and pipeline_translation.py is what checkpoints carry of
it. file_translation.py translates lines: file_options.py says how, window_reader.py and windows.py cut a file into
windows, and partial_output.py keeps what is finished. formats/ has a file for each format. corpus_translator.py,
row_translation.py and datatrove_step.py translate rows of corpora. decoding_options.py is the model and its settings
for all of them.
"""
