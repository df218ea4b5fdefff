# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/language_codes.py.
"""Codes at the head of a source, such as >>pt<<, that tell multilingual OPUS-MT models which language to write."""

import re

from transformers import PreTrainedTokenizerBase

# >>pt<<, >>pt_BR<<, >>cmn_Hans<<.
LANGUAGE_CODE = re.compile(r">>(?P<language>[a-z]{2,3}([_-]\w+)*)<<\s*")
_SHOWN = 20


def coded_languages(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return the languages for which a tokenizer has codes, without their brackets."""
    codes = map(LANGUAGE_CODE.fullmatch, tokenizer.get_vocab())
    return sorted(code["language"] for code in codes if code)


def code_of(language: str, tokenizer: PreTrainedTokenizerBase, name: str) -> str:
    """Return what a source begins with that is to be translated into a language.

    Args:
        language: as the tokenizer has it, such as "pt" or "cmn_Hans".
        tokenizer: of the model.
        name: of the option that names the language.

    Raises:
        ValueError: if the tokenizer has no code for it.
    """
    if not _knows(tokenizer, f">>{language}<<"):
        known = coded_languages(tokenizer)
        has = f"; it has those of {_listed(known)}" if known else f", nor any other; leave out {name}"
        raise ValueError(f"{name} is {language!r}, and this tokenizer has no code >>{language}<<{has}")
    return f">>{language}<< "


def split_code(text: str, tokenizer: PreTrainedTokenizerBase, default: str = "") -> tuple[str, str]:
    """Return the code that a text begins with, the `default` if the tokenizer knows none such, and the rest."""
    code = LANGUAGE_CODE.match(text)
    if code is None or not _knows(tokenizer, code[0].rstrip()):
        return default, text
    return f"{code[0].rstrip()} ", text[code.end() :]


def without_code(known: list[str], option: str) -> str:
    """Return what to say of a text without a code, where a tokenizer has those of the `known` languages."""
    return (
        f"the model writes several languages ({_listed(known)}), and a text does not say which; give {option}, or "
        f"begin the text with its code, >>{known[0]}<<"
    )


def _listed(languages: list[str]) -> str:
    more = f" and {len(languages) - _SHOWN} more" if len(languages) > _SHOWN else ""
    return f"{', '.join(languages[:_SHOWN])}{more}"


def _knows(tokenizer: PreTrainedTokenizerBase, code: str) -> bool:
    return tokenizer.convert_tokens_to_ids(code) not in (None, tokenizer.unk_token_id)
