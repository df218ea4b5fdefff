"""Write a stand-in of OPUS-MT with a SentencePiece tokenizer, and packages of it for LibreTranslate.

    python -m benchmarks.serving.base_model checkpoints/tatoeba-en-de-transformer --output_dir base

`base/model` is for `serve`, and `base/packages` for LibreTranslate. The model has the size of OPUS-MT. It repeats the
numbers of a small model, so its translations are those of the small one, and end where they should.
"""

import argparse
from pathlib import Path

from sentencepiece import sentencepiece_model_pb2
from tokenizers.decoders import ByteLevel
from transformers import AutoTokenizer, MarianMTModel, PreTrainedTokenizerBase

from benchmarks.common.ctranslate2_models import ctranslate2_spec
from benchmarks.decoding.opus_mt import check_same_logits, enlarged
from hf_capsule_mt.files import write_json

PAIRS = (("en", "de", "English", "German"), ("de", "en", "German", "English"))
"""LibreTranslate wants both directions. Only the first is called."""
SPECIAL = ("<pad>", "<unk>", "</s>")
SPACE = "▁"
BYTE_LEVEL = ByteLevel()


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
    text = BYTE_LEVEL.decode([token])
    return None if "\0" in text or "\N{REPLACEMENT CHARACTER}" in text else text


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
    """Write a package of Argos Translate, which LibreTranslate loads, in int8.

    Args:
        large: a model for this package only. Its weights are multiplied by the scales of int8.
        pieces: its vocabulary.
        pair: the codes of its languages, and their names.
        folder: a new folder.
    """
    source, target, source_name, target_name = pair
    (folder / "model").mkdir(parents=True)
    spec = ctranslate2_spec(large, pieces)
    # Argos Translate gives no end of a sentence.
    spec.config.add_source_eos = True
    spec.optimize(quantization="int8")
    spec.save(str(folder / "model"))
    (folder / "sentencepiece.model").write_bytes(sentencepiece_model(pieces))
    metadata = {
        "package_version": "1.0",
        "argos_version": "1.9",
        "from_code": source,
        "from_name": source_name,
        "to_code": target,
        "to_name": target_name,
        "type": "translate",
    }
    write_json(folder / "metadata.json", metadata)


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
        write_package(enlarged(small), pieces, pair, args.output_dir / "packages" / f"{pair[0]}_{pair[1]}")


if __name__ == "__main__":
    main()
