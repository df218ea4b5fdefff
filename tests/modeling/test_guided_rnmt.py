"""Guided routing in RNMT: its losses, what it costs at generation, and the assignments that it returns."""

import pytest
import torch
from aggregated_models import PAD, source_batch, training_batch
from recurrent_models import GUIDED_KINDS, recurrent

every_kind = pytest.mark.parametrize("kind", GUIDED_KINDS)
# Classes of the baselines, and capsules.
GROUPS = {"guided": 6, "guided_classifier": 3, "guided_attention": 2, "guided_hybrid": 6}


@pytest.mark.parametrize("training", [False, True])
@every_kind
def test_the_loss_is_the_sum_of_its_parts(kind, training):
    fields = {"bow_loss_weight": 0.5, "bca_loss_weight": 3, "label_smoothing": 0.1}
    outputs = recurrent(kind, **fields).train(training)(**training_batch())
    parts = outputs.lm_loss, outputs.bow_loss, outputs.bca_loss
    assert all(part > 0 for part in parts)
    torch.testing.assert_close(outputs.loss, parts[0] + 0.5 * parts[1] + 3 * parts[2])


def test_a_loss_without_weight_has_no_parameters():
    model = recurrent("guided", bow_loss_weight=0, bca_loss_weight=0)
    outputs = model(**training_batch())
    assert torch.equal(outputs.loss, outputs.lm_loss)
    assert not [name for name in model.state_dict() if name.startswith("guided_losses.")]


def test_the_losses_read_the_states_of_the_conditional_gru():
    model, batch = recurrent("guided"), training_batch()
    seen = []
    model.guided_losses.register_forward_pre_hook(lambda module, args: seen.extend(args))
    _, states = model(**batch, output_hidden_states=True).decoder_hidden_states
    assert torch.equal(seen[0], states)
    assert seen[1].shape == (3, 6, 4, 4)
    assert seen[3] is model.get_input_embeddings().weight


@every_kind
def test_parts_of_a_batch_add_up(kind):
    model, batch = recurrent(kind).double(), training_batch()
    whole = model(**batch)
    count = (batch["labels"] != -100).sum()
    parts = [{name: value[row : row + 1] for name, value in batch.items()} for row in range(3)]
    outputs = [model(**part, num_items_in_batch=count) for part in parts]
    for name in ("loss", "lm_loss", "bow_loss", "bca_loss"):
        torch.testing.assert_close(sum(output[name] for output in outputs), whole[name])


@pytest.mark.parametrize("num_beams", [1, 3])
@every_kind
def test_votes_are_made_once_and_losses_never(kind, num_beams):
    model, calls = recurrent(kind), {"votes": 0, "routing": 0}

    def count(name):
        return lambda *_: calls.update({name: calls[name] + 1})

    def fail(*_):
        raise AssertionError("the losses were computed")

    model.model.encoder.guided_votes.register_forward_hook(count("votes"))
    model.model.decoder.guided_routing.register_forward_hook(count("routing"))
    model.guided_losses.register_forward_pre_hook(fail)
    model.generate(**source_batch(), num_beams=num_beams, min_new_tokens=5, max_new_tokens=5)
    assert calls == {"votes": 1, "routing": 5}


@every_kind
def test_output_routing(kind):
    model = recurrent(kind, guided_routing_iterations=4)
    silent, last, every = (model(**training_batch(), output_routing=option) for option in (False, True, "all"))
    iterations = 4 if model.config.guided_routing == "gdr" else 1
    assert "guided_routing" not in silent
    assert last.guided_routing.shape == (3, 6, 7, GROUPS[kind])
    assert every.guided_routing.shape == (3, 6, iterations, 7, GROUPS[kind])
    assert torch.equal(every.guided_routing[:, :, -1], last.guided_routing)
    assert torch.equal(silent.logits, every.logits)
    padded = source_batch()["attention_mask"] == 0
    assert not last.guided_routing.movedim(2, 1)[padded].any()


@pytest.mark.parametrize("num_beams", [1, 3])
@every_kind
def test_forced_decoding_is_what_was_generated(kind, num_beams):
    model, source = recurrent(kind).double(), source_batch()
    arguments = {"num_beams": num_beams, "num_return_sequences": num_beams, "max_new_tokens": 6}
    sequences = model.generate(**source, **arguments)
    outputs = model.force_decode(sequences, **source)
    assert outputs.guided_routing.shape == (3 * num_beams, sequences.shape[1] - 1, 7, GROUPS[kind])
    if num_beams == 1:
        written = (sequences[:, 1:] != PAD) | (outputs.logits.argmax(-1) == PAD)
        assert torch.equal(outputs.logits.argmax(-1)[written], sequences[:, 1:][written])
    # Step by step, as generation goes.
    for row, sequence in enumerate(sequences):
        sentence = {name: value[[row // num_beams]] for name, value in source.items()}
        cache = None
        for t, word in enumerate(sequence[:-1]):
            step = model(
                **sentence,
                decoder_input_ids=word.view(1, 1),
                past_key_values=cache,
                use_cache=True,
                output_routing=True,
            )
            cache = step.past_key_values
            torch.testing.assert_close(step.guided_routing[0, 0], outputs.guided_routing[row, t])


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ("rnmt", "guided", "encoder_outputs has no guided_votes; .* or its first 4 elements"),
        ("hybrid", "guided_hybrid", "encoder_outputs has no guided_votes; .* or its first 5 elements"),
        ("guided", "rnmt", "guided_votes is given, but guided_routing is None"),
    ],
)
def test_outputs_of_an_encoder_that_is_not_guided_alike_are_refused(one, other, message):
    source, targets = source_batch(), torch.tensor([[PAD, 5]] * 3)
    encoded = recurrent(one).get_encoder()(**source)
    with pytest.raises(ValueError, match=message):
        recurrent(other)(**source, encoder_outputs=encoded, decoder_input_ids=targets)


def test_a_wrong_field_is_refused():
    with pytest.raises(ValueError, match=r"guided_routing is 'guided'; allowed are"):
        recurrent("rnmt", guided_routing="guided")
