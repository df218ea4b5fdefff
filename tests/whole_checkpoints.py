"""Tiny random checkpoints of each family whose tokenizers have words of four languages, to drop some of them."""

import io
import json

import sentencepiece
import torch
from tiny_marian import SHAPE
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    MBartTokenizer,
    NllbTokenizer,
    T5Config,
    T5ForConditionalGeneration,
    T5Tokenizer,
)

from hf_capsule_mt.data.tokenizer import train_joint_bpe

ENGLISH = ["the old house is green", "two dogs see the house", "a child sees two old dogs", "the house is old"] * 10
GERMAN = ["das alte Haus ist grün", "zwei Hunde sehen das Haus", "ein Kind sieht zwei alte Hunde", "das Haus"] * 10
OTHERS = ["la vieja casa es verde", "dos perros ven la casa", "παλιό σπίτι", "δύο σκύλοι βλέπουν το σπίτι"] * 10
KINDS = ["nllb", "m2m100", "m2m100_bpe", "mbart", "mbart_25", "marian", "marian_bpe", "marian_two", "t5", "capsules"]
LANGUAGES = {
    "nllb": ["eng_Latn", "deu_Latn"],
    "m2m100": ["en", "de"],
    "m2m100_bpe": ["en", "de"],
    "mbart": ["en_XX", "de_DE"],
    "mbart_25": ["en_XX", "de_DE"],
    "capsules": ["de"],
}
"""The languages of the kinds that have several."""
_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
_PREFIX = "translate English to German: "


