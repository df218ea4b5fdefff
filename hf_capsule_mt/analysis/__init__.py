"""Pictures of what was measured and of what models do."""
