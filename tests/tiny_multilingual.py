"""Tiny random models and tokenizers of the multilingual kinds that Transformers has: T5, mBART, NLLB and M2M-100."""

import json

import torch
from tiny_marian import ENGLISH, GERMAN, SHAPE, write_sentencepiece
from tokenizers import AddedToken
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    MBartTokenizer,
    NllbTokenizer,
    T5Config,
    T5ForConditionalGeneration,
    T5Tokenizer,
)

_LETTERS = sorted(set("".join(ENGLISH + GERMAN)) - {" "}) + [":", "T", "E", "G"]
_PIECES = ["▁", *_LETTERS, *(f"▁{letter}" for letter in _LETTERS)]


def t5():
    """A T5 whose configuration says what to put before English to translate it into German."""
    tokenizer = T5Tokenizer(vocab=[(piece, 0.0) for piece in ("<pad>", "</s>", "<unk>")] + _scored(), extra_ids=0)
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=16,
        d_kv=8,
        d_ff=16,
        num_layers=1,
        num_heads=2,
        initializer_factor=20.0,
        decoder_start_token_id=0,
        task_specific_params={
            "translation_en_to_de": {"prefix": "translate English to German: ", "num_beams": 2, "max_length": 9}
        },
    )
    return _seeded(T5ForConditionalGeneration, config), tokenizer


def madlad():
    """A T5 whose tokenizer has the codes <2de> and <2pt_BR>, as MADLAD-400 has them."""
    model, tokenizer = t5()
    tokenizer.add_tokens([AddedToken(code, normalized=False) for code in ("<2de>", "<2pt_BR>")])
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.config.task_specific_params = None
    return model, tokenizer


def mbart():
    """mBART, whose languages are en_XX, de_DE and others."""
    vocabulary = [(piece, 0.0) for piece in ("<s>", "<pad>", "</s>", "<unk>")] + _scored()
    tokenizer = MBartTokenizer(vocab=vocabulary)
    return _seeded(MBartForConditionalGeneration, MBartConfig(vocab_size=len(tokenizer), **SHAPE)), tokenizer


def mbart50():
    """mBART-50, whose languages are en_XX, de_DE and others."""
    vocabulary = [(piece, 0.0) for piece in ("<s>", "<pad>", "</s>", "<unk>")] + _scored()
    tokenizer = MBart50Tokenizer(vocab=vocabulary, src_lang="en_XX")
    # In Transformers 5.18 the length leaves out one of the ids.
    config = MBartConfig(vocab_size=max(tokenizer.get_vocab().values()) + 1, **SHAPE)
    return _seeded(MBartForConditionalGeneration, config), tokenizer


def nllb():
    """NLLB, whose languages are eng_Latn, deu_Latn and others."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *_PIECES]
    tokenizer = NllbTokenizer(vocab={piece: index for index, piece in enumerate(dict.fromkeys(pieces))})
    return _seeded(M2M100ForConditionalGeneration, M2M100Config(vocab_size=len(tokenizer), **SHAPE)), tokenizer


def m2m100(folder):
    """M2M-100, whose languages are en, de and others; its tokenizer reads files."""
    pieces = write_sentencepiece(folder / "sentencepiece.bpe.model", ENGLISH + GERMAN)
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(["<s>", "<pad>", "</s>", "<unk>", *pieces]))}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    files = str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model")
    # As tokenizer_config.json of the published models names them. By itself the class does not.
    languages = [*M2M100Tokenizer(*files).lang_code_to_token.values()]
    tokenizer = M2M100Tokenizer(*files, additional_special_tokens=languages)
    config = M2M100Config(vocab_size=max(tokenizer.lang_code_to_id.values()) + 1, **SHAPE)
    return _seeded(M2M100ForConditionalGeneration, config), tokenizer


def _scored():
    return [(piece, -1.0 - index / 100) for index, piece in enumerate(dict.fromkeys(_PIECES))]


def _seeded(model_class, config):
    torch.manual_seed(0)
    model = model_class(config).eval()
    model.generation_config.max_new_tokens = 6
    return model
