"""The command `shortlist`, and `--vocabulary` of the commands that translate."""

import json
import os
import shutil

import pytest
import tiny_multilingual
import torch
from tiny_marian import marian_tokenizer, tiny_tokenizer
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from hf_capsule_mt import pipeline
from hf_capsule_mt.cli import distill, evaluate, shortlist, translate
from hf_capsule_mt.data.languages import KnownLanguages
from hf_capsule_mt.data.shortlists import (
    count_shortlist,
    read_shortlist,
    shortlist_of_script,
    spelling_ids,
    write_shortlist,
)
from hf_capsule_mt.data.tokenizer import train_joint_bpe
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.generation.model_options import DecodingOptions

GERMAN = ["das alte Haus ist alt", "zwei Hunde sehen das Haus", "ein Kind sieht zwei alte Hunde"] * 10
LANGUAGES = ["--source_lang", "eng_Latn", "--target_lang", "deu_Latn"]
SOURCES = ["the old house", "two dogs see a child", "a green house"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nllb")
    model, tokenizer = tiny_multilingual.nllb()
    model.generation_config.decoder_start_token_id = 2
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def words(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    (folder / "de").write_text("".join(f"{line}\n" for line in GERMAN))
    files = ["--input_file", str(folder / "de"), "--output_file", str(folder / "de.words")]
    shortlist.main(["--model", checkpoint, "--target_lang", "deu_Latn", *files])
    return folder / "de.words"


def tokens_of(path):
    _, *lines = path.read_text().splitlines()
    return {json.loads(line.rpartition("\t")[0]): int(line.rpartition("\t")[2]) for line in lines}


def test_the_words_of_a_text(checkpoint, words):
    tokenizer = DecodingOptions(checkpoint).tokenizer()
    tokens = tokens_of(words)
    assert {"deu_Latn", "<s>", "</s>", "<pad>", "<unk>"} <= set(tokens)
    assert not {"eng_Latn", "fra_Latn"} & set(tokens)
    # No letter of the script is missing, also if the text has none.
    assert tokens["G"] == 0
    assert list(tokens.values()) == sorted(tokens.values(), reverse=True)
    ids = read_shortlist(words, tokenizer)
    assert tokenizer.convert_ids_to_tokens(ids) == list(tokens)
    # Whatever language it is set to.
    tokenizer.src_lang = "fra_Latn"
    assert read_shortlist(words, tokenizer) == ids


def test_the_coverage_is_that_of_lines_that_were_held_out(checkpoint, tmp_path, capsys):
    tokenizer = DecodingOptions(checkpoint).tokenizer()
    # Each tenth line, and no other, has letters that are no words of their own with a letter before.
    lines = ["das alte Haus"] * 9 + ["sieht zwei ein"]
    (tmp_path / "de").write_text("".join(f"{line}\n" for line in lines * 2))
    command = ["--model", checkpoint, "--target_lang", "deu_Latn", "--input_file", str(tmp_path / "de")]
    shortlist.main([*command, "--output_file", str(tmp_path / "words")])
    printed = capsys.readouterr().out
    kept = set(read_shortlist(tmp_path / "words", tokenizer))
    held_out = tokenizer(lines[9], add_special_tokens=False)["input_ids"]
    covered = sum(token_id in kept for token_id in held_out) / len(held_out)
    assert f"They cover {covered:.2%} of the words of 2 lines that were held out." in printed
    assert f"{len(kept):,} of 254 words" in printed
    assert ("Less than 99.95%" in printed) == (covered < 0.9995)


def test_coverage_and_missing_words():
    """With words that are longer than a letter."""
    tokenizer = tiny_multilingual.nllb()[1]
    tokenizer.add_tokens(["Haus", "Hund"])
    rare = count_shortlist(tokenizer, ["Haus"] * 9 + ["Haus Hund Hund"], [])
    [hund] = tokenizer.convert_tokens_to_ids(["Hund"])
    assert rare.missing(5) == [hund]
    assert hund not in rare.counts
    assert rare.coverage == pytest.approx(1 - rare.held_out[hund] / rare.held_out.total())
    assert rare.held_out[hund] == 2
    assert rare.lines == 1
    haus = tokenizer.convert_tokens_to_ids("Haus")
    assert rare.counts[haus] == 9
    assert haus not in count_shortlist(tokenizer, ["Haus"] * 9, [], min_count=10).counts
    assert count_shortlist(tokenizer, ["Haus"], []).coverage is None


def test_letters_of_a_script():
    tokenizer = tiny_multilingual.nllb()[1]
    tokenizer.add_tokens(["ж", "▁д", "жд", "7", "!", "<0x41>", "ab7"])
    latin = set(tokenizer.convert_ids_to_tokens(spelling_ids(tokenizer, ["LATIN"])))
    assert {"7", "!", "<0x41>", "a", "▁a", "▁"} <= latin
    assert not {"ж", "▁д", "жд", "ab7"} & latin
    both = set(tokenizer.convert_ids_to_tokens(spelling_ids(tokenizer, ["LATIN", "CYRILLIC"])))
    assert both - latin == {"ж", "▁д"}
    # One quoted word does not bring its script.
    text = ["das alte Haus ist alt"] * 300
    assert tokenizer.convert_tokens_to_ids("▁д") not in count_shortlist(tokenizer, [*text, "ж"], []).counts
    of_script = shortlist_of_script(tokenizer, "Cyrl", [2]).counts
    assert {"ж", "▁д", "жд", "7", "!"} <= set(tokenizer.convert_ids_to_tokens(of_script))
    assert not {"a", "ab7", "rus_Cyrl"} & set(tokenizer.convert_ids_to_tokens(of_script))
    with pytest.raises(UserError, match="--script is 'Xxxx'"):
        shortlist_of_script(tokenizer, "Xxxx", [])


def test_bytes_spell_every_word():
    tokenizer = train_joint_bpe(GERMAN, 300)
    found = set(spelling_ids(tokenizer, []))
    assert set(tokenizer("жđ☃", add_special_tokens=False)["input_ids"]) <= found
    assert len(found) >= 256


def test_a_script_of_tokens_of_bytes():
    """A token of such a tokenizer is written with other letters than those that it stands for."""
    cyrillic = ["старый дом", "две собаки"] * 10
    tokenizer = train_joint_bpe([*GERMAN, *cyrillic], 400)
    old = tokenizer("старый", add_special_tokens=False)["input_ids"]
    alte = tokenizer("alte", add_special_tokens=False)["input_ids"]
    # The test would show nothing if the words were spelled by single bytes.
    assert max(len(old), len(alte)) <= 2
    of_script = shortlist_of_script(tokenizer, "Cyrl", [])
    assert set(old) <= set(of_script.counts)
    assert not set(alte) & set(of_script.counts)
    latin = shortlist_of_script(tokenizer, "Latn", [])
    assert set(alte) <= set(latin.counts)
    assert not set(old) & set(latin.counts)
    # The bytes with which every word can be spelled have no letters of their own.
    spelled = tokenizer("đ☃", add_special_tokens=False)["input_ids"]
    assert set(spelled) <= set(of_script.counts)
    with pytest.raises(UserError, match="no word with letters of --script Grek"):
        shortlist_of_script(tokenizer, "Grek", [])


def test_a_script_instead_of_text(checkpoint, tmp_path, capsys):
    output = ["--output_file", str(tmp_path / "words")]
    shortlist.main(["--model", checkpoint, "--target_lang", "deu_Latn", "--script", "Latn", *output])
    assert "of 254 words." in capsys.readouterr().out
    tokens = tokens_of(tmp_path / "words")
    assert {"deu_Latn", "a"} <= set(tokens)
    assert "rus_Cyrl" not in tokens
    (tmp_path / "words").unlink()
    with pytest.raises(SystemExit):
        shortlist.main(["--model", checkpoint, "--target_lang", "rus_Cyrl", "--script", "Cyrl", *output])
    assert "no word with letters of --script Cyrl" in capsys.readouterr().err
    assert not (tmp_path / "words").exists()


def test_commands_write_with_these_words(checkpoint, words, tmp_path, engine_calls):
    (tmp_path / "en").write_text("".join(f"{line}\n" for line in SOURCES))
    files = ["--input_file", str(tmp_path / "en"), "--output_file", str(tmp_path / "out")]
    options = ["--max_new_tokens", "9", "--num_beams", "3"]
    translate.main(["--model", checkpoint, *files, *LANGUAGES, *options, "--vocabulary", str(words)])
    assert engine_calls
    found = (tmp_path / "out").read_text().splitlines()
    loaded = DecodingOptions(checkpoint).load(torch.device("cpu"))
    model, tokenizer = loaded
    kept = set(read_shortlist(words, tokenizer))
    expected = []
    for source in SOURCES:
        ids = model.generate(
            **tokenizer(source, return_tensors="pt"),
            forced_bos_token_id=KnownLanguages(tokenizer).ids["deu_Latn"],
            max_new_tokens=9,
            num_beams=3,
            suppress_tokens=sorted(set(range(model.config.vocab_size)) - kept),
            renormalize_logits=True,
        )
        expected.append(tokenizer.decode(ids[0], skip_special_tokens=True))
    assert found == expected
    languages = {"src_lang": "eng_Latn", "tgt_lang": "deu_Latn"}
    translator = pipeline(model, tokenizer=tokenizer, device="cpu", **languages, vocabulary=words)
    for engine in ("fast", "transformers"):
        results = translator(SOURCES, max_new_tokens=9, num_beams=3, engine=engine)
        assert [result["translation_text"] for result in results] == expected
    without = pipeline(model, tokenizer=tokenizer, device="cpu", **languages)(SOURCES, max_new_tokens=9, num_beams=3)
    assert [result["translation_text"] for result in without] != expected
    (tmp_path / "de").write_text("".join(f"{line}\n" for line in expected))
    record = tmp_path / "record.json"
    command = ["--model", checkpoint, "--input_file", str(tmp_path / "en"), "--references", str(tmp_path / "de")]
    command += [*LANGUAGES, *options, "--vocabulary", str(words), "--metrics", "chrf", "--output_file", str(record)]
    evaluate.main(command)
    assert json.loads(record.read_text())["scores"]["chrf"]["score"] == pytest.approx(100)
    assert json.loads(record.read_text())["translation"]["vocabulary"]["file"] == str(words)


def test_the_output_depends_on_the_words(checkpoint, words, tmp_path):
    options = DecodingOptions(checkpoint, vocabulary=words)
    assert options.settings() != DecodingOptions(checkpoint).settings()
    assert "vocabulary" not in DecodingOptions(checkpoint).settings()


def test_a_set_of_words_that_has_changed_is_read_again(checkpoint, words, tmp_path):
    changing = tmp_path / "changing"
    shutil.copyfile(words, changing)
    options = DecodingOptions(checkpoint, vocabulary=changing)
    [before] = options.generate_options()["logits_processor"]
    lines = changing.read_text().splitlines()
    changing.write_text("".join(f"{line}\n" for line in lines[:-1]))
    os.utime(changing, (0, 0))
    [after] = options.generate_options()["logits_processor"]
    assert len(after.token_ids) == len(before.token_ids) - 1


@pytest.mark.parametrize("command", [distill, translate, evaluate])
def test_the_option(command, checkpoint, tmp_path, capsys):
    options = {
        distill: ["--train_file", "x", "--output_file", "y.tsv"],
        translate: ["--input_file", "x"],
        evaluate: ["--input_file", "x", "--references", "y"],
    }
    for name in "xy":
        (tmp_path / name).write_text("a\n")
    words = [str(tmp_path / word) if word in ("x", "y", "y.tsv") else word for word in options[command]]
    with pytest.raises(SystemExit):
        command.main(["--model", checkpoint, *words, "--vocabulary", str(tmp_path / "absent")])
    assert "--vocabulary" in capsys.readouterr().err


def test_what_is_refused(checkpoint, words, tmp_path, capsys):
    tokenizer = DecodingOptions(checkpoint).tokenizer()
    with pytest.raises(UserError, match="no shortlist of this tokenizer"):
        read_shortlist(words, tiny_tokenizer())
    damaged = tmp_path / "damaged"
    damaged.write_text(words.read_text() + "Haus 3\n")
    with pytest.raises(UserError, match="is not a token and its count: 'Haus 3'"):
        read_shortlist(damaged, tokenizer)
    translator = pipeline(checkpoint, device="cpu", src_lang="eng_Latn", vocabulary=words)
    with pytest.raises(UserError, match="lacks the token that a translation must have"):
        translator("the house", tgt_lang="fra_Latn")
    (tmp_path / "en").write_text("the house\n")
    (tmp_path / "terms.tsv").write_text("house\tHaus\n")
    command = ["--model", checkpoint, *LANGUAGES, "--input_file", str(tmp_path / "en"), "--vocabulary", str(words)]
    with pytest.raises(SystemExit):
        translate.main([*command, "--glossary", str(tmp_path / "terms.tsv")])
    assert "--vocabulary may lack words of a --glossary" in capsys.readouterr().err
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(UserError, match="There is no text"):
        count_shortlist(tokenizer, [""], [])


def test_a_tokenizer_of_two_vocabularies(tmp_path, capsys):
    from tiny_marian import tiny_model

    tiny_model().save_pretrained(tmp_path)
    marian_tokenizer(tmp_path, True).save_pretrained(tmp_path)
    with pytest.raises(SystemExit):
        shortlist.main(["--model", str(tmp_path), "--script", "Latn", "--output_file", str(tmp_path / "words")])
    assert "a vocabulary for each side" in capsys.readouterr().err


def test_tokens_with_line_breaks(tmp_path):
    vocabulary = {token: index for index, token in enumerate(["a", "\n", "\u2028", "\t", "", '"'])}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(vocabulary, unk_token="a")))
    write_shortlist(tmp_path / "words", tokenizer, dict.fromkeys(range(6), 3))
    assert read_shortlist(tmp_path / "words", tokenizer) == list(range(6))
