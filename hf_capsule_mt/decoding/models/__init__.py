"""The decoders of all families of models, one file a family. base.py is the base of all."""
