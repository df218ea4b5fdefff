"""A tiny corpus and the command line of a tiny run, for tests of training."""

import dataclasses
import random

from tiny_marian import WORDS, tiny_tokenizer

from hf_capsule_mt.configuration import METHODS, method_config_class
from hf_capsule_mt.training.trainer import TranslationTrainer

SMALL = ["d_model=16", "encoder_layers=2", "decoder_layers=1", "encoder_ffn_dim=16", "decoder_ffn_dim=16"]
SMALL += ["encoder_attention_heads=2", "decoder_attention_heads=2"]


def small(method):
    """The overrides that make a model of `method` tiny; of an unknown method, any."""
    if method not in METHODS:
        return SMALL
    known = {field.name for field in dataclasses.fields(method_config_class(method))}
    return [override for override in SMALL if override.partition("=")[0] in known]


def write_corpus(folder, pairs=60):
    """Random letters and their reversals, a validation set and a tokenizer; returns `folder`."""
    generator = random.Random(0)
    tiny_tokenizer().save_pretrained(folder / "tokenizer")
    for name, size in (("train", pairs), ("validation", 12)):
        sources = [generator.choices(WORDS, k=generator.randint(1, 10)) for _ in range(size)]
        (folder / f"{name}.source").write_text("".join(" ".join(line) + "\n" for line in sources))
        (folder / f"{name}.target").write_text("".join(" ".join(reversed(line)) + "\n" for line in sources))
    return folder


def files(corpus, name):
    """Source and target file of the "train" or "validation" data."""
    return [corpus / f"{name}.source", corpus / f"{name}.target"]


def arguments(corpus, output_dir, *config_overrides, **options):
    """What to give to `main` of the training command; None leaves an option out."""
    defaults = {
        "method": "em-routing",
        "size": "tiny",
        "tokenizer_name": corpus / "tokenizer",
        "train_file": files(corpus, "train"),
        "config_overrides": [*small(options.get("method", "em-routing")), *config_overrides],
        "output_dir": output_dir,
        "max_tokens_per_batch": 60,
        "max_steps": 2,
        # With warm-up the first update would have learning rate 0.
        "warmup_steps": 0,
        "logging_steps": 1,
        "save_strategy": "no",
        "generation_max_length": 8,
        "report_to": "none",
        "use_cpu": True,
    }
    words = []
    for name, value in {**defaults, **options}.items():
        if value is not None:
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return words


def stop_at(monkeypatch, update):
    """The next run dies after `update` updates, before the next one."""
    training_step = TranslationTrainer.training_step

    def step(self, *args, **kwargs):
        if self.state.global_step == update:
            raise KeyboardInterrupt
        return training_step(self, *args, **kwargs)

    monkeypatch.setattr(TranslationTrainer, "training_step", step)
