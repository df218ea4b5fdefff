"""Tables of runs: from a YAML file of rows to records, tables, figures and a report."""
