"""A checkpoint, exported: encoder and step as programs, checked, with the tokenizer and the configuration."""

from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.checkpoints import CONFIG, load_config, load_tokenizer, load_weights
from hf_capsule_mt.files import check_empty, new_folder, write_json
from hf_capsule_mt.saving import explained_saving
from hf_capsule_mt.source_limits import check_words, positions, source_limit

from .checks import check_numbers, check_translation, example_source, example_step
from .formats import SUFFIXES, check_format, read_program, write_program
from .programs import EncoderProgram, StepProgram, check_family, family_of


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
        ValueError: if a package is missing, the checkpoint is of another family or damaged, or a check fails.
        OSError: if there is no such checkpoint, or the folder has files in it.
    """
    check_empty(output_dir)
    check_format(file_format)
    check_family(checkpoint, load_config(checkpoint, revision).model_type)
    where = {"revision": revision, "trust_remote_code": False}
    model = load_weights(AutoModelForSeq2SeqLM, checkpoint, dtype="float32", **where).eval()
    tokenizer = load_tokenizer(checkpoint, revision)
    with explained_saving(output_dir), new_folder(output_dir) as folder:
        difference, translation = _write(model, tokenizer, folder, SUFFIXES[file_format], text)
        # Without the source that a configuration of this package would save with it.
        write_json(folder / CONFIG, model.config.to_diff_dict())
        model.generation_config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        files = sorted(file.name for file in folder.iterdir())
    return Exported(files, difference, translation)


@torch.no_grad()
def _write(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, suffix: str, text: str
) -> tuple[float, str]:
    """Write the programs, and return what their checks find."""
    family = family_of(model)
    own = EncoderProgram(family), StepProgram(family)
    source = example_source(model)
    paths = folder / f"encoder{suffix}", folder / f"step{suffix}"
    examples = source, example_step(*own, source)
    for program, example, path in zip(tqdm(own, desc="writing", unit=" programs"), examples, paths):
        write_program(program, example, path)
    exported = tuple(map(read_program, paths))
    difference = check_numbers(model, own, exported)
    limit = source_limit(model.config, tokenizer)
    source = dict(tokenizer(text, truncation=True, max_length=limit, return_tensors="pt"))
    check_words(int(source["input_ids"].max()), model, "put the right one beside the weights")
    source = {name: source[name] for name in ("input_ids", "attention_mask")}
    longest = min(2 * source["input_ids"].shape[1] + 20, (positions(model.config) or 1024) - 1)
    words = check_translation(model, source, *exported, longest)
    return difference, tokenizer.decode(words[0], skip_special_tokens=True)
