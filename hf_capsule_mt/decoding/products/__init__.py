"""Products with weights in the precision of an engine, and the best next tokens by the product with a vocabulary."""
