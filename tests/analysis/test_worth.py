"""What capsules are worth: the loss with their mean in their place, as it is found one sentence at a time."""

import pytest
import torch
from routed_models import KINDS, corpus_for, routed

from hf_capsule_mt.analysis.worth import measure_worth

PLACES = {
    "everything": {"encoder layers", "decoder layers", "heads", "guided capsules"},
    "heads_simple": {"heads"},
    "guided_classifier": {"guided capsules"},
    "guided_attention": {"guided capsules"},
    "capsule": {"sentence capsules"},
    "hybrid": {"sentence capsules"},
    "guided": {"guided capsules"},
}


def loss_a_word(model, corpus):
    """Of the model's own forward, a sentence at a time."""
    total = words = 0
    for index in corpus.lines:
        labels = torch.tensor([corpus.targets[index]])
        logits = model(input_ids=torch.tensor([corpus.sources[index]]), labels=labels).logits
        total += torch.nn.functional.cross_entropy(logits[0], labels[0], reduction="sum").item()
        words += labels.numel()
    return total / words


@pytest.mark.parametrize("kind", KINDS)
def test_places_and_batches(kind):
    model = routed(kind)
    corpus, done = corpus_for(model), []
    alone = measure_worth(model, corpus, max_tokens_per_batch=1)
    together = measure_worth(model, corpus, max_tokens_per_batch=1000, on_batch=done.append)
    assert done == [4, 4]
    assert set(together.added) == PLACES[kind]
    assert together.added == pytest.approx(alone.added, abs=1e-5)
    assert together.loss == pytest.approx(alone.loss, abs=1e-5) == pytest.approx(loss_a_word(model, corpus), abs=1e-5)
    assert all(abs(added) > 1e-4 for added in together.added.values())
    # No hook is left behind.
    assert loss_a_word(model, corpus) == pytest.approx(together.loss, abs=1e-5)


def test_sentence_capsules_by_hand():
    """What the encoder hands over is made of the mean, which is that of sentences, however long."""
    model = routed("hybrid")
    corpus, encoder = corpus_for(model), model.model.encoder
    own = loss_a_word(model, corpus)
    states = []
    hook = encoder.projection.register_forward_hook(lambda *call: states.append(call[-1]))
    loss_a_word(model, corpus)
    hook.remove()
    # The projection is linear: of the mean it makes the mean.
    mean = torch.cat(states).mean(0, keepdim=True)
    hook = encoder.projection.register_forward_hook(lambda *_: mean)
    expected = loss_a_word(model, corpus) - own
    hook.remove()
    assert measure_worth(model, corpus).added["sentence capsules"] == pytest.approx(expected, abs=1e-5)


def test_what_reads_guided_capsules_by_hand():
    """Of the mean of what FFN is given, only the part that is no state takes its place, and padding is not in it."""
    model = routed("guided")
    corpus, routing = corpus_for(model), model.model.decoder.guided_routing
    width, read = routing.fc2.out_features, []
    hook = routing.fc1.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0].flatten(0, 1)))
    own = loss_a_word(model, corpus)
    hook.remove()
    mean = torch.cat(read).mean(0)[width:]
    hook = routing.fc1.register_forward_pre_hook(
        lambda _, inputs: torch.cat([inputs[0][..., :width], mean.expand(*inputs[0].shape[:-1], -1)], dim=-1)
    )
    expected = loss_a_word(model, corpus) - own
    hook.remove()
    assert measure_worth(model, corpus).added["guided capsules"] == pytest.approx(expected, abs=1e-5)


def test_layers_that_are_switched_off_are_worth_nothing():
    model = routed("everything")
    with torch.no_grad():
        for layers in (model.model.encoder.aggregation, model.model.decoder.aggregation):
            layers.gamma = torch.nn.Parameter(torch.zeros(model.config.d_model))
    added = measure_worth(model, corpus_for(model)).added
    assert added["encoder layers"] == added["decoder layers"] == 0
    assert added["guided capsules"] != 0


def test_the_model_goes_on_in_its_mode():
    model = routed("capsule").train()
    measure_worth(model, corpus_for(model))
    assert model.training
