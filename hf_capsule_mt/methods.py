"""The names of methods and sizes. They are choices of commands, so nothing is imported here."""

METHODS = (
    "transformer",
    "pre-norm-transformer",
    "linear-combination",
    "dynamic-combination",
    "layer-attention",
    "dynamic-routing",
    "em-routing",
    "transparent-attention",
    "source-attention",
    "source-dynamic-routing",
    "source-em-routing",
    "pre-norm-transparent",
    "dlcl",
    "delta-residuals",
    "hyper-connections",
    "mhc",
    "deep-shallow",
    "head-simple-routing",
    "head-em-routing",
    "head-em-effective",
    "gdr",
    "gdr-classifier",
    "gdr-attention",
    "capsnmt",
    "capsnmt-pooling",
    "capsnmt-hybrid",
    "rnmt",
    "rnmt-gdr",
)
"""The models of the papers. `configuration/presets.py` says what each is."""
SIZES = ("tiny", "base", "big")
