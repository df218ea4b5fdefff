"""Whether long translations of corpora survive, and how fast they are."""
