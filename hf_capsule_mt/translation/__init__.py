"""Translation of texts of any kind: sentences, documents, pages with tags, files, and corpora.

To read it, follow a text down and up. text_reader.py cuts it into sentences, and makes token ids of them: documents.py
finds sentences, direction.py says between which languages. texts.py decodes sentences in batches. For that it calls
translator.py, which stands on generate_settings.py, token_rows.py and evaluation_mode.py. text_reader.py then joins the
translations, which translations.py describes.

Tags and kept parts: markup.py reads them, and marked_segments.py takes them out of a sentence. word_spans.py says what
a word is, and attention.py aligns the words of a translation with those of the source. word_owners.py and
element_ranges.py choose the words of each element, and putting_back.py writes it around them.

Terms: glossary.py finds them in a source and in a translation.
glossary_files.py reads them, and term_writer.py searches for a translation that has them. term_marks.py is for models
that read terms in their source.

Can a translation be trusted? judging.py asks trust.py, which looks at a forced pass of the model, and this asks
surface_checks.py, which looks at the words. translation_report.py writes the judgement down, and expected_quality.py
makes a number of it.

Who calls all this: pipeline.py with pipeline_decoding.py is `pipeline("translation")`, and pipeline_translation.py is
what checkpoints carry of it. file_translation.py translates lines: file_options.py says how, window_reader.py and
windows.py cut a file into jobs, and partial_output.py keeps what is finished. formats/ has a file for each format.
corpus_translator.py, row_translation.py and datatrove_step.py translate rows of corpora. decoding_options.py is the
model and its settings for all of them.
"""
