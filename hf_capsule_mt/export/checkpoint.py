"""A checkpoint, exported: encoder and step as programs, checked, with the tokenizer and the configuration."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.checkpoints import CONFIG, load_config, load_tokenizer, load_weights
from hf_capsule_mt.data.encoding import encode_text
from hf_capsule_mt.files import check_empty, new_folder, write_json
from hf_capsule_mt.saving import explained_saving
from hf_capsule_mt.translation.source_limits import check_text, check_words, positions, source_limit

from .checks import check_numbers, check_translation, example_source, example_step
from .formats import SUFFIXES, check_format, read_program, write_program
from .programs import EncoderProgram, StepProgram, Tensors, check_family, family_of


@dataclass(frozen=True)
class Exported:
    """Result of an export."""

    files: list[str]
    """Names of the files, sorted."""
    difference: float
    """Largest difference from the model."""
    translation: str
    """Of the text that the programs were tried with."""


def export_checkpoint(
    checkpoint: str | Path, output_dir: Path, file_format: str = "onnx", text: str = "", revision: str = "main"
) -> Exported:
    """Write `encoder` and `step` of a checkpoint, in float32, with its tokenizer and configuration.

    The programs are read again and compared with the model for batches of other sizes and lengths, and translate
    `text` greedily to the words that `generate()` finds. Until then there is no `output_dir`.

    Args:
        checkpoint: a folder, or a name on the Hub.
        output_dir: the folder to make; it may be there if it is empty.
        file_format: "onnx", or "torch": files of `torch.export`.
        text: a sentence to try the programs with.
        revision: of a checkpoint on the Hub.

    Raises:
        ValueError: if a package is missing, a folder has a `revision` beside it, the text holds half a character, the
            checkpoint is of another family or damaged, or a check fails.
        OSError: if there is no such checkpoint, or the folder has files in it.
    """
    if revision != "main" and Path(checkpoint).is_dir():
        raise ValueError(f"revision is {revision!r}, but {checkpoint} is a folder, which has none; leave it out")
    check_text(text)
    check_empty(output_dir)
    check_format(file_format)
    check_family(checkpoint, load_config(checkpoint, revision).model_type)
    where = {"revision": revision, "trust_remote_code": False}
    model = load_weights(AutoModelForSeq2SeqLM, checkpoint, dtype="float32", **where).eval()
    tokenizer = load_tokenizer(checkpoint, revision)
    # Before the programs, which take minutes.
    source = _read_text(model, tokenizer, text)
    with new_folder(output_dir) as folder, explained_saving(folder, name=output_dir):
        difference, words = _write(model, source, folder, SUFFIXES[file_format])
        # Without the source that a configuration of this package would save with it.
        write_json(folder / CONFIG, model.config.to_diff_dict())
        model.generation_config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        files = sorted(file.name for file in folder.iterdir())
    return Exported(files, difference, tokenizer.decode(words, skip_special_tokens=True))


@torch.no_grad()
def _write(model: PreTrainedModel, text: Tensors, folder: Path, suffix: str) -> tuple[float, Tensor]:
    """Write the programs, and return what their checks find: a difference, and the words that `text` becomes."""
    family = family_of(model)
    own = EncoderProgram(family), StepProgram(family)
    source = example_source(model)
    paths = folder / f"encoder{suffix}", folder / f"step{suffix}"
    examples = source, example_step(*own, source)
    for program, example, path in zip(tqdm(own, desc="writing", unit=" programs"), examples, paths):
        write_program(program, example, path)
    exported = tuple(map(read_program, paths))
    difference = check_numbers(model, own, exported)
    longest = min(2 * text["input_ids"].shape[1] + 20, (positions(model.config) or 1024) - 1)
    return difference, check_translation(model, text, *exported, longest)[0]


def _read_text(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str) -> Tensors:
    """Return the encoder's input for a text."""
    ids = encode_text(tokenizer, text, source_limit(model.config, tokenizer))
    check_words(max(ids), model, "put the right one beside the weights")
    input_ids = torch.tensor([ids])
    return {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
