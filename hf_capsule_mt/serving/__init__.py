"""A server of translations, for programs that speak LibreTranslate's or DeepL's protocol.

To read it, follow a request. app.py makes the application, and endpoints.py has what all its routes share. requests.py
reads the fields of a request within limits, and its key. protocols/ lists the routes of each protocol, makes a job of
the fields, and an answer of the translations. jobs.py says what a job is. models.py has the models of the server, and
detection.py and languages.py find the one for a text.

service.py translates a job. It gives the sentences to queue/, which decodes those of all clients in one thread.

Files are read by file_jobs.py and kept by file_store.py. Glossaries are in glossaries.py. For operators there are
metrics.py, connections.py and api_description.py.
"""
