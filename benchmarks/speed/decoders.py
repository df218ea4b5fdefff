"""Decoders of the same weights: `generate()`, the engine in each precision, and CTranslate2 where it is installed."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, MarianConfig, MarianMTModel, PreTrainedConfig, PreTrainedModel

from benchmarks.speed.memory import peak_of_live_tensors
from benchmarks.speed.speed import (
    FIRST_WORD,
    LENGTH_LIMITS,
    Batch,
    Workload,
    check_positions,
    decode,
    decoding_batches,
    long_batch,
    plain_config,
    take_turns,
)
from hf_capsule_mt.configuration import RNMTConfig
from hf_capsule_mt.decoding import UnsupportedModelError, engine_of, generate
from hf_capsule_mt.decoding.precisions import precisions_on
from hf_capsule_mt.records import Decoders

# Decodes a batch into translations of so many tokens.
Decoder = Callable[[Batch, int], object]

GENERATE = "generate()"
CTRANSLATE2_PRECISIONS = ("float32", "int8")


def decoders(model: PreTrainedModel, num_beams: int) -> dict[str, Decoder]:
    """Return all that can decode with the weights of a model, by name; all write as many tokens as they are told.

    Args:
        model: in evaluation mode.
        num_beams: 1 for greedy search.
    """
    found: dict[str, Decoder] = {GENERATE: partial(_generate, model, num_beams, None)}
    if _is_known_to_the_engine(model):
        for precision in precisions_on(model.device):
            found[f"engine {precision}"] = partial(_generate, model, num_beams, precision)
    if (plain := for_ctranslate2(model)) is not None:
        for precision in CTRANSLATE2_PRECISIONS:
            found[f"CTranslate2 {precision}"] = ctranslate2_decoder(plain, num_beams, precision)
    return found


def compare_decoders(
    config: PreTrainedConfig, workload: Workload, device: torch.device, memory_length: int | None = None
) -> Decoders:
    """Let all decoders of a model with random weights take turns, and that of the plain model where there is one.

    Args:
        config: of the model.
        workload: batches and rounds.
        device: where the models run, in float32.
        memory_length: of sources and translations, in tokens, where memory is measured as well.

    Raises:
        ValueError: if the model has too few positions.
    """
    words = max(workload.new_tokens, memory_length or 0, LENGTH_LIMITS[1] - 1)
    check_positions(f"the {config.model_type}", config, words)
    torch.manual_seed(workload.seed)
    model = AutoModelForSeq2SeqLM.from_config(config).to(device).eval()
    found = {}
    if isinstance(config, MarianConfig | RNMTConfig):
        plain = AutoModelForSeq2SeqLM.from_config(plain_config(config)).to(device).eval()
        found[f"plain {GENERATE}"] = partial(_generate, plain, workload.num_beams, None)
    found |= decoders(model, workload.num_beams)
    batches = decoding_batches(workload, config.vocab_size, device)
    runs = [partial(decoder, new_tokens=workload.new_tokens) for decoder in found.values()]
    seconds = take_turns(runs, batches, device)[workload.warmup_rounds :]
    rates = {name: [workload.batch_size / time for time in times] for name, times in zip(found, zip(*seconds))}
    if memory_length is None:
        return Decoders(rates)
    batch = long_batch(workload.batch_size, memory_length, config.vocab_size, device)
    # CTranslate2's tensors are its own.
    of_torch = {name: decoder for name, decoder in found.items() if not name.startswith("CTranslate2")}
    runs = {name: partial(decoder, batch, memory_length) for name, decoder in of_torch.items()}
    return Decoders(rates, {name: peak_of_live_tensors(run) for name, run in runs.items()})


def _generate(model: PreTrainedModel, num_beams: int, precision: str | None, batch: Batch, new_tokens: int) -> Tensor:
    """Decode by the engine in a precision, which reads the sources too; by the model alone without one."""
    if precision is None:
        return decode(model, batch, new_tokens, num_beams)
    encoded = engine_of(model, precision).encode(**batch)
    engine = partial(generate, dtype=precision)
    return decode(model, batch, new_tokens, num_beams, custom_generate=engine, encoder_outputs=encoded)


def _is_known_to_the_engine(model: PreTrainedModel) -> bool:
    try:
        engine_of(model)
    except UnsupportedModelError:
        return False
    return True


def for_ctranslate2(model: PreTrainedModel) -> MarianMTModel | None:
    """Return the model as Marian has it; None if it has other weights, is not on a CPU, or there is no CTranslate2."""
    if not isinstance(model.config, MarianConfig) or model.device.type != "cpu" or find_spec("ctranslate2") is None:
        return None
    plain = MarianMTModel(plain_config(model.config)).eval()
    weights = model.state_dict()
    if plain.state_dict().keys() != weights.keys():
        return None
    plain.load_state_dict(weights)
    return plain


def ctranslate2_decoder(model: MarianMTModel, num_beams: int, precision: str) -> Decoder:
    """Return CTranslate2's decoder of a model, with as many threads as PyTorch has.

    Args:
        model: with weights of float32.
        num_beams: 1 for greedy search.
        precision: float32 or int8, to which CTranslate2 converts the weights.
    """
    translator = ctranslate2_translator(model, precision)

    def run(batch: Batch, new_tokens: int) -> list[list[int]]:
        lengths = batch["attention_mask"].sum(1).tolist()
        sources = [[str(word) for word in row[:length]] for row, length in zip(batch["input_ids"].tolist(), lengths)]
        results = translator.translate_batch(
            sources,
            beam_size=num_beams,
            max_batch_size=len(sources),
            min_decoding_length=new_tokens,
            max_decoding_length=new_tokens,
        )
        return [[int(word) for word in result.hypotheses[0]] for result in results]

    return run


def ctranslate2_translator(model: MarianMTModel, precision: str) -> Any:
    """Return CTranslate2's translator of a model; its words are the numbers of the model's, as text."""
    import ctranslate2

    with TemporaryDirectory() as folder:
        _ctranslate2_spec(model).save(folder)
        return ctranslate2.Translator(folder, compute_type=precision, intra_threads=torch.get_num_threads())


def _ctranslate2_spec(model: MarianMTModel) -> Any:
    """The weights as CTranslate2 saves them, with a vocabulary of numbers."""
    from ctranslate2.converters.transformers import BartLoader

    config = model.config
    # As its loader of Marian has it, which also drops the last word and the start token's embedding, for OPUS-MT.
    config.normalize_before = config.normalize_embedding = False
    spec = BartLoader().get_model_spec(model)
    words = [str(word) for word in range(config.vocab_size)]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.bos_token = spec.config.decoder_start_token = str(config.decoder_start_token_id)
    spec.config.eos_token, spec.config.unk_token = str(config.eos_token_id), str(FIRST_WORD - 1)
    spec.validate()
    spec.optimize()
    return spec
