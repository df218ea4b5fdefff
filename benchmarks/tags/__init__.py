"""Where tags come back, and which links of words are right."""
