"""The loss of a translation model without its logits, and logits wherever somebody reads them."""

import copy

import pytest
import torch
from aggregated_models import aggregated, training_batch
from families import names, translator
from recurrent_models import recurrent

FAMILIES = {
    "marian": (aggregated, "em_routing"),
    "guided": (aggregated, "gdr"),
    "capsnmt": (recurrent, "capsule"),
    "rnmt": (recurrent, "guided"),
}


@pytest.fixture(params=FAMILIES)
def model(request):
    make, kind = FAMILIES[request.param]
    return make(kind, label_smoothing=0.1, dropout=0.0).train()


def gradients(model, batch=None, **options):
    """The output for a batch, and every gradient by name."""
    model.zero_grad()
    output = model(**(batch or training_batch()), **options)
    output.loss.backward(retain_graph=True)
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return output, {name: gradient.clone() for name, gradient in found.items()}


def test_training_has_no_logits_and_the_same_gradients(model):
    without, actual = gradients(model)
    with_logits, expected = gradients(model, return_logits=True)
    assert without.logits is None
    assert with_logits.logits.shape[-1] == model.config.vocab_size
    torch.testing.assert_close(without.loss, with_logits.loss)
    torch.testing.assert_close(without.lm_loss, with_logits.lm_loss)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_evaluation_and_decoding_have_logits(model):
    batch = training_batch()
    assert model.eval()(**batch).logits is not None
    labels = batch.pop("labels")
    assert model.train()(**batch, decoder_input_ids=labels.clamp(0)).logits is not None


def test_a_head_that_is_more_than_its_weight_runs(model):
    """An adapter or a hook on the head must not be passed by."""
    ran = []
    hook = model.lm_head.register_forward_hook(lambda *_: ran.append(True))
    assert model(**training_batch()).logits is not None
    assert ran
    hook.remove()
    assert model(**training_batch()).logits is None
    # The bags of words are scored by it, too.
    times = 1 if model.guided_losses is None else 2
    for register in (model.lm_head.register_full_backward_hook, model.lm_head.register_full_backward_pre_hook):
        ran.clear()
        hook = register(lambda *_: ran.append(True))
        model(**training_batch()).loss.backward()
        assert ran == [True] * times
        hook.remove()
    model.lm_head.forward = lambda states: states @ model.lm_head.weight.T
    assert model(**training_batch()).logits is not None


@pytest.mark.filterwarnings("ignore:Model with `tie_word_embeddings")
def test_lora_on_the_head(model):
    """The adapter's weights count in the loss, and they are what is trained."""
    import peft

    before = model(**training_batch()).loss
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["lm_head"], init_lora_weights=False)).train()
    states = []
    model.lm_head.register_forward_pre_hook(lambda module, inputs: states.append(inputs[0].detach()))
    output, trained = gradients(adapted)
    assert [name.split(".")[-3] for name in trained] == ["lora_A", "lora_B"]
    assert all(gradient.any() for gradient in trained.values())
    weight = model.lm_head.base_layer.weight + model.lm_head.get_delta_weight("default")
    torch.testing.assert_close(output.logits, states[0] @ weight.t() + getattr(model, "final_logits_bias", 0))
    assert abs(output.loss - before) > 1e-4
    # That of the model that comes of it, its bags of words too.
    merged = copy.deepcopy(model)
    merged.lm_head = torch.nn.Linear(*weight.t().shape, bias=False)
    merged.lm_head.weight.data = weight.detach()
    torch.testing.assert_close(merged(**training_batch()).loss, output.loss)


@pytest.mark.parametrize("name", FAMILIES)
def test_rdrop_is_that_of_the_logits(name):
    make, kind = FAMILIES[name]
    model = make(kind, label_smoothing=0.1, dropout=0.3).train()
    twice = {name: torch.cat([value, value]) for name, value in training_batch().items()}
    torch.manual_seed(0)
    actual, found = gradients(model, twice, rdrop_alpha=3.0)
    torch.manual_seed(0)
    plain, _ = gradients(model, twice, return_logits=True)
    one, other = plain.logits.log_softmax(-1).chunk(2)
    apart = (((one.exp() - other.exp()) * (one - other)).sum(-1) / 2)[twice["labels"].chunk(2)[0] != -100]
    assert apart.min() > 0
    torch.testing.assert_close(actual.rdrop_loss, apart.mean() / 2)
    torch.testing.assert_close(actual.loss, plain.loss + 3 * apart.mean() / 2)
    model.zero_grad()
    (plain.loss + 3 * apart.mean() / 2).backward()
    expected = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


RECURRENT = names("recurrent", ["capsule", "rnmt", "guided_hybrid"])


def forward(name, **masks):
    with torch.no_grad():
        translator(name)(**{**training_batch(), **masks})


@pytest.mark.parametrize("shape", [(3, 5), (3, 9), (1, 7), (2, 7), (3, 1, 1, 7), (7,)])
@pytest.mark.parametrize("name", RECURRENT)
def test_of_the_source(name, shape):
    with pytest.raises(ValueError, match="attention mask"):
        forward(name, attention_mask=torch.ones(shape))


@pytest.mark.parametrize("name", RECURRENT)
def test_of_the_target(name):
    with pytest.raises(ValueError, match="attention mask"):
        forward(name, decoder_attention_mask=torch.ones(1, 6))
