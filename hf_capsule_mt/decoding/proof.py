"""Whether an engine computes the scores of its model in a version of Transformers that no test has seen.

A newer version may compute something else by the same weights, or have them in other places. The engine must not write
other words than `generate()` then.
"""

import torch
import transformers
from packaging.version import Version
from torch import Tensor
from transformers import PreTrainedModel

from hf_capsule_mt.errors import UserError

from .fingerprint import UnsupportedModelError
from .models.base import Adapter
from .products.products import HalfProduct

NEWEST_TRANSFORMERS = "5.24"
"""The newest version of Transformers that tests have seen, without its patch."""
_ROUNDING = {torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.1}
"""How much scores may differ by rounding, as a part of their spread, by the precision of the model's own products.

Tiny models with random weights differ by 1e-6, 0.003 and 0.02 at most, and trained ones by less. It grows with layers.
"""


class UnprovenModelError(UnsupportedModelError):
    """The scores of an engine are not those of the model in this version of Transformers."""


def prove(model: PreTrainedModel, kind: type[Adapter]) -> None:
    """Compare the first scores of an engine with the model's own, if no test has seen the version of Transformers.

    The products are those of the model's weights. An engine of another precision reads the model in the same way.

    Args:
        model: the model, in evaluation mode.
        kind: its adapter.

    Raises:
        UnprovenModelError: if the scores differ, or the engine cannot read the model.
        UnsupportedModelError: if a module is not what its class says.
    """
    if _major_and_minor(transformers.__version__) <= _major_and_minor(NEWEST_TRANSFORMERS):
        return
    try:
        engine_scores, model_scores = _first_scores(model, kind)
    except (UserError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        # Such as the AttributeError of a part that has another name now.
        raise _unproven(f"the engine cannot read the model ({type(error).__name__}: {error})") from error
    if not _are_close(engine_scores, model_scores, _ROUNDING[_precision_of(model)]):
        raise _unproven("the engine has other scores than the model")


def _major_and_minor(version: str) -> tuple[int, ...]:
    return Version(version).release[:2]


def _are_close(engine_scores: Tensor, model_scores: Tensor, rounding: float) -> bool:
    """Return whether scores differ by so much of their spread at most."""
    # A model may forbid a token by a score of -inf. No score of one that diverged is finite: decoding says so.
    is_finite = model_scores.isfinite()
    if not torch.equal(engine_scores.isfinite(), is_finite):
        return False
    finite_scores = model_scores[is_finite]
    difference = engine_scores[is_finite] - finite_scores
    spread = finite_scores - finite_scores.mean()
    return bool(difference.norm() <= rounding * spread.norm())


def _first_scores(model: PreTrainedModel, kind: type[Adapter]) -> tuple[Tensor, Tensor]:
    """Return the scores of the first target tokens in float32, those of an engine and the model's own.

    Returns:
        Both are `[tokens, vocabulary]`.
    """
    # Its weights are the model's own, which are not copied.
    adapter = kind(model, HalfProduct)
    # Any tokens but padding, whose positions some models count in another way without a cache.
    source_ids = _some_tokens(model.get_input_embeddings().weight.shape[0])
    target_ids = torch.tensor([_some_tokens(adapter.vocabulary.size)], device=model.device)
    source = {
        "input_ids": torch.tensor([[*source_ids, model.config.pad_token_id or 0]], device=model.device),
        "attention_mask": torch.tensor([[*[1] * len(source_ids), 0]], device=model.device),
    }
    encoder = adapter.fast_encoder()
    encoded = encoder(**source, return_dict=True)
    if encoder is adapter.encoder:
        # Its hooks may do something else when they run again.
        source["encoder_outputs"] = encoded
    # A call of the model would compile it, if that was asked for.
    output = model.forward(**source, decoder_input_ids=target_ids, use_cache=False, return_dict=True)
    decoding = adapter.decoding(adapter, encoded, source["attention_mask"], 1)
    scores = []
    for index in range(target_ids.shape[1]):
        decoding.reserve(1, target_ids.shape[1] - index)
        hidden = decoding.step(target_ids[:, index : index + 1])
        scores.append(adapter.vocabulary.scores(hidden))
    return torch.cat(scores).float(), output.logits[0].float()


def _some_tokens(vocabulary_size: int) -> list[int]:
    return [vocabulary_size // part for part in (2, 3, 5)]


def _precision_of(model: PreTrainedModel) -> torch.dtype:
    """Return the precision in which PyTorch multiplies for the model, or a lower one if that is not known."""
    if model.dtype != torch.float32:
        return model.dtype
    try:
        is_exact = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:
        # PyTorch does not say it where another of its settings has chosen fewer bits.
        is_exact = False
    return torch.float32 if is_exact else torch.bfloat16


def _unproven(what: str) -> UnprovenModelError:
    return UnprovenModelError(
        f"in Transformers {transformers.__version__} {what}. Tests end with {NEWEST_TRANSFORMERS}. "
        f"Install transformers=={NEWEST_TRANSFORMERS}.*, or a newer hf-capsule-mt"
    )
