"""Statistics, figures and pages on routing and on measurements."""
