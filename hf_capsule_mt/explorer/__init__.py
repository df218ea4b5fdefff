"""The Explorer, a page that shows how checkpoints translate a sentence; `pip install -e ".[demo]"` for it."""
