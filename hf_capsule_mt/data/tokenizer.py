"""A joint byte-level BPE tokenizer, and checks of any tokenizer against a model's config."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from hf_capsule_mt.data.languages import LANGUAGE_CODE
from hf_capsule_mt.errors import UserError

PAD, UNK, EOS = "<pad>", "<unk>", "</s>"
MODEL_MAX_LENGTH = 512
_SPECIAL = "pad_token_id", "eos_token_id"


def train_joint_bpe(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Learn one vocabulary for source and target together, from sentences of both languages in any order.

    The BPE works on UTF-8 bytes, so `decode(encode(text), skip_special_tokens=True)` gives the text as it was, even one
    that spells a special token. Every text, source or target, gets a `</s>` at its end, and its first word is tokenised
    like the same word elsewhere. A language code that begins a text (`>>pt<<`) becomes one token.

    `vocab_size` includes `<pad>` (id 0), `<unk>` (1), `</s>` (2), the 256 bytes and the language codes. A small text
    may have too few merges to reach it. Texts are read twice, and an iterator becomes a list.

    Raises:
        UserError: no text, or a vocabulary too small for what must be in it.
    """
    if isinstance(texts, Iterator):
        texts = list(texts)
    if next(iter(texts), None) is None:
        raise UserError("There are no texts to train a tokenizer on.")

    codes = _language_codes(texts)
    smallest = len([PAD, UNK, EOS]) + len(pre_tokenizers.ByteLevel.alphabet()) + len(codes)
    if vocab_size < smallest:
        raise UserError(f"vocab_size is {vocab_size}. It must be at least {smallest}.")

    tokenizer = Tokenizer(models.BPE())
    # A space in front of every text makes its first word like any other. The decoder takes it away.
    tokenizer.normalizer = normalizers.Prepend(" ")
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", left=1, right=0)])

    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(codes),
        special_tokens=[PAD, UNK, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts_without_codes = (LANGUAGE_CODE.sub("", text) for text in texts)
    tokenizer.train_from_iterator(texts_without_codes, trainer)

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


def _language_codes(texts: Iterable[str]) -> list[str]:
    """Return the codes with which texts begin."""
    codes = set()
    for text in texts:
        match = LANGUAGE_CODE.match(text)
        if match is not None:
            codes.add(match.group().rstrip())
    return sorted(codes)


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> None:
    """Check, before any long work, that a model with `config` can be trained on what `tokenizer` makes.

    Raises:
        UserError: no pad or eos token, or one for both, other ids than the config's, padding on the left, a vocabulary
            that the embeddings cannot hold, two vocabularies for a model with one, or targets that do not end in eos.
    """
    check_padding_side(tokenizer)
    check_special_tokens(tokenizer)
    check_special_ids(tokenizer, config)

    if getattr(tokenizer, "separate_vocabs", False) and not hasattr(config, "decoder_vocab_size"):
        raise UserError(
            f"The tokenizer has two vocabularies and {config.model_type} has one. Make a tokenizer with hf-capsule-mt "
            "train_tokenizer, or take a method of the Transformer family."
        )

    largest_id = max(tokenizer.get_vocab().values())
    needed = largest_id + 1
    if needed > config.vocab_size:
        raise UserError(f"vocab_size is {config.vocab_size} in the model's config. The tokenizer needs {needed}.")

    if tokenizer(text_target="a")["input_ids"][-1:] != [tokenizer.eos_token_id]:
        raise UserError(f"The tokenizer puts no {tokenizer.eos_token!r} after a target, so the model could never stop.")


def check_special_tokens(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise a UserError for a tokenizer without a pad or an eos token, or with one token for both."""
    ids = [getattr(tokenizer, name) for name in _SPECIAL]
    if None in ids or ids[0] == ids[1]:
        # Embeddings of padding get no gradient, and generate() never chooses it.
        raise UserError("The tokenizer needs a pad token and an eos token that are not the same.")


def check_special_ids(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig | None) -> None:
    """Raise a UserError for another pad or eos id than the config's, which may be of any family, or leave one out."""
    for name in _SPECIAL:
        token_id = getattr(tokenizer, name)
        config_id = getattr(config, name, None)
        if token_id is None or config_id is None:
            continue
        allowed = config_id if isinstance(config_id, list) else [config_id]
        if token_id not in allowed:
            raise UserError(
                f"{name} is {token_id} in the tokenizer and {config_id} in the model's config. Use the tokenizer that "
                "belongs to the model."
            )


def check_padding_side(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise a UserError for padding on the left, which a decoder would read as text."""
    if tokenizer.padding_side != "right":
        raise UserError("The tokenizer pads on the left. Set tokenizer.padding_side = 'right'.")


def tokenizer_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a hash of all that decides which token ids a text becomes: vocabulary, merges, normaliser and so on."""
    digest = hashlib.sha256()
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        settings = json.loads(backend.to_str())
        # These two only say how it was called last.
        settings["truncation"] = None
        settings["padding"] = None
        digest.update(_sorted_json(settings))
    else:
        digest.update(_sorted_json(tokenizer.get_added_vocab()))
        with TemporaryDirectory() as folder:
            for file in tokenizer.save_vocabulary(folder):
                digest.update(Path(file).read_bytes())

    return digest.hexdigest()[:16]


def _sorted_json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Save a tokenizer into a folder. It replaces another."""
    for name in ("special_tokens_map.json", "added_tokens.json"):
        # Transformers 5 does not write them, but reads those of an older tokenizer.
        (folder / name).unlink(missing_ok=True)
    try:
        tokenizer.save_pretrained(folder)
    except Exception as error:
        # On a full disk the library raises a bare Exception.
        raise OSError(f"The tokenizer cannot be saved in {folder}: {error}") from error


def vocabulary_of(tokenizer: PreTrainedTokenizerBase, side: str = "text") -> dict[str, int]:
    """Return the token ids of sources by their tokens, or with side "text_target" those of translations.

    Only a few tokenizers of Marian have two vocabularies.
    """
    if side == "text_target" and getattr(tokenizer, "separate_vocabs", False):
        return dict(tokenizer.target_encoder)
    return tokenizer.get_vocab()


def is_byte_level(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether each letter of a token stands for a byte, as in byte-level BPE."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    # By name, because a decoder may be a sequence of several.
    return backend is not None and "ByteLevel" in repr(backend.decoder)


def text_of_bytes(piece: str) -> str:
    """Return the text of a token of byte-level BPE. Bytes that are no whole character become U+FFFD."""
    return decoders.ByteLevel().decode([piece])