def save_whole(kind, folder):
    """Write a checkpoint of one of the `KINDS`, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    make, _, form = kind.partition("_")
    model, tokenizer = _MAKERS[make](folder, form)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_()
    model.generation_config.max_length = 12
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _nllb(folder, form):
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=160, special_tokens=_SPECIAL, show_progress=False)
    trained.train_from_iterator(ENGLISH + GERMAN + OTHERS, trainer)
    settings = json.loads(trained.to_str())["model"]
    merges = [tuple(pair) for pair in settings["merges"]]
    tokenizer = NllbTokenizer(vocab=settings["vocab"], merges=merges)
    # The published model has two rows more than tokens.
    config = M2M100Config(vocab_size=len(tokenizer) + 2, **SHAPE)
    return M2M100ForConditionalGeneration(config), tokenizer


def _m2m100(folder, form):
    pieces = _sentencepiece(folder / "sentencepiece.bpe.model", ENGLISH + GERMAN + OTHERS, form or "unigram")
    tokens = dict.fromkeys([*_SPECIAL, *pieces])
    (folder / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
    files = str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model")
    languages = [*M2M100Tokenizer(*files).lang_code_to_token.values()]
    tokenizer = M2M100Tokenizer(*files, additional_special_tokens=languages)
    rows = max(tokenizer.lang_code_to_id.values()) + 1 + tokenizer.num_madeup_words
    return M2M100ForConditionalGeneration(M2M100Config(vocab_size=rows, **SHAPE)), tokenizer


def _mbart(folder, form):
    if form == "25":
        tokenizer = MBartTokenizer(vocab=_unigrams(_SPECIAL))
        config = MBartConfig(vocab_size=len(tokenizer), decoder_start_token_id=2, **SHAPE)
        return MBartForConditionalGeneration(config), tokenizer
    # The class puts its special tokens in the place of SentencePiece's three.
    tokenizer = MBart50Tokenizer(vocab=_unigrams(["<unk>", "<s>", "</s>"]), src_lang="en_XX", bos_token="<s>")
    # Fields of the published ones, which converters read.
    fields = {"normalize_before": True, "normalize_embedding": True, "tokenizer_class": "MBart50Tokenizer"}
    # With smaller weights all sources have the same translation.
    shape = {**SHAPE, "init_std": 2.0}
    config = MBartConfig(vocab_size=len(tokenizer), decoder_start_token_id=2, **shape, **fields)
    return MBartForConditionalGeneration(config), tokenizer


def _t5(folder, form):
    tokenizer = T5Tokenizer(vocab=_unigrams(["<pad>", "</s>", "<unk>"]), extra_ids=4)
    shape = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "initializer_factor": 20.0}
    config = T5Config(vocab_size=len(tokenizer) + 3, decoder_start_token_id=0, **shape)
    config.task_specific_params = {"translation_en_to_de": {"prefix": _PREFIX}}
    model = T5ForConditionalGeneration(config)
    # As in v1.1, where loading leaves the output layer untied.
    model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
    return model, tokenizer


def _marian(folder, form):
    kind = "bpe" if form == "bpe" else "unigram"
    source = _sentencepiece(folder / "source.spm", ENGLISH + OTHERS, kind)
    target = _sentencepiece(folder / "target.spm", GERMAN + OTHERS, kind)
    has_two = form == "two"
    if not has_two:
        source = target = [*source, *target]
    # As in those of 2022, padding is the last token.
    source_vocabulary = list(dict.fromkeys(["</s>", "<unk>", *source]))
    target_vocabulary = list(dict.fromkeys(["</s>", "<unk>", *target]))
    place = min(len(source_vocabulary), len(target_vocabulary))
    source_vocabulary.insert(place, "<pad>")
    target_vocabulary.insert(place, "<pad>")
    for name, tokens in (("vocab.json", source_vocabulary), ("target_vocab.json", target_vocabulary)):
        (folder / name).write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
    tokenizer = MarianTokenizer(
        source_spm=str(folder / "source.spm"),
        target_spm=str(folder / "target.spm"),
        vocab=str(folder / "vocab.json"),
        target_vocab_file=str(folder / "target_vocab.json"),
        separate_vocabs=has_two,
    )
    special = {"pad_token_id": place, "decoder_start_token_id": place, "eos_token_id": 0, "forced_eos_token_id": 0}
    sizes = {"vocab_size": len(source_vocabulary), "share_encoder_decoder_embeddings": not has_two}
    sizes["decoder_vocab_size"] = len(target_vocabulary)
    model = MarianMTModel(MarianConfig(**SHAPE, **sizes, **special))
    gone = next(index for index, token in enumerate(target_vocabulary) if "σ" in token)
    model.generation_config.bad_words_ids = [[place], [gone, 2]]
    model.generation_config.suppress_tokens = [1, gone]
    model.generation_config.begin_suppress_tokens = [gone, place]
    model.generation_config.sequence_bias = [[[1], -2.0], [[gone, 1], 5.0], [[place, 1], -1.5]]
    model.config.task_specific_params = {"short": {"bad_words_ids": [[place, 1]], "num_beams": 1}}
    return model, tokenizer


def _capsules(folder, form):
    from hf_capsule_mt import CapsuleAggregatedMarianConfig, CapsuleAggregatedMarianForConditionalGeneration

    coded = [f">>de<< {line}" for line in GERMAN] + [f">>es<< {line}" for line in OTHERS]
    tokenizer = train_joint_bpe(ENGLISH + coded, 400)
    config = CapsuleAggregatedMarianConfig(
        vocab_size=len(tokenizer),
        layer_aggregation="em_routing",
        num_output_capsules=4,
        pad_token_id=0,
        eos_token_id=2,
        forced_eos_token_id=2,
        decoder_start_token_id=0,
        **{**SHAPE, "encoder_layers": 2, "decoder_layers": 2},
    )
    return CapsuleAggregatedMarianForConditionalGeneration(config), tokenizer


_MAKERS = {"nllb": _nllb, "m2m100": _m2m100, "mbart": _mbart, "t5": _t5, "marian": _marian, "capsules": _capsules}


def _sentencepiece(path, texts, kind):
    """Train a model at `path`, and return its pieces without the three that every model begins with."""
    model = io.BytesIO()
    options = {"vocab_size": 130, "hard_vocab_limit": False, "minloglevel": 2, "model_type": kind}
    if kind == "bpe":
        options = {**options, "vocab_size": 90, "hard_vocab_limit": True}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=model, **options)
    path.write_bytes(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [processor.id_to_piece(index) for index in range(3, len(processor))]


def _unigrams(special):
    """Pieces with their scores, learned from all texts, behind special tokens."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=150, show_progress=False)
    tokenizer.train_from_iterator([*ENGLISH, *GERMAN, *OTHERS, _PREFIX], trainer)
    pieces = json.loads(tokenizer.to_str())["model"]["vocab"]
    return [(token, 0.0) for token in special] + [(piece, score) for piece, score in pieces if piece not in special]
