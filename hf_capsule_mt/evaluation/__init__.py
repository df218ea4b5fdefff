"""Translating with a trained model, and scoring translations."""
