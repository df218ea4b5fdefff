"""Languages that a trained model lacks: a token for each, whose weights begin as those of another language."""

import re
from collections.abc import Mapping

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.languages import (
    ADDED_LANGUAGES,
    language_ids,
    language_token,
    nearest,
    tell_added_languages,
)
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.language_tags import written_like
from hf_capsule_mt.modeling.token_rows import take_token_rows

_WAYS_TO_WRITE = {
    "deu_Latn": re.compile(r"[a-z]{3}_[A-Z][a-z]{3}"),
    "de_DE": re.compile(r"[a-z]{2,3}_[A-Z]{2}"),
    "de": re.compile(r"[a-z]{2,3}"),
}
"""How NLLB, mBART and M2M-100 write languages, with German as the example."""


def add_languages(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, languages: Mapping[str, str]) -> None:
    """Add languages to NLLB, M2M-100 or mBART, to be trained.

    Each gets a token, and begins as a copy of another language: a row of the embeddings and of the output layer. No
    other weight changes, and the translations of the other languages stay the same.

    Example:

        add_languages(model, tokenizer, {"dsb_Latn": "deu_Latn", "hsb_Latn": "ces_Latn"})
        tokenizer.src_lang, tokenizer.tgt_lang = "deu_Latn", "dsb_Latn"

    Args:
        model: is changed.
        tokenizer: the model's, which is changed too.
        languages: for each new language the one that it begins as. Both are written as the model writes them.

    Raises:
        UserError: if the tokenizer has no languages, has a new one already or lacks another, a new one is not written
            like the others, or the tokenizer is another model's.
    """
    begin_rows(model, add_language_tokens(tokenizer, languages))


def add_language_tokens(tokenizer: PreTrainedTokenizerBase, languages: Mapping[str, str]) -> dict[int, int]:
    """Add languages to a tokenizer, and return the id of each token with that of the language that it begins as.

    Args:
        tokenizer: is changed.
        languages: for each new language the one that it begins as.

    Raises:
        UserError: as [`add_languages`] does.
    """
    if not languages:
        return {}

    ids = language_ids(tokenizer)
    _check_new(tokenizer, languages, ids)
    tokens = {code: language_token(tokenizer, code) for code in languages}
    old_vocabulary = {*tokenizer.get_vocab().values(), *ids.values()}

    tokenizer.add_special_tokens({"extra_special_tokens": [*tokens.values()]}, replace_extra_special_tokens=False)
    if hasattr(tokenizer, "lang_code_to_id"):
        known = tokenizer.init_kwargs.get(ADDED_LANGUAGES, [])
        tokenizer.init_kwargs[ADDED_LANGUAGES] = [*known, *tokens]
        tell_added_languages(tokenizer)
        # Saved with a source that its class lacks, M2M-100's tokenizer could not be loaded.
        tokenizer.init_kwargs.pop("src_lang", None)

    begins_as = {}
    for code, like in languages.items():
        begins_as[tokenizer.convert_tokens_to_ids(tokens[code])] = ids[like]
    if min(begins_as) <= max(old_vocabulary):
        # M2M-100 has the ids of its languages also if its files do not list them, and then they look free.
        raise UserError(
            "New tokens would not follow the last old one: tokenizer_config.json does not list the languages, or the "
            "token ids have gaps. Copy the tokenizer again from the model's authors."
        )
    return begins_as


def begin_rows(model: PreTrainedModel, begins_as: Mapping[int, int]) -> None:
    """Give new tokens of a model the weights of others.

    Args:
        model: is changed. Rows without a token, which some models have behind the last, stay behind the new ones.
        begins_as: for the id of each new token the id of another. The new ones follow the last old one.

    Raises:
        UserError: if the model has fewer tokens than the tokenizer had.
    """
    if not begins_as:
        return
    rows = list(range(model.config.vocab_size))
    if min(begins_as) > len(rows):
        raise UserError("The tokenizer has more tokens than the model. Use the one that belongs to the model.")
    for new_id in sorted(begins_as):
        rows.insert(new_id, begins_as[new_id])
    take_token_rows(model, rows)


def _check_new(tokenizer: PreTrainedTokenizerBase, languages: Mapping[str, str], ids: Mapping[str, int]) -> None:
    """Raise a UserError unless all languages can be added.

    Args:
        tokenizer: the model's.
        languages: for each new language the one that it begins as.
        ids: of the languages of the tokenizer.
    """
    if not ids:
        raise UserError(
            "New languages are for models with a token for each language: NLLB, M2M-100 and mBART. This tokenizer is a "
            f"{type(tokenizer).__name__}, and has no such tokens."
        )

    example = _example(ids)
    vocabulary = tokenizer.get_vocab()
    for code, like in languages.items():
        if like not in ids:
            raise UserError(f"{code} cannot begin as {like!r}, which the model lacks. {nearest(like, ids)}")
        usual = written_like(code, example)
        if code in ids or usual in ids:
            known = code if code in ids else usual
            raise UserError(f"The model has {known} already. Train with it, and do not add {code!r}.")
        if not _WAYS_TO_WRITE[example].fullmatch(code):
            remedy = f"Write it like {like}." if usual is None else f"Did you mean {usual}?"
            raise UserError(f"{code!r} is not written like the languages of the model. {remedy}")
        if language_token(tokenizer, code) in vocabulary:
            raise UserError(f"{code!r} is a token of the model, but no language. Choose another code.")


def _example(ids: Mapping[str, int]) -> str:
    """Return how German is written by the model that has these languages."""
    for example, pattern in _WAYS_TO_WRITE.items():
        if any(pattern.fullmatch(code) for code in ids):
            return example
    raise UserError(f"Languages such as {min(ids)} are written in a way that is not known, so none can be added.")
