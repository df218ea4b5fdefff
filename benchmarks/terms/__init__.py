"""Whether glossaries are obeyed, and what they cost."""
