"""Translate lines of text in batches of similar length."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
)
from transformers.generation import GenerationMode
from transformers.utils import logging

from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.encoding import cut_lines, positions, source_limit, tokenize_lines
from hf_capsule_mt.data.lines import unbroken
from hf_capsule_mt.decoding import FiniteScores, NewTokenLimits, UnsupportedModelError, engine_of, generate
from hf_capsule_mt.errors import UserError

from .pipeline_translation import copied

logger = logging.get_logger(__name__)

ENGINES = ("fast", "transformers")
# Arguments that generate() only gives to its own loops.
_OF_TRANSFORMERS = ("custom_generate", "streamer", "tokenizer", "assistant_model", "assistant_tokenizer", "synced_gpus")
_EVERY_LINE = {
    # One translation a line, whatever the settings of the checkpoint say.
    "num_return_sequences": 1,
    "return_dict_in_generate": False,
    # Transformers refuses it for several sentences, and it changes only the speed.
    "prompt_lookup_num_tokens": None,
}
_MODES = Lock()
_users: dict[nn.Module, tuple[int, list[nn.Module]]] = {}
"""For each model in use: how many users it has, and which modules were in training mode."""


@dataclass(frozen=True)
class Written:
    """Token ids that a model wrote, and the token that ended them, or None."""

    words: list[int]
    end: int | None

    @property
    def ids(self) -> list[int]:
        """The token ids with their end, if they have one."""
        return self.words if self.end is None else [*self.words, self.end]


def translate_lines(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    lines: Sequence[str],
    *,
    max_tokens_per_batch: int = 4096,
    **options: Any,
) -> list[str]:
    """Translate every line, and return the translations without line breaks. A line without letters is copied.

    Which lines share a batch changes only the rounding. But with `early_stopping="never"` and a `length_penalty` over
    0, the result depends on the longest limit of a batch.

    A batch has at most `max_tokens_per_batch` source tokens, padding included. `options` are those of
    [`generate_batches`], and so of `generate()`, such as `num_beams=5`.

    Raises:
        UserError: if a line has more tokens than a batch may, and as [`generate_batches`] does.
    """
    if isinstance(lines, str):
        raise TypeError(f"lines is one text, {lines!r:.80}. Give a list of lines.")
    limit = source_limit(model.config, tokenizer)
    encoded = tokenize_lines(tokenizer, lines, limit)
    translations = leave_out_copies(lines, encoded)
    cut_lines(tokenizer, lines, encoded, limit)
    batches = batch_by_tokens([len(ids) for ids in encoded], max_tokens_per_batch)
    for batch in translate_batches(model, tokenizer, encoded, batches, **options):
        translations.update(batch)
    return unbroken((translations.get(index, "") for index in range(len(lines))), "translations")


def leave_out_copies(lines: Sequence[str], encoded: list[list[int]]) -> dict[int, str]:
    """Empty the tokens of lines without letters, and return these lines by index.

    A model would invent a translation.
    """
    found = {index: text for index, line in enumerate(lines) if (text := copied(line)) is not None}
    for index in found:
        encoded[index] = []
    return found


def translate_batches(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    encoded: Sequence[Sequence[int]],
    batches: Iterable[Sequence[int]],
    **options: Any,
) -> Iterator[dict[int, str]]:
    """Translate encoded lines. Yield after each batch its translations by index.

    Args:
        tokenizer: decodes the translations, without special tokens, and reads `stop_strings`.

    The other arguments and the errors are as in [`generate_batches`].
    """
    options = with_tokenizer(model, tokenizer, options)
    for batch, _, written in generate_batches(model, encoded, batches, **options):
        texts = tokenizer.batch_decode([row.words for row in written], skip_special_tokens=True)
        yield dict(zip(batch, texts, strict=True))


def with_tokenizer(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return options of `generate()` with the tokenizer, if something stops at strings. Others must not have it."""
    options = dict(options)
    if settings_of(model, options).stop_strings is not None:
        options.setdefault("tokenizer", tokenizer)
    return options


