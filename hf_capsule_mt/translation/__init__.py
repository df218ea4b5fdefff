"""Translation: the pipeline, documents, tags, language codes, and batches of lines."""
