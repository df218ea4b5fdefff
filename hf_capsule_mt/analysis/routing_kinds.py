"""The kinds of routing that a model has and the names of its guided capsules."""

from transformers import PreTrainedConfig


def kinds_of_routing(config: PreTrainedConfig) -> tuple[str, ...]:
    """Return what a model of this configuration routes: of "layers", "heads", "guided" and "sentence".

    It is empty for a model without routing.
    """
    kinds = {
        "layers": getattr(config, "routes_layers", False),
        "heads": getattr(config, "head_aggregation", None) is not None,
        "guided": getattr(config, "guided_routing", None) is not None,
        "sentence": getattr(config, "sentence_aggregation", None) == "capsule",
    }
    return tuple(kind for kind, there in kinds.items() if there)


def guided_groups(config: PreTrainedConfig) -> tuple[int, int]:
    """Return the number of PAST columns of `guided_routing`, and of FUTURE columns, or (0, 0)."""
    kind = getattr(config, "guided_routing", None)
    if kind is None:
        return 0, 0
    # The baselines of guided dynamic routing assign words to PAST and FUTURE as a whole.
    return (config.num_past_capsules, config.num_future_capsules) if kind == "gdr" else (1, 1)


def guided_names(num_past: int, num_future: int, capsules: int) -> list[str]:
    """Return the names of the columns of `guided_routing`. `capsules` is their number."""
    groups = {"PAST": num_past, "FUTURE": num_future, "redundant": capsules - num_past - num_future}
    return [name if size == 1 else f"{name} {number + 1}" for name, size in groups.items() for number in range(size)]
