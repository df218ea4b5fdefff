"""Modules with plain arguments, which the model families are made of."""
