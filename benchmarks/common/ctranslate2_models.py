"""Models of this package as CTranslate2 has them, to compare with."""

import copy
from collections.abc import Sequence
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import MarianConfig, MarianMTModel, PreTrainedModel

from benchmarks.common.workload import FIRST_WORD, plain_config

CTRANSLATE2_PRECISIONS = ("float32", "int8")


def for_ctranslate2(model: PreTrainedModel) -> MarianMTModel | None:
    """Return the model as Marian has it. None if it has other weights, is not on a CPU, or there is no CTranslate2."""
    if find_spec("ctranslate2") is None or model.device.type != "cpu" or not isinstance(model.config, MarianConfig):
        return None
    plain = MarianMTModel(plain_config(model.config)).eval()
    weights = model.state_dict()
    if plain.state_dict().keys() != weights.keys():
        return None
    plain.load_state_dict(weights)
    return plain


def ctranslate2_translator(model: MarianMTModel, precision: str) -> Any:
    """Return CTranslate2's translator of a model. Its words are the token ids, as text."""
    import ctranslate2

    spec = ctranslate2_spec(model, [str(word) for word in range(model.config.vocab_size)])
    spec.optimize()
    with TemporaryDirectory() as folder:
        spec.save(folder)
        return ctranslate2.Translator(folder, compute_type=precision, intra_threads=torch.get_num_threads())


def ctranslate2_spec(model: MarianMTModel, words: Sequence[str]) -> Any:
    """Return a model as CTranslate2 writes it.

    Args:
        model: in float32.
        words: its vocabulary.
    """
    from ctranslate2.converters.transformers import BartLoader

    # Shallow copies share the weights, and the given configuration stays as it is.
    model = copy.copy(model)
    config = copy.copy(model.config)
    model.config = config
    # As its loader of Marian has it, which also drops the last word and the start token's embedding, for OPUS-MT.
    config.normalize_before = False
    config.normalize_embedding = False
    spec = BartLoader().get_model_spec(model)
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.bos_token = words[config.decoder_start_token_id]
    spec.config.decoder_start_token = words[config.decoder_start_token_id]
    spec.config.eos_token = words[config.eos_token_id]
    spec.config.unk_token = words[FIRST_WORD - 1]
    spec.validate()
    return spec
