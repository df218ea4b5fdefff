"""Guided routing in every family: its losses, what it costs at generation, and the assignments that it returns."""

import pytest
import torch
from aggregated_models import GUIDED_ROUTINGS, PAD, aggregated, source_batch, training_batch
from recurrent_models import recurrent

from hf_capsule_mt.modeling.guided_routing import GuidedRouting, GuidedVotes
from hf_capsule_mt.modeling.transformers_versions import CACHE

KINDS = ("gdr", "guided_classifier", "guided_attention", "guided", "guided_hybrid")
every_kind = pytest.mark.parametrize("kind", KINDS)
# Of generation: only Marian's family has caches to choose from.
DECODING = [*((kind, {"num_beams": 3}) for kind in KINDS), ("gdr", {"cache_implementation": "static"})]


def guided(kind, **fields):
    return (aggregated if kind in GUIDED_ROUTINGS else recurrent)(kind, **fields)


def groups(model):
    """Capsules, or the classes of a baseline."""
    return {"gdr": 6, "classifier": 3, "attention": 2}[model.config.guided_routing]


@pytest.mark.parametrize("training", [False, True])
@every_kind
def test_the_loss_is_the_sum_of_its_parts(kind, training):
    fields = {"bow_loss_weight": 0.5, "bca_loss_weight": 3, "label_smoothing": 0.1}
    outputs = guided(kind, **fields).train(training)(**training_batch())
    parts = outputs.lm_loss, outputs.bow_loss, outputs.bca_loss
    assert all(part > 0 for part in parts)
    torch.testing.assert_close(outputs.loss, parts[0] + 0.5 * parts[1] + 3 * parts[2])


@every_kind
def test_a_loss_without_weight_has_no_parameters(kind):
    for name in ("bow_loss", "bca_loss"):
        without = guided(kind, **{f"{name}_weight": 0})
        assert name not in without(**training_batch())
        assert not [key for key in without.state_dict() if key.endswith(f"{name[:3]}.weight")]
    neither = guided(kind, bow_loss_weight=0, bca_loss_weight=0)
    outputs = neither(**training_batch())
    assert torch.equal(outputs.loss, outputs.lm_loss)
    assert not [key for key in neither.state_dict() if key.startswith("guided_losses.")]


@every_kind
def test_parts_of_a_batch_add_up(kind):
    model, batch = guided(kind).double(), training_batch()
    whole = model(**batch)
    count = (batch["labels"] != -100).sum()
    parts = [{name: value[row : row + 1] for name, value in batch.items()} for row in range(3)]
    outputs = [model(**part, num_items_in_batch=count) for part in parts]
    for name in ("loss", "lm_loss", "bow_loss", "bca_loss"):
        torch.testing.assert_close(sum(output[name] for output in outputs), whole[name])


@pytest.mark.parametrize(("kind", "arguments"), DECODING, ids=str)
def test_votes_are_made_once_and_losses_never(kind, arguments):
    model, calls = guided(kind), {GuidedVotes: 0, GuidedRouting: 0}

    def count(module, *_):
        calls[type(module)] += 1

    def fail(*_):
        raise AssertionError("the losses were computed")

    for module in model.modules():
        if type(module) in calls:
            module.register_forward_hook(count)
    model.guided_losses.register_forward_pre_hook(fail)
    model.generate(**source_batch(), **arguments, min_new_tokens=5, max_new_tokens=5)
    assert calls == {GuidedVotes: 1, GuidedRouting: 5}


@every_kind
def test_output_routing(kind):
    model = guided(kind, guided_routing_iterations=4)
    silent, last, every = (model(**training_batch(), output_routing=option) for option in (False, True, "all"))
    iterations = 4 if model.config.guided_routing == "gdr" else 1
    assert "guided_routing" not in silent
    assert last.guided_routing.shape == (3, 6, 7, groups(model))
    assert every.guided_routing.shape == (3, 6, iterations, 7, groups(model))
    assert torch.equal(every.guided_routing[:, :, -1], last.guided_routing)
    assert torch.equal(silent.logits, every.logits)
    assert not last.guided_routing.requires_grad
    padded = source_batch()["attention_mask"] == 0
    assert not last.guided_routing.movedim(2, 1)[padded].any()


@pytest.mark.parametrize(
    ("kind", "num_beams"), [("gdr", 3), ("guided_attention", 1), ("guided", 1), ("guided_hybrid", 3)]
)
def test_forced_decoding_is_what_was_generated(kind, num_beams):
    model, source = guided(kind).double(), source_batch()
    model.generation_config.forced_eos_token_id = None
    arguments = {"num_beams": num_beams, "num_return_sequences": num_beams, "max_new_tokens": 6}
    sequences = model.generate(**source, **arguments)
    outputs = model.force_decode(sequences, **source)
    assert outputs.guided_routing.shape == (3 * num_beams, sequences.shape[1] - 1, 7, groups(model))
    assert not outputs.logits.requires_grad
    if num_beams == 1:
        written = (sequences[:, 1:] != PAD) | (outputs.logits.argmax(-1) == PAD)
        assert torch.equal(outputs.logits.argmax(-1)[written], sequences[:, 1:][written])
    for row, sequence in enumerate(sequences):
        sentence = {name: value[[row // num_beams]] for name, value in source.items()}
        options = {**sentence, "use_cache": True, "output_routing": True}
        cache = None
        # Step by step, as generation goes.
        for t, word in enumerate(sequence[:-1]):
            step = model(**options, decoder_input_ids=word.view(1, 1), cache=cache)
            cache = step[CACHE]
            torch.testing.assert_close(step.guided_routing[0, 0], outputs.guided_routing[row, t])
    without_mask = {"input_ids": source["input_ids"][:1], "attention_mask": None}
    assert model.force_decode(sequences[:1], **without_mask).logits.shape[0] == 1
    with pytest.raises(ValueError, match="takes no mask"):
        model.force_decode(sequences, input_ids=source["input_ids"], mask=source["attention_mask"])


def test_the_losses_read_the_states_of_the_conditional_gru():
    model, batch = recurrent("guided"), training_batch()
    seen = []
    model.guided_losses.register_forward_pre_hook(lambda module, args: seen.extend(args))
    _, states = model(**batch, output_hidden_states=True).decoder_hidden_states
    assert torch.equal(seen[0], states)
    assert seen[1].shape == (3, 6, 4, 4)
    assert seen[3] is model.get_input_embeddings().weight
