"""Sentences of many requests in common batches. It knows no protocol.

batcher.py decodes them in one thread, and predicts how long others wait. waiting.py takes the next batch from those
that wait.
"""
