"""Codes of languages, as people, programs and models write them."""

import pytest

from hf_capsule_mt.language_tags import is_language, known_code, language_of, name_of_language, script_of


@pytest.mark.parametrize(
    ("written", "known", "expected"),
    [
        ("EN-US", ["en", "de"], "en"),
        ("pt-BR", ["pt", "pt-BR"], "pt-BR"),
        ("pt_br", ["pt", "pt-BR"], "pt-BR"),
        ("pt-PT", ["pt-BR"], None),
        ("zh", ["zh-Hans"], "zh-Hans"),
        ("zh-CN", ["zh-Hans"], "zh-Hans"),
        ("iw", ["he"], "he"),
        ("no", ["nb"], "nb"),
        ("xx", ["en"], None),
        ("en", ["deu_Latn", "eng_Latn"], "eng_Latn"),
        ("deu", ["de"], "de"),
        ("no language at all", ["en"], None),
    ],
)
def test_codes_that_a_server_knows(written, known, expected):
    assert known_code(written, known) == expected


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (("de", "DE", "de_DE", "deu", "deu_Latn"), "de"),
        (("en", "en_XX", "en-GB"), "en"),
        (("arb_Arab", "ara"), "ar"),
        (("iw", "heb_Hebr"), "he"),
        (("tl",), "tl"),
        (("tlh",), "tlh"),
        (("", "x", "xx", "English", "zzz", ">>de<<", "./de"), None),
    ],
)
def test_languages_of_codes(codes, expected):
    assert {language_of(code) for code in codes} == {expected}


def test_two_letters_of_today():
    assert [code for code in ("en", "tl", "iw", "in", "xx", "deu", "EN") if is_language(code)] == ["en", "tl"]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("pt-BR", "Portuguese (Brazil)"),
        ("eng_Latn", "English"),
        ("en_XX", "English"),
        ("tlh", "Klingon"),
        ("xx", "xx"),
        ("a/model:of nobody", "a/model:of nobody"),
    ],
)
def test_names_of_languages(code, name):
    assert name_of_language(code) == name


@pytest.mark.parametrize(
    ("codes", "script"),
    [
        (("de", "deu_Latn", "de_DE", "en_XX", "tl"), "Latn"),
        (("ru", "srp_Cyrl"), "Cyrl"),
        (("ja", "jpn_Jpan"), "Jpan"),
        (("zh", "zh_CN", "zho_Hans"), "Hans"),
        (("sr", "xx", "no language at all"), None),
    ],
)
def test_scripts_of_languages(codes, script):
    assert {script_of(code) for code in codes} == {script}
