"""The built-in corpus, and the whole way from it to a trained model."""
