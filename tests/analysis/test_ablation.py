"""What capsules are worth: the loss with their mean in their place, as it is found a line at a time."""

import pytest
import torch
from routed_models import KINDS, corpus_for, routed

from hf_capsule_mt.analysis.ablation import measure_worth
from hf_capsule_mt.modeling.aggregation import RoutedHeads

PLACES = {
    "everything": {"encoder layers", "decoder layers", "heads", "guided capsules"},
    "heads_simple": {"heads"},
    "guided_classifier": {"guided capsules"},
    "guided_attention": {"guided capsules"},
    "capsule": {"sentence capsules"},
    "hybrid": {"sentence capsules"},
    "guided": {"guided capsules"},
}


def loss_of_line(model, corpus, index):
    """Of the model's own forward, summed."""
    labels = torch.tensor([corpus.targets[index]])
    logits = model(input_ids=torch.tensor([corpus.sources[index]]), labels=labels).logits
    return torch.nn.functional.cross_entropy(logits[0], labels[0], reduction="sum").item()


def loss_a_token(model, corpus):
    total = sum(loss_of_line(model, corpus, index) for index in corpus.lines)
    return total / sum(len(corpus.targets[index]) for index in corpus.lines)


@pytest.mark.parametrize("kind", KINDS)
def test_places_and_batches(kind):
    model = routed(kind)
    corpus = corpus_for(model)
    alone = measure_worth(model, corpus, max_tokens_per_batch=1)
    together = measure_worth(model, corpus, max_tokens_per_batch=1000)
    assert set(together["added"]) == PLACES[kind]
    assert together["added"] == pytest.approx(alone["added"], abs=1e-5)
    assert (
        together["loss"]
        == pytest.approx(alone["loss"], abs=1e-5)
        == pytest.approx(loss_a_token(model, corpus), abs=1e-5)
    )
    assert all(abs(added) > 1e-4 for added in together["added"].values())
    # No hook is left behind.
    assert loss_a_token(model, corpus) == pytest.approx(together["loss"], abs=1e-5)


def test_decoding_starts_as_in_generate():
    model = routed("capsule")
    corpus = corpus_for(model)
    loss = measure_worth(model, corpus)["loss"]
    model.config.decoder_start_token_id = 5
    assert measure_worth(model, corpus)["loss"] == loss


def added_by_hand(model, corpus, module, start=None):
    """A line at a time: what a module returns, or reads from feature `start` on, becomes its mean."""

    def hooked(change):
        if start is None:
            return module.register_forward_hook(lambda _, __, output: change(output))
        return module.register_forward_pre_hook(
            lambda _, inputs: torch.cat([inputs[0][..., :start], change(inputs[0][..., start:])], dim=-1)
        )

    brought = {}
    for index in corpus.lines:
        hook = hooked(lambda capsules: brought.update({index: capsules.flatten(0, -2)}) or capsules)  # noqa: B023
        loss_of_line(model, corpus, index)
        hook.remove()
    own = loss_a_token(model, corpus)
    hook = hooked(torch.cat(list(brought.values())).mean(0).expand_as)
    changed = loss_a_token(model, corpus)
    hook.remove()
    return changed - own


@pytest.mark.parametrize(
    ("kind", "place", "module", "start"),
    [
        ("hybrid", "sentence capsules", "model.encoder.projection", None),
        ("capsule", "sentence capsules", "model.encoder.projection", None),
        ("guided", "guided capsules", "model.decoder.guided_routing.fc1", "model.decoder.guided_routing.fc2"),
        ("everything", "guided capsules", "model.guided_routing.fc1", "model.guided_routing.fc2"),
        ("everything", "encoder layers", "model.encoder.aggregation.layer_norm", None),
        ("everything", "decoder layers", "model.decoder.aggregation.layer_norm", None),
    ],
)
def test_by_hand(kind, place, module, start):
    model = routed(kind)
    corpus, width = corpus_for(model), None if start is None else model.get_submodule(start).out_features
    expected = added_by_hand(model, corpus, model.get_submodule(module), width)
    assert measure_worth(model, corpus)["added"][place] == pytest.approx(expected, abs=1e-5)
    assert abs(expected) > 1e-3


def test_heads_are_replaced_in_all_places_at_once():
    model = routed("heads_simple")
    corpus = corpus_for(model)
    modules = [module for module in model.modules() if isinstance(module, RoutedHeads)]
    assert len(modules) > 1
    brought = {module: [] for module in modules}

    def keep(module, inputs, output):
        brought[module].append(output.flatten(0, -2))

    def replace(module, inputs, output):
        return torch.cat(brought[module]).mean(0).expand_as(output)

    for change in (keep, replace):
        hooks = [module.register_forward_hook(change) for module in modules]
        loss = loss_a_token(model, corpus)
        for hook in hooks:
            hook.remove()
    expected = loss - loss_a_token(model, corpus)
    assert measure_worth(model, corpus)["added"]["heads"] == pytest.approx(expected, abs=1e-5)


def test_layers_that_are_switched_off_are_worth_nothing():
    model = routed("everything")
    with torch.no_grad():
        for layers in (model.model.encoder.aggregation, model.model.decoder.aggregation):
            layers.gamma = torch.nn.Parameter(torch.zeros(model.config.d_model))
    added = measure_worth(model, corpus_for(model))["added"]
    assert added["encoder layers"] == added["decoder layers"] == 0
    assert added["guided capsules"] != 0
