"""A tiny random MarianMTModel with a word-level tokenizer, and tiny MarianTokenizers, for tests that need some."""

import io
import json
import random
import string

import sentencepiece
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import MarianConfig, MarianMTModel, MarianTokenizer, PreTrainedTokenizerFast

_SIDE = {"layers": 1, "ffn_dim": 32, "attention_heads": 2}
SHAPE = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in _SIDE.items()}
SHAPE |= {"d_model": 16, "max_position_embeddings": 64, "init_std": 1.0}
WORDS = list(string.ascii_lowercase)
ENGLISH = ["the old house is green", "two dogs see the house", "a child sees two old dogs"] * 3
GERMAN = ["das alte Haus ist grün", "zwei Hunde sehen das Haus", "ein Kind sieht zwei alte Hunde"] * 3


def tiny_tokenizer(model_max_length=32):
    """Words are letters; `</s>` ends every text."""
    vocabulary = {token: index for index, token in enumerate(["<pad>", "<unk>", "</s>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    words = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=model_max_length, **words)


def tiny_model(seed=0, max_position_embeddings=64):
    """Random weights, large enough that different sources get different translations."""
    torch.manual_seed(seed)
    words = {"vocab_size": 29, "pad_token_id": 0, "eos_token_id": 2, "forced_eos_token_id": 2}
    shape = {**SHAPE, "max_position_embeddings": max_position_embeddings}
    model = MarianMTModel(MarianConfig(**shape, **words, decoder_start_token_id=0)).eval()
    model.generation_config.bad_words_ids = [[0]]
    # Some translations end by themselves, others at their limit.
    model.final_logits_bias[:, 2] = 8
    return model


def save_tiny_marian(folder, seed=0):
    """Write a checkpoint with its tokenizer and return `folder`."""
    tiny_model(seed).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def tiny_teacher():
    """A model that ends several translations by itself, and has an empty one and one without an end too."""
    model = tiny_model(seed=3)
    model.final_logits_bias[:, 2] = 10
    return model


def save_tiny_teacher(folder):
    """Write the checkpoint of [`tiny_teacher`] with its tokenizer and return `folder`."""
    tiny_teacher().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


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


def aligned_files(folder):
    """Write sources, and translations in which word i stands for word i. Return both files."""
    generator = random.Random(1)
    sources = [generator.choices(WORDS[:8], k=generator.randint(2, 6)) for _ in range(30)]
    targets = [[WORDS[WORDS.index(word) + 8] for word in source] for source in sources]
    for name, lines in (("en", sources), ("de", targets)):
        (folder / name).write_text("".join(" ".join(line) + "\n" for line in lines) + "\n")
    return folder / "en", folder / "de"
