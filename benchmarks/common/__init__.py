"""What several questions share: records, tables, figures and the work that is timed."""
