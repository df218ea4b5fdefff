"""Studies: YAML files of rows, their runs and their reports."""
