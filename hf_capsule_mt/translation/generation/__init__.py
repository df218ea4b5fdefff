"""A batch of token ids in, translations as token ids out. decoder.py does it, by settings.py."""
