"""Pytest puts this folder on sys.path, hence `from aggregated_models import ...` in the folders below."""
