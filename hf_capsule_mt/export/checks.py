"""Checks of exported programs: against the model that they were made of, and by a translation."""

from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList

from .formats import Program
from .programs import PAST, PRESENT, EncoderProgram, StepProgram, Tensors

TOLERANCE = 1e-4
"""Largest difference of a number, absolute, and relative where it is above 1."""
_STEPS = 3
# Lengths of the sentences of batches unlike the one that is exported; in the last, nothing is padding.
_BATCHES = ((9, 2, 4), (3,), (6, 1, 12, 6, 5), (7, 7))


def example_source(model: PreTrainedModel, lengths: tuple[int, ...] = (5, 3)) -> Tensors:
    """Return the encoder's input for sentences of chance words."""
    config, generator = model.config, torch.Generator().manual_seed(0)
    shape = len(lengths), max(lengths)
    # Which the decoder reads too.
    num_words = min(stack.embed_tokens.num_embeddings for stack in (model.get_encoder(), model.get_decoder()))
    words = torch.randint(num_words, shape, generator=generator)
    mask = (torch.arange(shape[1]) < torch.tensor(lengths).unsqueeze(1)).long()
    return {"input_ids": words.masked_fill(mask == 0, config.pad_token_id), "attention_mask": mask}


def run_steps(encoder: Program, step: Program, source: Tensors, words: Tensor) -> list[Tensors]:
    """Return the outputs of the encoder, and of a step for each of the words `[batch, steps]`."""
    read = dict(encoder(source))
    outputs = [dict(read)]
    for word in words.split(1, dim=1):
        outputs.append(step({"input_ids": word, **read}))
        read.update(next_states(outputs[-1]))
    return outputs


def next_states(outputs: Tensors) -> Tensors:
    """Return the states after a step, by the names of the next step's input."""
    return {name.replace(PRESENT, PAST): tensor for name, tensor in outputs.items() if name.startswith(PRESENT)}


def example_step(encoder: EncoderProgram, step: StepProgram, source: Tensors) -> Tensors:
    """Return a step's input after some words."""
    words = source["input_ids"][:, :_STEPS]
    read, *outputs = run_steps(encoder, step, source, words)
    return {"input_ids": words[:, -1:], **read, **next_states(outputs[-1])}


def check_numbers(model: PreTrainedModel, own: tuple[Program, Program], exported: tuple[Program, Program]) -> float:
    """Compare all that programs return with what the model's own encoder and step return, for several batches.

    Returns:
        The largest difference.

    Raises:
        ValueError: if a number differs by more than [`TOLERANCE`].
    """
    largest = 0.0
    for lengths in _BATCHES:
        source = example_source(model, lengths)
        words = source["input_ids"].flip(1)[:, :_STEPS]
        for number, (wanted, found) in enumerate(zip(*(run_steps(*each, source, words) for each in (own, exported)))):
            for name, tensor in wanted.items():
                difference = _difference(tensor, found[name])
                if not difference <= TOLERANCE:
                    place = f"step {number}" if number else "the encoder"
                    raise ValueError(
                        f"{name} of {place} differs by {difference:.1e} from the model's, for sentences of "
                        f"{', '.join(map(str, lengths))} words; at most {TOLERANCE} is allowed"
                    )
                largest = max(largest, difference)
    return largest


def _difference(wanted: Tensor, found: Tensor) -> float:
    if wanted.shape != found.shape:
        return torch.inf
    wanted = wanted.double()
    relative = (found - wanted).abs() / wanted.abs().clamp(min=1)
    return relative.amax().item() if relative.numel() else 0.0


@torch.no_grad()
def translate(model: PreTrainedModel, source: Tensors, encoder: Program, step: Program, limit: int) -> Tensor:
    """Return the words that programs find greedily for one sentence, under the model's own settings, `[1, length]`."""

    def generate(
        model: PreTrainedModel,
        input_ids: Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **_: Any,
    ) -> Tensor:
        read = dict(encoder(source))
        while not stopping_criteria(input_ids, None).all():
            outputs = step({"input_ids": input_ids[:, -1:], **read})
            scores = logits_processor(input_ids, outputs["logits"].float())
            input_ids = torch.cat([input_ids, scores.argmax(-1, keepdim=True)], dim=1)
            read.update(next_states(outputs))
        return input_ids

    return model.generate(**source, **_greedy(limit), custom_generate=generate)


def check_translation(model: PreTrainedModel, source: Tensors, encoder: Program, step: Program, limit: int) -> Tensor:
    """Return what [`translate`] does; raise a ValueError if `generate()` finds other words."""
    found = translate(model, source, encoder, step, limit)
    wanted = model.generate(**source, **_greedy(limit))
    if not torch.equal(found, wanted):
        raise ValueError(f"the programs translate as {found.tolist()[0]}, but generate() as {wanted.tolist()[0]}")
    return found


def _greedy(limit: int) -> dict[str, Any]:
    one = {"num_return_sequences": 1, "return_dict_in_generate": False}
    return {"num_beams": 1, "do_sample": False, "max_new_tokens": limit, **one}
