"""A server of translations, for programs that speak LibreTranslate's or DeepL's protocol.

To read it, follow a request. app.py makes the application, and endpoints.py has what all its routes share. requests.py
reads the fields of a request within limits, and its key. libretranslate_routes.py and deepl_routes.py list the routes.
libretranslate.py and deepl.py make a job of the fields, and an answer of the translations. jobs.py says what a job is.
models.py has the models of the server, and detection.py and languages.py find the one for a text.

service.py translates a job. It gives the sentences to batcher.py, which decodes those of all clients in one thread.
waiting.py chooses the sentences of a batch, and batch_speed.py predicts how long they wait. refusals.py has the reasons
why sentences are not translated.

Files are read by file_jobs.py and kept by file_store.py, and document_routes.py has DeepL's routes for them. Glossaries
are in glossaries.py and glossary_routes.py. For operators there are metrics.py, connections.py and api_description.py.
"""
