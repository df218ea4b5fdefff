"""Sentences of many requests in common batches. It knows no protocol.

batcher.py takes them in turn, waiting.py has those that wait, and batch_speed.py predicts how long that is. refusals.py
has the reasons why sentences are not translated.
"""
