"""A server of translations, for programs that speak LibreTranslate's or DeepL's protocol.

To read it, follow a request. app.py makes the application of all routes. calls.py has what routes share: it reads the
fields of a call within limits, checks its key, and writes errors and a line in the log. protocols/ has a file for each
protocol: its routes, how fields become a request, and how translations become an answer. texts.py says what a request
is, and models.py what a model of the server is.

service.py finds the model of each text, also where detection.py has to say its language, and translates a request. It
gives the sentences to queue/, which decodes those of all clients in one thread.

files.py reads, translates and keeps files. Glossaries are in glossaries.py, errors for clients in refusals.py, limits
and keys in settings.py. operators/ is for whoever runs the server.
"""
