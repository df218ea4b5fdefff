"""Functions on tensors: no parameters, no configuration."""
