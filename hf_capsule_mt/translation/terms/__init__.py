"""Terms of a glossary: glossary.py finds them in texts, files.py reads them, and forcing.py writes them."""
