"""Which translations to trust."""
