"""Slow, obvious float64 versions of the algorithms, written loop by loop from the papers' equations."""
