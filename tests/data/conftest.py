import io
import json

import pytest
import sentencepiece
from transformers import MarianTokenizer

ENGLISH = ["the old house is green", "two dogs see the house", "a child sees two old dogs"] * 3
GERMAN = ["das alte Haus ist grün", "zwei Hunde sehen das Haus", "ein Kind sieht zwei alte Hunde"] * 3


def write_sentencepiece(path, texts):
    """Train a model at `path`; returns its pieces without the three that every model begins with."""
    model = io.BytesIO()
    options = {"vocab_size": 60, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=model, **options)
    path.write_bytes(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [processor.id_to_piece(i) for i in range(3, len(processor))]


def write_vocabulary(path, pieces):
    tokens = dict.fromkeys(["</s>", "<unk>", "<pad>", *pieces])
    path.write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    return str(path)


def marian_tokenizer(folder, separate_vocabs):
    """A real MarianTokenizer with its two SentencePiece models, laid out as OPUS-MT checkpoints are."""
    source_pieces = [">>de<<", ">>pt_BR<<", *write_sentencepiece(folder / "source.spm", ENGLISH)]
    target_pieces = write_sentencepiece(folder / "target.spm", GERMAN)
    if not separate_vocabs:
        source_pieces = target_pieces = source_pieces + target_pieces
    return MarianTokenizer(
        source_spm=str(folder / "source.spm"),
        target_spm=str(folder / "target.spm"),
        vocab=write_vocabulary(folder / "vocab.json", source_pieces),
        target_vocab_file=write_vocabulary(folder / "target_vocab.json", target_pieces),
        separate_vocabs=separate_vocabs,
    )


@pytest.fixture(scope="session", params=[False, True], ids=["one_vocabulary", "two_vocabularies"])
def marian(request, tmp_path_factory):
    return marian_tokenizer(tmp_path_factory.mktemp("marian"), request.param)


@pytest.fixture(scope="session")
def two_vocabularies(tmp_path_factory):
    return marian_tokenizer(tmp_path_factory.mktemp("marian_two"), separate_vocabs=True)
