"""Write a stand-in of OPUS-MT with a SentencePiece tokenizer, and packages of it for LibreTranslate.

    python -m benchmarks.serving_base checkpoints/tatoeba-en-de-transformer --output_dir base

`base/model` is for `serve`, and `base/packages` for LibreTranslate. The model has the size of OPUS-MT. It repeats the
numbers of a small model, so its translations are those of the small one, and end where they should.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentencepiece import sentencepiece_model_pb2
from transformers import AutoTokenizer, MarianMTModel, PreTrainedTokenizerBase

from benchmarks.opus_mt import check_same_logits, enlarged
from benchmarks.speed.decode import ctranslate2_spec

PAIRS = (("en", "de", "English", "German"), ("de", "en", "German", "English"))
"""LibreTranslate wants both directions. Only the first is called."""
SPECIAL = ("<pad>", "<unk>", "</s>")
SPACE = "▁"


def pieces_of(tokenizer: PreTrainedTokenizerBase, size: int) -> list[str]:
    """Return the vocabulary of a byte-level tokenizer as pieces of SentencePiece, in the order of their ids.

    Args:
        tokenizer: a byte-level one.
        size: of the vocabulary. Further pieces, and those that are no whole characters, have names that no text has.
    """
    pieces = [f"<unused {index}>" for index in range(size)]
    for token, index in tokenizer.get_vocab().items():
        text = token if token in SPECIAL else decoded(token)
        if text is not None:
            pieces[index] = text.replace(" ", SPACE)
    return pieces


def decoded(token: str) -> str | None:
    """Return the text of a byte-level token, or None if it is no whole characters, or SentencePiece refuses it."""
    try:
        text = bytes(BYTES[character] for character in token).decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def byte_of_character() -> dict[str, int]:
    """Return which byte each character of byte-level tokens stands for."""
    # Printable characters stand for themselves, and others for those behind 255.
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = {chr(byte): byte for byte in printable}
    characters |= {chr(256 + index): byte for index, byte in enumerate(others)}
    return characters


BYTES = byte_of_character()


def sentencepiece_model(pieces: list[str]) -> bytes:
    """Return a model of SentencePiece that merges pieces in the order of their ids."""
    model = sentencepiece_model_pb2.ModelProto()
    model.trainer_spec.model_type = model.trainer_spec.BPE
    model.trainer_spec.vocab_size = len(pieces)
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = True
    kinds = model.SentencePiece
    for index, piece in enumerate(pieces):
        kind = kinds.NORMAL
        if piece in SPECIAL:
            kind = kinds.UNKNOWN if piece == "<unk>" else kinds.CONTROL
        model.pieces.add(piece=piece, score=-index, type=kind)
    return model.SerializeToString()


def write_model(large: MarianMTModel, pieces: list[str], folder: Path) -> None:
    """Write a checkpoint with the files of MarianTokenizer."""
    large.save_pretrained(folder)
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(sentencepiece_model(pieces))
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    write_json(folder / "vocab.json", vocabulary)
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "MarianTokenizer", "model_max_length": 512})


def write_package(large: MarianMTModel, pieces: list[str], pair: tuple[str, str, str, str], folder: Path) -> None:
    """Write a package of Argos Translate, which LibreTranslate loads, in int8."""
    source, target, source_name, target_name = pair
    (folder / "model").mkdir(parents=True)
    spec = ctranslate2_spec(large, pieces)
    # Argos Translate gives no end of a sentence.
    spec.config.add_source_eos = True
    spec.optimize(quantization="int8")
    spec.save(str(folder / "model"))
    (folder / "sentencepiece.model").write_bytes(sentencepiece_model(pieces))
    described = {
        "package_version": "1.0",
        "argos_version": "1.9",
        "from_code": source,
        "from_name": source_name,
        "to_code": target,
        "to_name": target_name,
        "type": "translate",
    }
    write_json(folder / "metadata.json", described)


def write_json(path: Path, fields: Mapping[str, Any]) -> None:
    """Write an object."""
    path.write_text(json.dumps(fields, ensure_ascii=False), encoding="utf-8")


def main() -> None:
    """Write the model and the packages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a small Marian model with a byte-level tokenizer")
    parser.add_argument("--output_dir", type=Path, required=True, help="a new folder")
    args = parser.parse_args()
    small = MarianMTModel.from_pretrained(args.folder, dtype="float32").eval()
    large = enlarged(small)
    check_same_logits(large, small)
    pieces = pieces_of(AutoTokenizer.from_pretrained(args.folder), large.config.vocab_size)
    write_model(large, pieces, args.output_dir / "model")
    for pair in PAIRS:
        write_package(large, pieces, pair, args.output_dir / "packages" / f"{pair[0]}_{pair[1]}")


if __name__ == "__main__":
    main()
