"""What encoders know, as probing classifiers find it."""
