"""Writes a checkpoint with fewer words: fewer rows of the embeddings, and a tokenizer with fewer tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import MarianTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.encoding import special_ids, tokenize_lines
from hf_capsule_mt.data.languages import KnownLanguages, language_ids
from hf_capsule_mt.data.lines import each_line
from hf_capsule_mt.data.shortlists import Shortlist, WordCounts, always_needed, choose_words, read_shortlist
from hf_capsule_mt.data.smaller_tokenizer import TokenizerFiles
from hf_capsule_mt.data.tokenizer import vocabulary_of
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import check_empty, new_folder
from hf_capsule_mt.loading import commit_of, distinct_parameters, load_model, load_tokenizer
from hf_capsule_mt.modeling.token_rows import take_token_rows

from .token_settings import NewIds, check_token_settings, needed_ids, renumber


@dataclass(frozen=True)
class WordChoice:
    """Which words a smaller model keeps.

    Attributes:
        languages: those that the model keeps. Models of one pair of languages have none.
        texts: files of text, one sentence a line. For Marian a file of sources, and one of translations.
        shortlists: files by the command `shortlist`, whose words all stay.
        most: the largest number of words of a vocabulary. None: no limit.
        min_count: words that the texts have less often are left out.
    """

    languages: Sequence[str] = ()
    texts: Sequence[Path] = ()
    shortlists: Sequence[Path] = ()
    most: int | None = None
    min_count: int = 1


@dataclass(frozen=True)
class Size:
    """How large a model is."""

    words: int
    """Rows of the embedding of sources, which is that of translations in most models."""
    target_words: int
    """Rows of the embedding of translations."""
    parameters: int
    num_bytes: int
    """The size of the parameters."""


@dataclass(frozen=True)
class HeldOutWords:
    """What two tokenizers make of lines that were not used to choose the words.

    Attributes:
        tokens: of these lines, by the whole tokenizer.
        known: those that are not the unknown token.
        kept: known ones that stay.
        lines: lines that both tokenizers have cut.
        changed: lines that they cut in different ways.
        unreadable: lines that have more unknown letters than before.
    """

    tokens: int
    known: int
    kept: int
    lines: int
    changed: int
    unreadable: int


@dataclass(frozen=True)
class Trimmed:
    """What became of a model."""

    before: Size
    after: Size
    held_out: HeldOutWords
    fixed_languages: int
    """The number of languages, if all keep their tokens because Transformers numbers them. 0: the others are gone."""


def trim_checkpoint(checkpoint: str | Path, output_dir: Path, choice: WordChoice, revision: str = "main") -> Trimmed:
    """Write a checkpoint of the same kind with fewer words.

    For the same source tokens its translations are those of the whole model with a shortlist of the same words. It
    reads a text as the whole one does if all tokens of the text stay.

    Args:
        checkpoint: a folder or a model of the Hub.
        output_dir: a folder that is new or empty.
        choice: the words that stay.
        revision: branch, tag or commit of a model of the Hub.

    Returns:
        The sizes, and what the smaller tokenizer makes of held-out lines.

    Raises:
        UserError: if the choice does not fit the model, its tokenizer is of a kind from which no tokens can be
            dropped, or a setting has token ids that are wrong or cannot get new numbers.
        OSError: if there is no such checkpoint, or the folder has files in it.
    """
    check_empty(output_dir)
    revision = commit_of(checkpoint, revision)
    tokenizer = load_tokenizer(checkpoint, revision)
    chosen_languages = _languages(tokenizer, choice.languages)

    with new_folder(output_dir) as folder:
        files = TokenizerFiles(tokenizer, folder)
        word_counts = _count(tokenizer, files, choice)
        model = load_model(checkpoint, revision=revision)
        before = _size_of(model)

        for settings in (model.config, model.generation_config):
            check_token_settings(settings, before.target_words)

        always = _always(model, tokenizer, files, chosen_languages)
        shortlists = _choose(files, word_counts, always, choice)
        new_ids = {side: files.new_ids(shortlist.counts, side) for side, shortlist in shortlists.items()}
        files.keep(new_ids)

        smaller = load_tokenizer(folder)
        _check_tokens(tokenizer, smaller, files, new_ids)
        _drop_rows(model, files, new_ids)
        model.save_pretrained(folder)
        held_out = _compare(tokenizer, smaller, word_counts, shortlists, new_ids)

    num_languages = len(language_ids(tokenizer)) if files.numbers_languages else 0
    return Trimmed(before, _size_of(model), held_out, num_languages)


def _languages(tokenizer: PreTrainedTokenizerBase, languages: Sequence[str]) -> set[int]:
    """Return the tokens of the languages to keep, and set the tokenizer to one of them.

    Raises:
        UserError: if the model has no such language, or has languages and none is given.
    """
    known = KnownLanguages(tokenizer)
    names = ("--languages", "--languages")
    if not languages and (known.are_arguments or known.codes):
        few = ", ".join(sorted(known.ids if known.are_arguments else known.codes.languages)[:3])
        raise UserError(f"--languages is missing. Name those that the model keeps, such as {few}.")

    chosen = set()
    for language in languages:
        direction = known.direction(language if known.are_arguments else None, language, names)
        chosen.add(known.codes.ids[direction.code] if direction.code else direction.first_token)

    if known.are_arguments:
        # The smaller tokenizer would not know others.
        if known.ids.get(tokenizer.tgt_lang) not in chosen:
            tokenizer.tgt_lang = None
        if known.ids.get(tokenizer.src_lang) not in chosen:
            tokenizer.src_lang = languages[0]
    return chosen


def _count(tokenizer: PreTrainedTokenizerBase, files: TokenizerFiles, choice: WordChoice) -> dict[str, WordCounts]:
    """Return the counts of the words of the texts, for a side of each vocabulary.

    Raises:
        UserError: if there are no words, or the number of texts is wrong for the tokenizer.
    """
    texts = choice.texts
    if not texts and not choice.shortlists:
        raise UserError("There are no words to keep. Give --input_file, --vocabulary or both.")
    if choice.shortlists and files.has_two_vocabularies:
        raise UserError("The tokenizer has a vocabulary for each side, for which there are no files of --vocabulary.")

    sides = ["text"] * len(texts)
    if isinstance(tokenizer, MarianTokenizer) and texts:
        # It cuts sources and translations by different files.
        if len(texts) != 2:
            raise UserError(f"--input_file names {len(texts)} files. This model needs a text to read and one to write.")
        sides = ["text", "text_target"]

    word_counts = {side: WordCounts(tokenizer) for side in files.sides}
    for path, side in zip(texts, sides, strict=True):
        word_counts[side if files.has_two_vocabularies else "text"].add(each_line(path), side)
    return word_counts


def _always(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, files: TokenizerFiles, chosen_languages: set[int]
) -> dict[str, list[int]]:
    """Return the tokens that stay in any case, for a side of each vocabulary."""
    other_languages = set(language_ids(tokenizer).values()) | set(KnownLanguages(tokenizer).codes.ids.values())
    if files.numbers_languages:
        other_languages = set()
    special = set(special_ids(tokenizer)) - other_languages

    always = {side: [*always_needed(tokenizer, side), *files.of_side(side).always] for side in files.sides}
    always["text"] += sorted(special | chosen_languages)
    for prefix in _prefixes(model.config):
        always["text"] += tokenizer(prefix)["input_ids"]

    # With these ids translations begin and end, among others.
    needed = needed_ids(model.config) | needed_ids(model.generation_config)
    always[files.sides[-1]] += sorted(needed)
    return always


def _prefixes(config: PreTrainedConfig) -> list[str]:
    """Return what T5 reads in front of a source for its tasks."""
    tasks = getattr(config, "task_specific_params", None) or {}
    prefixes = [getattr(config, "prefix", None), *(task.get("prefix") for task in tasks.values())]
    return [prefix for prefix in prefixes if prefix]


def _choose(
    files: TokenizerFiles, word_counts: Mapping[str, WordCounts], always: dict[str, list[int]], choice: WordChoice
) -> dict[str, Shortlist]:
    """Return the words that stay, for a side of each vocabulary."""
    shortlists = {}
    for side in files.sides:
        needed = always[side]
        for path in choice.shortlists:
            needed += read_shortlist(path, word_counts[side].tokenizer)
        parts_of = files.of_side(side).parts_of
        shortlists[side] = choose_words(word_counts[side], needed, choice.min_count, choice.most, parts_of, side)
    return shortlists


def _check_tokens(
    whole: PreTrainedTokenizerBase,
    smaller: PreTrainedTokenizerBase,
    files: TokenizerFiles,
    new_ids: Mapping[str, NewIds],
) -> None:
    """Raise a UserError if a tokenizer is not read as it was written: some classes change it when they load it."""
    is_same = _moved(language_ids(whole), new_ids["text"]) == language_ids(smaller)
    for side in files.sides:
        expected = _moved(vocabulary_of(whole, side), new_ids[side])
        is_same = is_same and vocabulary_of(smaller, side) == expected
    if not is_same:
        kind = type(whole).__name__
        raise UserError(f"No tokens can be dropped from this {kind}, which has other tokens when it is read again.")


def _moved(token_ids: Mapping[str, int], new_ids: NewIds) -> dict[str, int]:
    """Return the new ids by token, without tokens that are gone."""
    return {token: new_ids[old] for token, old in token_ids.items() if old in new_ids}


def _drop_rows(model: PreTrainedModel, files: TokenizerFiles, new_ids: Mapping[str, NewIds]) -> None:
    """Drop the rows of the other tokens from a model, and correct the token ids in its settings."""
    of_targets = new_ids[files.sides[-1]]
    take_token_rows(model, list(of_targets), list(new_ids["text"]) if files.has_two_vocabularies else None)
    for settings in (model.config, model.generation_config):
        renumber(settings, of_targets)


def _compare(
    whole: PreTrainedTokenizerBase,
    smaller: PreTrainedTokenizerBase,
    word_counts: Mapping[str, WordCounts],
    shortlists: Mapping[str, Shortlist],
    new_ids: Mapping[str, NewIds],
) -> HeldOutWords:
    """Return what two tokenizers make of held-out lines."""
    tokens = known = kept = lines = changed = unreadable = 0
    for side, shortlist in shortlists.items():
        unknown = vocabulary_of(whole, side).get(whole.unk_token)
        new_unknown = new_ids[side].get(unknown)
        tokens += shortlist.held_out.total()

        for token_id, number in shortlist.held_out.items():
            if token_id != unknown:
                known += number
                kept += number * (token_id in new_ids[side])

        for line in word_counts[side].held_out_lines:
            [ids] = tokenize_lines(smaller, [line.text], side=line.side)
            lines += 1
            changed += ids != [new_ids[side].get(token_id) for token_id in line.token_ids]
            unreadable += ids.count(new_unknown) > line.token_ids.count(unknown)
    return HeldOutWords(tokens, known, kept, lines, changed, unreadable)


def _size_of(model: PreTrainedModel) -> Size:
    parameters = distinct_parameters(model)
    return Size(
        words=model.get_input_embeddings().num_embeddings,
        target_words=model.get_output_embeddings().out_features,
        parameters=sum(parameter.numel() for parameter in parameters),
        num_bytes=sum(parameter.nbytes for parameter in parameters),
    )
