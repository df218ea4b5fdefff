"""The folder of a reader: a corpus, a Marian checkpoint, a run and its scores, under the names of the pages."""

import json
import random
import shutil

import pytest
from tiny_marian import WORDS, tiny_model, tiny_tokenizer
from tiny_run import arguments, write_corpus

from hf_capsule_mt import CapsNMTConfig, CapsNMTForConditionalGeneration
from tests.evaluation.tiny_comet import write_checkpoint


@pytest.fixture(scope="package")
def prepared(tmp_path_factory):
    """The folder that pages get a copy of."""
    from hf_capsule_mt.cli import average_checkpoints, evaluate, train

    folder = write_corpus(tmp_path_factory.mktemp("prepared"), pairs=30)
    tiny_model(max_position_embeddings=256).save_pretrained(folder / "marian")
    tiny_tokenizer(model_max_length=256).save_pretrained(folder / "marian")
    least = {"encoder_layers": 1, "decoder_layers": 1, "routing_iterations": 1, "num_sentence_capsules": 2}
    capsnmt = CapsNMTForConditionalGeneration(CapsNMTConfig(vocab_size=29, d_model=16, **least))
    capsnmt.save_pretrained(folder / "capsnmt")
    tiny_tokenizer().save_pretrained(folder / "capsnmt")
    _write_texts(folder)
    write_checkpoint(folder / "comet_model", "regression")
    options = {"save_strategy": "steps", "save_steps": 1, "train_file": [folder / "train.en", folder / "train.de"]}
    least = ["encoder_layers=1", "decoder_layers=1", "num_output_capsules=4", "routing_iterations=2"]
    least += ['layer_aggregation_sides=["encoder"]']
    train.main(arguments(folder, folder / "run", *least, **options))
    # Of pages that need one, some make it themselves.
    shutil.rmtree(folder / "tokenizer")
    average = folder / "run" / "average"
    average_checkpoints.main(["--run_dir", str(folder / "run"), "--last", "2", "--output_dir", str(average)])
    scored = ["--hypotheses", str(folder / "baseline.de"), "--references", str(folder / "test.de")]
    evaluate.main([*scored, "--output_file", str(folder / "run" / "test.json")])
    return folder


def _write_texts(folder):
    generator = random.Random(0)
    for name, size in (("train", 30), ("val", 4), ("test", 6), ("general", 4)):
        lines = [generator.choices(WORDS, k=generator.randint(2, 8)) for _ in range(size)]
        _write(folder / f"{name}.en", lines)
        _write(folder / f"{name}.de", [line[::-1] for line in lines])
    units = [
        "".join(f'<tuv xml:lang="{side}"><seg>{line}</seg></tuv>' for side, line in zip(("en", "de"), both))
        for both in zip(*(_lines(folder / f"train.{side}") for side in ("en", "de")))
    ]
    body = "".join(f"<tu>{unit}</tu>" for unit in units)
    (folder / "memory.tmx").write_text(f'<tmx version="1.4"><header srclang="en"/><body>{body}</body></tmx>')
    pairs = zip(_lines(folder / "general.en"), _lines(folder / "general.de"))
    (folder / "deu.txt").write_text("".join(f"{source}\t{target}\tCC-BY\n" for source, target in pairs))
    runs = ("plain-1.de", "plain-2.de", "plain-3.de", "caps-1.de", "caps-2.de")
    for name in ("baseline.de", "system.de", *runs):
        shutil.copy(folder / "test.de", folder / name)
    _write(folder / "books.tok.en", [generator.choices(WORDS, k=5 + i % 24) for i in range(500)])
    # The last pair is longer than the model can read.
    pairs = [*zip(*(_lines(folder / f"train.{language}")[:6] for language in ("en", "de"))), ("a " * 400, "b")]
    rows = [json.dumps({"translation": {"en": source, "de": target}}) for source, target in pairs]
    (folder / "train.jsonl").write_text("".join(f"{row}\n" for row in rows))


def _lines(path):
    return path.read_text().splitlines()


def _write(path, lines):
    path.write_text("".join(" ".join(line) + "\n" for line in lines))
