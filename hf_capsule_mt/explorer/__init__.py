"""The Explorer, a page that shows how checkpoints translate a sentence; `pip install "hf-capsule-mt[demo]"` for it."""
