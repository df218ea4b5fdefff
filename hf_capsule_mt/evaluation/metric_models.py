"""The names of trained metrics, and of their models. They are choices of commands, so nothing is imported here."""

DEFAULT_MODELS = {
    "comet": "Unbabel/wmt22-comet-da",
    "cometkiwi": None,
    "xcomet": None,
    "metricx": "google/metricx-24-hybrid-large-v2p6",
}
"""The models by metric. None: all published models forbid commercial use."""
NEED_NO_REFERENCES = ("cometkiwi", "xcomet", "metricx")
"""Metrics that can score without references."""
