"""The command `trim`: which words it keeps, what it says, and what it refuses."""

import re

import pytest
from transformers import AutoConfig, AutoTokenizer
from whole_checkpoints import ENGLISH, GERMAN, OTHERS, save_whole

from hf_capsule_mt.cli import shortlist, translate, trim
from hf_capsule_mt.data.shortlists import read_shortlist

LANGUAGES = ["--languages", "eng_Latn", "deu_Latn"]


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    return [write(folder / "en", ENGLISH), write(folder / "de", GERMAN)]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Makes each checkpoint once."""
    folder = tmp_path_factory.mktemp("checkpoints")

    def make(kind):
        if not (folder / kind).exists():
            save_whole(kind, folder / kind)
        return str(folder / kind)

    return make


def tokens_of(folder):
    return set(AutoTokenizer.from_pretrained(folder).get_vocab())


def test_sizes_and_coverage(checkpoints, texts, tmp_path, capsys):
    whole = checkpoints("nllb")
    output = tmp_path / "small"
    trim.main(["--model", whole, *LANGUAGES, "--input_file", *texts, "--output_dir", str(output)])
    printed = capsys.readouterr().out
    size = AutoConfig.from_pretrained(output).vocab_size
    assert re.search(rf"^words +360 -> +{size}  {size / 360:.0%}$", printed, flags=re.MULTILINE)
    assert re.search(r"^parameters +11,392 -> +[\d,]+  \d\d%$", printed, flags=re.MULTILINE)
    assert re.search(r"^megabytes +0\.0 -> +0\.0  \d\d%$", printed, flags=re.MULTILINE)
    assert re.search(r"^coverage +100\.00% -> +100\.00%  of the words of held-out lines$", printed, flags=re.MULTILINE)
    assert "Of 8 held-out lines, 0 are cut into other words, and 0 have letters that the model cannot read" in printed
    assert "Transformers numbers" not in printed
    tokens = tokens_of(output)
    assert {"eng_Latn", "deu_Latn", "▁the", "▁das", "<mask>"} <= tokens
    # No letter of the script is missing, also one that the texts do not have.
    assert {"v", "r"} <= tokens
    assert not {"fra_Latn", "σ", "▁casa"} & tokens
    files = ["--input_file", texts[0], "--output_file", str(tmp_path / "out")]
    translate.main(["--model", str(output), "--source_lang", "eng_Latn", "--target_lang", "deu_Latn", *files])
    assert len((tmp_path / "out").read_text().splitlines()) == len(ENGLISH)


def test_lines_that_lose_words(checkpoints, tmp_path, capsys):
    """The lines that are held out have other words, and some have letters of another script."""
    lines = (["the old house is green"] * 9 + ["two dogs"]) * 3 + ["the old house"] * 9 + ["παλιό house"]
    command = ["--model", checkpoints("nllb"), *LANGUAGES, "--input_file", write(tmp_path / "en", lines)]
    trim.main([*command, "--output_dir", str(tmp_path / "small")])
    whole = AutoTokenizer.from_pretrained(checkpoints("nllb"))
    smaller = AutoTokenizer.from_pretrained(tmp_path / "small")
    assert smaller.tokenize("two dogs") != whole.tokenize("two dogs")
    printed = capsys.readouterr().out
    held_out = [token for line in lines[9::10] for token in whole.tokenize(line)]
    kept = sum(token in smaller.get_vocab() for token in held_out) / len(held_out)
    assert kept < 1
    assert re.search(rf"^coverage +100.00% -> +{kept:.2%} ", printed, flags=re.MULTILINE)
    assert "Of 4 held-out lines, 4 are cut into other words, and 1 have letters that the model cannot read" in printed


def test_letters_that_the_whole_model_cannot_read(checkpoints, tmp_path, capsys):
    lines = (["the old house is green"] * 9 + ["the ☃"]) * 3
    command = ["--model", checkpoints("nllb"), *LANGUAGES, "--input_file", write(tmp_path / "en", lines)]
    trim.main([*command, "--output_dir", str(tmp_path / "small")])
    printed = capsys.readouterr().out
    known = 1 - 1 / len(AutoTokenizer.from_pretrained(checkpoints("nllb")).tokenize("the ☃"))
    assert re.search(rf"^coverage +{known:.2%} -> +{known:.2%} ", printed, flags=re.MULTILINE)
    assert "Of 3 held-out lines, 0 are cut into other words, and 0 have letters" in printed


@pytest.mark.parametrize("kind", ["nllb", "marian_bpe"])
def test_a_number_of_words(kind, checkpoints, texts, tmp_path, capsys):
    languages = LANGUAGES if kind == "nllb" else []
    command = ["--model", checkpoints(kind), *languages, "--input_file", *texts]
    trim.main([*command, "--output_dir", str(tmp_path / "all")])
    every = tokens_of(tmp_path / "all")
    most = len(every) - 5
    trim.main([*command, "--words", str(most), "--output_dir", str(tmp_path / "few")])
    few = tokens_of(tmp_path / "few")
    # A word may need several others, for which there is no more room.
    assert most - 5 < len(few) <= most
    assert few < every
    assert "▁the" in few
    with pytest.raises(SystemExit):
        trim.main([*command, "--words", "5", "--output_dir", str(tmp_path / "none")])
    assert re.search(
        r"The special tokens and letters alone are \d+ words. Ask for more than 5.", capsys.readouterr().err
    )
    assert not (tmp_path / "none").exists()


def test_rare_words(checkpoints, tmp_path):
    text = write(tmp_path / "en", ["the old house"] * 9 + ["a child"] + ["two dogs"])
    command = ["--model", checkpoints("nllb"), *LANGUAGES, "--input_file", text, "--min_count", "2"]
    trim.main([*command, "--output_dir", str(tmp_path / "small")])
    tokens = tokens_of(tmp_path / "small")
    assert "▁house" in tokens
    assert "▁two" not in tokens


def test_words_of_shortlists(checkpoints, texts, tmp_path, capsys):
    whole = checkpoints("nllb")
    files = []
    for language, text in zip(LANGUAGES[1:], texts, strict=True):
        files.append(str(tmp_path / f"{language}.words"))
        command = ["--model", whole, "--target_lang", language, "--input_file", text]
        shortlist.main([*command, "--output_file", files[-1]])
    trim.main(["--model", whole, *LANGUAGES, "--vocabulary", *files, "--output_dir", str(tmp_path / "small")])
    assert "No line was held out." in capsys.readouterr().out
    tokenizer = AutoTokenizer.from_pretrained(whole)
    ids = {token_id for file in files for token_id in read_shortlist(tmp_path / file, tokenizer)}
    tokens = tokens_of(tmp_path / "small")
    assert set(tokenizer.convert_ids_to_tokens(sorted(ids))) <= tokens
    assert "▁casa" not in tokens
    # With a text too.
    others = write(tmp_path / "es", OTHERS)
    command = ["--model", whole, *LANGUAGES, "--vocabulary", *files, "--input_file", others]
    trim.main([*command, "--output_dir", str(tmp_path / "more")])
    assert tokens < tokens_of(tmp_path / "more")


def test_languages_that_transformers_numbers(checkpoints, texts, tmp_path, capsys):
    command = ["--model", checkpoints("m2m100"), "--languages", "en", "de", "--input_file", *texts]
    trim.main([*command, "--output_dir", str(tmp_path / "small")])
    printed = capsys.readouterr().out
    assert "keeps the names of all its 100 languages" in printed
    assert "Use it for en, de only." in printed
    assert "__fr__" in tokens_of(tmp_path / "small")


def test_a_vocabulary_for_each_side(checkpoints, texts, tmp_path, capsys):
    command = ["--model", checkpoints("marian_two"), "--input_file", *texts]
    trim.main([*command, "--output_dir", str(tmp_path / "small")])
    printed = capsys.readouterr().out
    config = AutoConfig.from_pretrained(tmp_path / "small")
    assert re.search(rf"^words +\d+ -> +{config.vocab_size} ", printed, flags=re.MULTILINE)
    assert re.search(rf"^words to write +\d+ -> +{config.decoder_vocab_size} ", printed, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("nllb", ["--input_file", "en"], "--languages is missing. Name those that the model keeps, such as ace_Arab"),
        ("nllb", ["--languages", "de", "--input_file", "en"], "--languages is 'de', which is no language of the model"),
        ("capsules", ["--input_file", "en"], "--languages is missing. Name those that the model keeps, such as de, es"),
        ("capsules", ["--languages", "fr", "--input_file", "en"], "--languages is 'fr', but the tokenizer has no code"),
        ("marian", ["--languages", "de", "--input_file", "en", "de"], "the model has one target language"),
        ("nllb", LANGUAGES, "There are no words to keep. Give --input_file, --vocabulary or both."),
        ("nllb", [*LANGUAGES, "--input_file", "empty"], "There is no text to count words in."),
        ("nllb", [*LANGUAGES, "--input_file", "en", "absent"], "--input_file: there is no file"),
        ("nllb", [*LANGUAGES, "--vocabulary", "en"], "is no shortlist of this tokenizer"),
        ("marian", ["--input_file", "en"], "--input_file names 1 files. This model needs a text to read and one to"),
        ("marian_two", ["--vocabulary", "en"], "a vocabulary for each side, for which there are no files"),
    ],
    ids=str,
)
def test_what_is_refused(kind, options, message, checkpoints, tmp_path, monkeypatch, capsys):
    write(tmp_path / "en", ENGLISH)
    write(tmp_path / "de", GERMAN)
    write(tmp_path / "empty", [""])
    # As users type names of files in the folder where they are.
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        trim.main(["--model", checkpoints(kind), *options, "--output_dir", "small"])
    assert message in capsys.readouterr().err
    assert not (tmp_path / "small").exists()


def test_a_folder_with_files(checkpoints, texts, tmp_path, capsys):
    write(tmp_path / "notes", ["a"])
    command = ["--model", checkpoints("nllb"), *LANGUAGES, "--input_file", *texts]
    with pytest.raises(SystemExit):
        trim.main([*command, "--output_dir", str(tmp_path)])
    assert "is there and not empty" in capsys.readouterr().err
