"""A joint byte-level BPE tokenizer, and checks of any tokenizer against a model's config."""

import copy
import json
from collections.abc import Iterable, Iterator

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from hf_capsule_mt.files import hash_text
from hf_capsule_mt.translation.language_codes import LANGUAGE_CODE

PAD, UNK, EOS = "<pad>", "<unk>", "</s>"
MODEL_MAX_LENGTH = 512
_SPECIAL = "pad_token_id", "eos_token_id"
_SAMPLE = "Zwölf ÉTUDES d'été, 3.5 Sätze: \u201cplaît-il?\u201d 你好"


def train_joint_bpe(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Learn one vocabulary for source and target together.

    The BPE works on UTF-8 bytes, so `decode(encode(text), skip_special_tokens=True)` gives the text as it
    was, even one that spells a special token. Every text, source or target, gets a `</s>` at its end, and its
    first word is tokenised like the same word elsewhere. A language code that begins a text (`>>pt<<`)
    becomes one token.

    Args:
        texts: sentences of both languages, in any order. They are gone through twice; an iterator is read into a list.
        vocab_size: number of tokens; in it are `<pad>` (id 0), `<unk>` (1), `</s>` (2), the 256 bytes and the
            language codes. A small text may have too few merges to reach it.

    Raises:
        ValueError: no text, or a vocabulary too small for what must be in it.
    """
    texts = list(texts) if isinstance(texts, Iterator) else texts
    if next(iter(texts), None) is None:
        raise ValueError("There are no texts to train a tokenizer on.")
    codes = sorted({code.group().rstrip() for code in map(LANGUAGE_CODE.match, texts) if code})
    _check_vocab_size(vocab_size, len(codes))
    tokenizer = Tokenizer(models.BPE())
    # A space in front of every text makes its first word like any other; the decoder takes it away again.
    tokenizer.normalizer = normalizers.Prepend(" ")
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", left=1, right=0)])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(codes),
        special_tokens=[PAD, UNK, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((LANGUAGE_CODE.sub("", text) for text in texts), trainer)
    tokenizer.add_tokens([AddedToken(code, rstrip=True, normalized=False) for code in codes])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", pair=f"$A $B {EOS}", special_tokens=[(EOS, tokenizer.token_to_id(EOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNK,
        eos_token=EOS,
        model_max_length=MODEL_MAX_LENGTH,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        # "</s>" in a text is text.
        split_special_tokens=True,
    )


def _check_vocab_size(vocab_size: int, num_codes: int) -> None:
    smallest = len([PAD, UNK, EOS]) + len(pre_tokenizers.ByteLevel.alphabet()) + num_codes
    if vocab_size < smallest:
        raise ValueError(
            f"vocab_size is {vocab_size}; it must be at least {smallest}: {PAD}, {UNK}, {EOS}, 256 bytes and "
            f"{num_codes} language codes."
        )


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> None:
    """Check, before any long work, that a model with `config` can be trained on what `tokenizer` makes.

    Raises:
        ValueError: no pad or eos token, or one for both, another pad or eos id than the config's, padding on the left,
            a vocabulary that the model's embeddings cannot hold, two vocabularies for a model with one, or targets that
            do not end in eos.
    """
    check_padding_side(tokenizer)
    check_special_tokens(tokenizer)
    for name in _SPECIAL:
        token_id, config_id = getattr(tokenizer, name), getattr(config, name)
        if token_id != config_id:
            raise _other_id(name, token_id, config_id)
    _check_fits(tokenizer.get_vocab(), config, "vocab_size")
    if getattr(tokenizer, "separate_vocabs", False):
        if not hasattr(config, "decoder_vocab_size"):
            raise ValueError(
                f"{tokenizer.name_or_path or 'The tokenizer'} has one vocabulary for the source and another for the "
                f"target; {config.model_type} has one for both: make a tokenizer with hf-capsule-mt train_tokenizer, "
                "or take a method of the Transformer family"
            )
        _check_fits(tokenizer.target_encoder, config, "decoder_vocab_size")
    if tokenizer(text_target="a")["input_ids"][-1:] != [tokenizer.eos_token_id]:
        raise ValueError(
            f"The tokenizer does not end a target with its eos token {tokenizer.eos_token!r}, so the model "
            "would never learn to stop. Give it a post-processor that does."
        )


def check_special_tokens(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise a ValueError for a tokenizer without a pad or an eos token, or with one token for both."""
    for name in _SPECIAL:
        if getattr(tokenizer, name) is None:
            raise ValueError(f"The tokenizer has no {name.removesuffix('_id')}. Give it one, or use another.")
    if tokenizer.pad_token_id == tokenizer.eos_token_id:
        # Embeddings of padding get no gradient, and generate() starts from that word, and never chooses it.
        raise ValueError(
            f"The tokenizer's pad token and its eos token are both {tokenizer.eos_token!r}, with which a model hardly "
            "learns. Give it a pad token of its own."
        )


def check_special_ids(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig | None) -> None:
    """Raise a ValueError for another pad or eos id than the config's, which may be of any family, or leave one out."""
    for name in _SPECIAL:
        token_id, config_id = getattr(tokenizer, name), getattr(config, name, None)
        allowed = config_id if isinstance(config_id, list) else [config_id]
        if None not in (token_id, config_id) and token_id not in allowed:
            raise _other_id(name, token_id, config_id)


def _other_id(name: str, token_id: int, config_id: int | list[int] | None) -> ValueError:
    return ValueError(
        f"{name} is {token_id} in the tokenizer and {config_id} in the model's config; they must be the same. Use the "
        "tokenizer that belongs to the model."
    )


def check_padding_side(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise a ValueError for padding on the left, which a decoder would read as words."""
    if tokenizer.padding_side != "right":
        raise ValueError(
            f"padding_side of the tokenizer is {tokenizer.padding_side!r}: decoders of translations would read the "
            "padding; set tokenizer.padding_side = 'right'"
        )


def _check_fits(vocabulary: dict[str, int], config: PreTrainedConfig, name: str) -> None:
    needed = max(vocabulary.values()) + 1
    if needed > getattr(config, name):
        raise ValueError(
            f"{name} is {getattr(config, name)} in the model's config, but the tokenizer has ids up to "
            f"{needed - 1}. Make the model with {name}={needed} or more, or use its own tokenizer."
        )


def words_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a hash of a tokenizer's words, their ids and those of a text, the same in all versions of libraries."""
    # A tokenizer keeps how it was called last, and would be saved with it.
    ids = copy.deepcopy(tokenizer)(_SAMPLE)["input_ids"]
    vocabularies = tokenizer.get_vocab(), getattr(tokenizer, "target_encoder", None)
    return hash_text([json.dumps([*vocabularies, ids], sort_keys=True)])[:16]


def forbid_pad(generation_config: GenerationConfig, pad_token_id: int) -> None:
    """Keep `generate()` from choosing the pad token, as OPUS-MT's configs do with `bad_words_ids`."""
    bad_words_ids = generation_config.bad_words_ids or []
    if [pad_token_id] not in bad_words_ids:
        generation_config.bad_words_ids = [*bad_words_ids, [pad_token_id]]
