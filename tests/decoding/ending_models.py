"""Tiny models with random weights whose translations end by themselves, at different lengths."""

from pathlib import Path

import pytest
import torch
from aggregated_models import ALL, EOS, PAD, SHAPE, aggregated, marian, randomise, source_batch
from recurrent_models import KINDS, recurrent
from transformers import (
    AutoModelForSeq2SeqLM,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

# More than one group of words, and not a multiple of their size.
VOCABULARY = 600
LONGEST = 12
# For each kind the seed, and what is added to the score of EOS.
_BIASES = {
    "none": (0, 6),
    "three_layers": (0, 4),
    "linear": (1, 4),
    "dynamic": (0, 6),
    "attention": (1, 5),
    "dynamic_routing": (1, 2),
    "em_routing": (1, 5),
    "em_routing_joint": (1, 3),
    "heads_simple": (0, 4),
    "heads_em": (1, 5),
    "heads_and_layers_em": (1, 3),
    "gdr": (1, 6),
    "guided_classifier": (2, 6),
    "guided_attention": (2, 6),
    "everything": (0, 6),
    "source_linear": (0, 4),
    "source_attention": (0, 3),
    "source_dynamic": (0, 6),
    "source_dynamic_routing": (0, 6),
    "source_em_routing": (0, 4),
    "each_layer": (1, 3),
}
# For each kind the seed, and the factor of the score of EOS.
_FACTORS = {
    "capsule": (0, 1.5),
    "three_layers": (1, 2),
    "no_strategies": (1, 3),
    "pooling": (1, 3),
    "rnmt": (1, 1.5),
    "hybrid": (1, 2),
    "hybrid_pooling": (1, 2),
    "guided": (1, 3),
    "guided_hybrid": (1, 3),
    "guided_attention": (1, 2),
    "guided_classifier": (1, 2),
}
STORED = Path(__file__).parents[2] / "checkpoints"
RECURRENT = ("recurrent/guided_hybrid", "recurrent/capsule")
PRE_NORM = ("pre_norm/m2m100", "pre_norm/mbart")
T5 = ("t5/v1_0", "t5/v1_1", "t5/mt5")
ONE_OF_EACH_FAMILY = ("marian", "marian/everything", "marian/em_routing", "marian/source_linear", *RECURRENT)
ONE_OF_EACH_FAMILY += (*PRE_NORM, "t5/v1_1")
# The other models have two layers, where many faults of a middle layer cannot be seen.
DEEP = ("marian/three_layers", "marian/three_layers_em_routing", "recurrent/three_layers")
EVERY_KIND = ("marian", "marian/own_words", "marian/residual", *(f"marian/{kind}" for kind in ALL))
EVERY_KIND += tuple(f"recurrent/{kind}" for kind in KINDS)
EVERY_KIND += (*DEEP, *PRE_NORM, "pre_norm/mbart_tied", *T5)

_PRE_NORM = {
    "m2m100": (M2M100Config, M2M100ForConditionalGeneration),
    "mbart": (MBartConfig, MBartForConditionalGeneration),
}
# For each kind what is added to the score of EOS.
_ADDED = {"m2m100": 6, "mbart": 3, "mbart_tied": 7}
_THREE = {"encoder_layers": 3, "decoder_layers": 3}
# The heads are wider together than the states. Few buckets, so that there are all of them in short translations.
_T5_SHAPE = {
    **{"vocab_size": VOCABULARY, "d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 3, "num_heads": 4},
    **{"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20},
    **{"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": PAD},
}
# For each kind its classes, its feed-forward network and the seed.
_T5 = {
    "v1_0": (T5Config, T5ForConditionalGeneration, "relu", 0),
    "v1_1": (T5Config, T5ForConditionalGeneration, "gated-gelu", 1),
    "mt5": (MT5Config, MT5ForConditionalGeneration, "gated-gelu", 2),
}

# The first two share nothing but the search.
_OF_EVERY_OPTION = ("marian", "recurrent/capsule", *PRE_NORM, "t5/v1_1")


def every_option(options, of_every_family):
    """Names of models with options: all of those for some families, and for the others those of every family."""
    families = dict.fromkeys(options, _OF_EVERY_OPTION) | dict.fromkeys(of_every_family, ONE_OF_EACH_FAMILY)
    pairs = [(name, option) for option, names in families.items() for name in names]
    # It goes to Transformers.
    pairs = [pair for pair in pairs if pair != ("pre_norm/m2m100", "no_cache")]
    return [pytest.param(*pair, id="-".join(pair)) for pair in pairs]


def ending(name):
    """A model in evaluation mode, which forces no EOS at the limit."""
    family, _, kind = name.partition("/")
    make = {"marian": _marian, "recurrent": _recurrent, "pre_norm": pre_norm, "t5": t5}[family]
    model = make(kind)
    model.generation_config.forced_eos_token_id = None
    return model


def stored(name):
    """A trained model."""
    return AutoModelForSeq2SeqLM.from_pretrained(STORED / name).eval()


def sources(count, seed=0, longest=12):
    """Sources of different lengths, with their mask."""
    generator = torch.Generator().manual_seed(seed)
    return source_batch(torch.randint(2, longest, (count,), generator=generator).tolist())


def batches(source, size):
    """The parts of a batch, each with padding of its own."""
    for start in range(0, len(source["input_ids"]), size):
        part = {name: value[start : start + size] for name, value in source.items()}
        length = part["attention_mask"].sum(1).max()
        yield {name: value[:, :length] for name, value in part.items()}


def _marian(kind):
    words = {"vocab_size": VOCABULARY, "decoder_vocab_size": VOCABULARY}
    if kind == "":
        model = marian(0, **words)
    elif kind == "own_words":
        own = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": VOCABULARY, "vocab_size": 40}
        torch.manual_seed(0)
        model = MarianMTModel(MarianConfig(**{**SHAPE, **own, "init_std": 0.5, "tie_word_embeddings": False})).eval()
    elif kind == "three_layers":
        model = marian(0, **words, **_THREE)
    elif kind == "three_layers_em_routing":
        model = aggregated("em_routing", 0, **words, **_THREE)
    elif kind == "residual":
        residual = {"layer_aggregation_output": "residual", "head_aggregation_output": "residual"}
        model = aggregated("everything", 0, **words, **residual)
    else:
        model = aggregated(kind, _BIASES[kind][0], **words)
    model.final_logits_bias[:, EOS] += _BIASES.get(kind, (0, 6))[1]
    return model


def pre_norm(kind, likely=EOS, added=None, seed=0, **fields):
    """An M2M-100 or mBART with three layers, where something is added to the score of a likely token."""
    name, _, variant = kind.partition("_")
    config_class, model_class = _PRE_NORM[name]
    shape = {**SHAPE, **_THREE, "vocab_size": VOCABULARY, "init_std": 0.5, "tie_word_embeddings": variant == "tied"}
    # Transformers' own start.
    shape["decoder_start_token_id"] = EOS
    model = randomise(model_class(config_class(**{**shape, **fields})).eval(), seed)
    constant = model.model.decoder.layer_norm.bias
    added = _ADDED[kind] if added is None else added
    with torch.no_grad():
        # A part of all states, so a direction in which a row of weights adds the same to all scores of its token.
        model.lm_head.weight[likely] += added * constant / constant.square().sum()
    return model


def t5(kind, seed=None, factor=2.5, **fields):
    """A T5 with three layers: v1.0, v1.1 with an output projection of its own, as MADLAD-400 has it, or mT5.

    The score of EOS is multiplied by a factor.
    """
    config_class, model_class, network, ending_seed = _T5[kind]
    seed = ending_seed if seed is None else seed
    shape = {**_T5_SHAPE, "feed_forward_proj": network, "tie_word_embeddings": kind == "v1_0"}
    model = randomise(model_class(config_class(**{**shape, **fields})).eval(), seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        if kind != "v1_0":
            weight = torch.randn(model.lm_head.weight.shape, generator=generator)
            model.lm_head.weight = torch.nn.Parameter(weight)
        for stack in (model.encoder, model.decoder):
            stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight.mul_(5)
        model.lm_head.weight[model.config.eos_token_id] *= factor
    return model


def _recurrent(kind):
    seed, factor = _FACTORS[kind]
    layers = _THREE if kind == "three_layers" else {}
    kind = "capsule" if kind == "three_layers" else kind
    model = recurrent(kind, seed, vocab_size=VOCABULARY, tie_word_embeddings=False, **layers)
    with torch.no_grad():
        model.lm_head.weight[EOS] *= factor
    return model