def words_before_end(generated: Tensor, settings: GenerationConfig, limits: Sequence[int]) -> list[Written]:
    """Return what was written in token ids `[batch, length]`: the tokens before the end, the limit, or the padding."""
    ends = settings.eos_token_id if isinstance(settings.eos_token_id, list) else [settings.eos_token_id]
    rows = []
    for row, limit in zip(generated.tolist(), limits, strict=True):
        # The first token is the start. After its limit a row is filled with ends or padding.
        words = row[1 : limit + 1]
        length = next((place for place, word in enumerate(words) if word in ends), None)
        if length is not None:
            rows.append(Written(words[:length], words[length]))
            continue
        # Transformers fills up with -1 where it knows no end.
        while words and words[-1] in (settings.pad_token_id, -1):
            words.pop()
        rows.append(Written(words, None))
    return rows


def generate_batches(
    model: PreTrainedModel,
    encoded: Sequence[Sequence[int]],
    batches: Iterable[Sequence[int]],
    *,
    max_new_tokens: int | None = None,
    engine: str = "fast",
    dtype: str = "float32",
    **options: Any,
) -> Iterator[tuple[Sequence[int], Tensor, list[Written]]]:
    """Decode encoded lines. Yield each batch with its token ids `[batch, length]`, and what was written.

    If memory runs out, a batch is decoded in halves.

    Args:
        model: any encoder-decoder that has `generate()`. It is in evaluation mode while this runs.
        encoded: source tokens of every line.
        batches: indices into `encoded`.
        max_new_tokens: limit to the length of a translation. The default is twice the source tokens plus 20, within the
            model's positions and its generation config.
        engine: "fast" is [`hf_capsule_mt.decoding`], where it can do what is asked, with the same tokens.
            "transformers" is `generate()`.
        dtype: "float32", "bfloat16" or "int8": the precision of the engine "fast", for weights in float32. The engine
            "transformers" has the precision of the weights.
        **options: of `generate()`. The generation config has the others. A line has one translation.

    Raises:
        UserError: if `max_new_tokens` does not fit the model's positions, the engine has no such `dtype`, a token id
            is not in the model's vocabulary, or scores are not finite.
    """
    if engine not in ENGINES or (engine != "fast" and dtype != "float32"):
        raise UserError(f"engine is {engine!r:.80}, with dtype {dtype}. Only engine fast has dtypes of its own.")
    limit = _new_tokens_limit(model, max_new_tokens, options.get("generation_config"))
    options |= _EVERY_LINE
    settings, is_fast = settings_of(model, options), engine == "fast" and engine_takes(model, options)
    size = model.get_input_embeddings().weight.shape[0]
    if is_fast:
        options["custom_generate"] = partial(generate, dtype=dtype)
    else:
        warn_of_dtype(dtype)

    def decode(batch: Sequence[int]) -> tuple[Sequence[int], Tensor, list[Written]]:
        sources = [encoded[index] for index in batch]
        if (largest := max(map(max, sources))) >= size:
            raise UserError(
                f"The tokenizer has token id {largest}, but {model.name_or_path} has only {size} embeddings. The "
                "tokenizer is another model's. Put the right one next to the weights."
            )
        limits = [max_new_tokens or min(2 * len(source) + 20, limit) for source in sources]
        input_ids, mask = pad_rows(sources, model.config.pad_token_id, model.device)
        source = {"input_ids": input_ids, "attention_mask": mask.long()}
        if is_fast and not torch.is_autocast_enabled(model.device.type):
            with suppress(UnsupportedModelError):
                source["encoder_outputs"] = engine_of(model, dtype).encode(**source)
        # The engine looks at the scores by itself.
        checks = LogitsProcessorList([] if "custom_generate" in options else [FiniteScores(model)])
        generated = model.generate(
            **source,
            stopping_criteria=StoppingCriteriaList([NewTokenLimits(torch.tensor(limits, device=model.device))]),
            # The start token, and one to spare, or `forced_eos_token_id` would only act on the longest sentences.
            max_length=max(limits) + 2,
            max_new_tokens=None,
            **{"logits_processor": checks, **options},
        )
        for check in checks:
            check.check()
        return batch, generated, words_before_end(generated, settings, limits)

    with evaluating(model):
        for batch in batches:
            parts = [batch]
            while parts:
                try:
                    found = decode(parts[0])
                except torch.OutOfMemoryError:
                    batch = parts[0]
                    if len(batch) == 1:
                        raise
                    logger.warning_once("The memory is full, so batches are halved. Lower max_tokens_per_batch.")
                    parts[:1] = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
                else:
                    del parts[0]
                    yield found


def warn_of_dtype(dtype: str) -> None:
    """Warn if the engine was asked for a precision, and Transformers decodes."""
    if dtype != "float32":
        logger.warning_once(f"dtype {dtype} is only for engine fast. Transformers decodes, in the weights' dtype.")


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Switch dropout off until the end of the block. The last of several threads switches it on again."""
    with _MODES:
        count, trained = _users.get(model, (0, []))
        _users[model] = count + 1, trained + [module for module in model.modules() if module.training]
        model.eval()
    try:
        yield
    finally:
        with _MODES:
            count, trained = _users.pop(model)
            if count > 1:
                _users[model] = count - 1, trained
            else:
                for module in trained:
                    module.training = True


def pad_rows(rows: Sequence[Sequence[int]], padding: int | None, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return token ids padded on the right, `[batch, length]`, and their mask, False for padding."""
    lengths = torch.tensor([len(row) for row in rows])
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    padded = pad_sequence(tensors, batch_first=True, padding_value=padding or 0)
    return padded.to(device), (torch.arange(padded.shape[1]) < lengths[:, None]).to(device)


def behind_start(model: PreTrainedModel, ids: Tensor) -> Tensor:
    """Return token ids `[batch, target]` after the start token of `generate()`, `[batch, 1 + target]`."""
    # A model without its head has no generation config, and 0 is a token.
    start = getattr(getattr(model, "generation_config", None), "decoder_start_token_id", None)
    start = model.config.decoder_start_token_id if start is None else start
    return torch.cat([ids.new_full((len(ids), 1), start), ids], dim=1)


def _new_tokens_limit(
    model: PreTrainedModel, max_new_tokens: int | None, config: GenerationConfig | None
) -> int | float:
    # The start token takes a position too.
    most = (positions(model.config) or float("inf")) - 1
    if max_new_tokens is not None and not 1 <= max_new_tokens <= most:
        raise UserError(f"max_new_tokens is {max_new_tokens}. It must be from 1 to {most}.")
    has_limit = config is not None and (config.max_length, config.max_new_tokens) != (None, None)
    generation = config if has_limit else model.generation_config
    return min(most, (generation.max_length or most + 1) - 1, generation.max_new_tokens or most)


def engine_takes(model: PreTrainedModel, options: Mapping[str, Any]) -> bool:
    """Return whether `generate()` would search greedily or by beams, and give the engine all of its arguments."""
    if any(options.get(name) is not None for name in _OF_TRANSFORMERS):
        return False
    mode = settings_of(model, options).get_generation_mode()
    return mode in (GenerationMode.GREEDY_SEARCH, GenerationMode.BEAM_SEARCH)


def settings_of(model: PreTrainedModel, options: Mapping[str, Any]) -> GenerationConfig:
    """Return the settings of `generate()` with these options. None is a value too."""
    config = copy.copy(model.generation_config)
    given = options.get("generation_config")
    fields = {} if given is None else {name: value for name, value in vars(given).items() if value is not None}
    for name, value in {**fields, **options}.items():
        if hasattr(config, name):
            setattr(config, name, value)
    return config
