"""The ten probing tasks of Conneau et al. 2018 by the names of SentEval's files, and three made of any tokenised text.

A file has a sentence a line: `tr`, `va` or `te`, a tab, the label, a tab, the tokens with spaces between them. There
may be more columns before the sentence, which is the last; they are not read. The three that are made follow the rules
in the README of SentEval's data, as far as the text allows:

* sentence_length: the published bins of lengths; where the text does not fill each of them, its own six quantiles,
  for bins of another width would leave classes too small to balance.
* word_content: words from frequency rank 2001 on; where that does not give as many words as are asked for, from as many
  hundreds of ranks higher up as it takes. A word that is alone among them in too few sentences is passed over.
* bigram_shift: two neighbours change places, of which none is the first word or punctuation, and no two are equal; a
  sentence with a double quote is left out.

Classes are balanced, no sentence comes twice, and a seed gives the same files on every machine.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import unescape
from itertools import islice, pairwise
from pathlib import Path
from statistics import quantiles

from hf_capsule_mt.data.lines import read_lines

ProbingData = dict[str, list[tuple[str, str]]]
"""Labels and sentences of the splits tr, va and te."""
TASKS = {
    "sentence_length": ("SeLen", "Surface"),
    "word_content": ("WC", "Surface"),
    "tree_depth": ("TrDep", "Syntactic"),
    "top_constituents": ("ToCo", "Syntactic"),
    "bigram_shift": ("BShif", "Syntactic"),
    "past_present": ("Tense", "Semantic"),
    "subj_number": ("SubNm", "Semantic"),
    "obj_number": ("ObjNm", "Semantic"),
    "odd_man_out": ("SOMO", "Semantic"),
    "coordination_inversion": ("CoIn", "Semantic"),
}
"""Column and group of each task in Li et al. 2019, Table 1, in its order."""
PUBLISHED_BINS = (range(5, 9), range(9, 13), range(13, 17), range(17, 21), range(21, 26), range(26, 29))
_RANKS = range(2000, -1, -100)  # words before the first candidate
_SHORTEST_WORD = 4
_QUOTES = frozenset(['"', "``", "''", "“", "”"])


def _no_sentences() -> ProbingData:
    return {"tr": [], "va": [], "te": []}


def _with_single_spaces(text: str) -> str:
    return " ".join(text.split())


def labels_of(data: ProbingData) -> list[str]:
    """Return the labels of the training split, sorted."""
    return sorted({label for label, _ in data["tr"]})


def read_probing_data(path: str | Path) -> ProbingData:
    """Read a file in SentEval's format.

    Raises:
        ValueError: if a line is not in the format, or a label of a split is not in the training split.
    """
    data = _no_sentences()
    all_labels = set()
    for number, line in enumerate(read_lines(path), start=1):
        columns = [column.strip() for column in line.rstrip().split("\t")]
        if len(columns) < 3 or columns[0] not in data or not columns[1]:
            raise ValueError(f"{path}:{number} must have tr, va or te, the label and the sentence, with tabs between.")
        split, label, *_, sentence = columns
        data[split].append((label, _with_single_spaces(sentence)))
        all_labels.add(label)
    labels = set(labels_of(data))
    if not all(data.values()) or len(labels) < 2 or all_labels > labels:
        raise ValueError(
            f"{path} must have sentences of tr, va and te, and two labels or more, all of which are in tr."
        )
    return data


def format_probing_data(data: ProbingData) -> str:
    """Return the text of a file that [`read_probing_data`] reads."""
    lines = []
    for name, split in data.items():
        lines += [f"{name}\t{label}\t{sentence}\n" for label, sentence in split]
    return "".join(lines)


def unique_sentences(lines: Iterable[str]) -> list[str]:
    """Return the different sentences of a text, tokens with one space between them, without empty ones."""
    sentences = dict.fromkeys(map(_with_single_spaces, lines))
    sentences.pop("", None)
    return list(sentences)


def generate_task(
    name: str, sentences: Sequence[str], sizes: Sequence[int], num_words: int = 1000, seed: int = 0
) -> tuple[ProbingData, str]:
    """Make a task of unique sentences; return it, and in words what was chosen to suit the text.

    Args:
        name: sentence_length, word_content or bigram_shift.
        sentences: tokens with one space between them.
        sizes: of the three splits. What does not divide by the number of classes is rounded down.
        num_words: the classes of word_content.
        seed: of what is drawn.

    Raises:
        ValueError: if the text cannot give the task in this size.
    """
    rng = random.Random(seed)
    if name == "sentence_length":
        by_label, choice = _sentence_length(sentences, sizes)
    elif name == "word_content":
        by_label, choice = _word_content(sentences, sizes, num_words)
    else:
        by_label = _bigram_shift(sentences, rng)
        choice = "half of the sentences inverted"
    return _draw(name, by_label, sizes, rng), choice


def _draw(name: str, by_label: Mapping[str, Sequence[str]], sizes: Sequence[int], rng: random.Random) -> ProbingData:
    """Return splits in which every label has as many sentences as any other, in random order."""
    shares = [size // len(by_label) for size in sizes]
    needed = sum(shares)
    data = _no_sentences()
    for label, sentences in by_label.items():
        if len(sentences) < needed or not all(shares):
            raise ValueError(
                f"{name}: the text gives {len(sentences)} sentences of class {label}, and {needed} are needed, at "
                "least one in each split. Change num_train, num_validation and num_test, or take more text."
            )
        drawn = iter(rng.sample(sentences, needed))
        for split, share in zip(data.values(), shares, strict=True):
            for sentence in islice(drawn, share):
                split.append((label, sentence))
    for split in data.values():
        rng.shuffle(split)
    return data


def _sentence_length(sentences: Sequence[str], sizes: Sequence[int]) -> tuple[dict[str, list[str]], str]:
    bins = PUBLISHED_BINS
    origin = "as published"
    by_label = _by_length(sentences, bins)
    needed = sum(size // len(bins) for size in sizes)
    fewest = min(len(of_label) for of_label in by_label.values())
    if fewest < needed and len(sentences) >= needed * len(bins):
        bins = _quantile_bins(sentences)
        origin = "quantiles of the text, which does not fill the published bins"
        by_label = _by_length(sentences, bins)
    named_bins = []
    for lengths in bins:
        longest = lengths.stop - 1
        named_bins.append(f"{lengths.start}-{longest}")
    return by_label, f"lengths {', '.join(named_bins)} ({origin})"


def _quantile_bins(sentences: Sequence[str]) -> list[range]:
    """Return as many bins of lengths as are published, with about as many sentences in each."""
    lengths = [len(sentence.split()) for sentence in sentences]
    cuts = [int(cut) + 1 for cut in quantiles(lengths, n=len(PUBLISHED_BINS))]
    borders = [min(lengths), *cuts, max(lengths) + 1]
    bins = [range(start, end) for start, end in pairwise(borders)]
    # Two equal borders have no length between them.
    if not all(bins):
        raise ValueError("sentence_length: too many sentences have one length. Take text of more lengths.")
    return bins


def _by_length(sentences: Sequence[str], bins: Sequence[range]) -> dict[str, list[str]]:
    by_label: dict[str, list[str]] = {}
    label_of: dict[int, str] = {}
    for number, lengths in enumerate(bins):
        label = str(number)
        by_label[label] = []
        label_of |= dict.fromkeys(lengths, label)
    for sentence in sentences:
        length = len(sentence.split())
        # Sentences of other lengths are not asked for.
        if length in label_of:
            by_label[label_of[length]].append(sentence)
    return by_label


def _word_content(sentences: Sequence[str], sizes: Sequence[int], num_words: int) -> tuple[dict[str, list[str]], str]:
    needed = sum(size // num_words for size in sizes)
    tokens = [sentence.split() for sentence in sentences]
    counts: Counter[str] = Counter()
    for sentence in tokens:
        counts.update(sentence)

    def most_frequent_first(word: str) -> tuple[int, str]:
        return -counts[word], word

    ranked = sorted(counts, key=most_frequent_first)
    for rank in _RANKS:
        candidates = []
        for word in ranked[rank:]:
            if counts[word] >= needed and _may_be_asked_for(word):
                candidates.append(word)
        by_word = _sentences_of_words(tokens, candidates, num_words, needed)
        if by_word:
            last = 1 + max(ranked.index(word) for word in by_word)
            return by_word, f"{num_words} words of frequency rank {rank + 1} to {last}"
    raise ValueError(
        f"word_content: the text has no {num_words} words of {_SHORTEST_WORD} letters or more, each alone among them "
        f"in {needed} sentences. Lower num_words or the sizes, or take more text."
    )


def _may_be_asked_for(word: str) -> bool:
    return len(word) >= _SHORTEST_WORD and word.isalpha() and word.islower()


def _sentences_of_words(
    tokens: Sequence[Sequence[str]], candidates: Sequence[str], num_words: int, needed: int
) -> dict[str, list[str]]:
    """Return the first candidates that are alone among them in enough sentences, with these sentences.

    Args:
        tokens: the words of every sentence.
        candidates: words, in the order in which they are tried.
        num_words: how many of them are wanted.
        needed: how many sentences each needs.

    Returns:
        Sentences by word, nothing if there are fewer words.
    """
    chosen: list[str] = []
    following = iter(candidates)
    while True:
        chosen += islice(following, num_words - len(chosen))
        if len(chosen) < num_words:
            return {}
        # The candidates that follow are in sentences of these, so all are counted again.
        by_word = _by_only_word(tokens, chosen)
        chosen = [word for word in chosen if len(by_word[word]) >= needed]
        if len(chosen) == num_words:
            return {word: by_word[word] for word in chosen}


def _by_only_word(tokens: Sequence[Sequence[str]], words: Iterable[str]) -> dict[str, list[str]]:
    """Return the sentences that have one of the words, once, and none of the others, by their word."""
    by_word: dict[str, list[str]] = {word: [] for word in words}
    for sentence in tokens:
        # A capital does not hide a second one.
        asked_for = [token for token in sentence if token in by_word or token.lower() in by_word]
        if len(asked_for) == 1 and asked_for[0] in by_word:
            by_word[asked_for[0]].append(" ".join(sentence))
    return by_word


def _bigram_shift(sentences: Sequence[str], rng: random.Random) -> dict[str, list[str]]:
    # Both classes come from sentences that could be inverted, or else the others would give themselves away.
    suitable = [sentence for sentence in sentences if _places(sentence.split())]
    rng.shuffle(suitable)
    half = len(suitable) // 2
    original = suitable[:half]
    inverted = [_invert(sentence, rng) for sentence in suitable[half:]]
    # The other order may be a sentence of the text, too.
    known = set(sentences)
    new = [sentence for sentence in dict.fromkeys(inverted) if sentence not in known]
    return {"I": new, "O": original}


def _invert(sentence: str, rng: random.Random) -> str:
    tokens = sentence.split()
    place = rng.choice(_places(tokens))
    tokens[place], tokens[place + 1] = tokens[place + 1], tokens[place]
    return " ".join(tokens)


def _places(tokens: Sequence[str]) -> list[int]:
    """Return the places where two different words follow each other, none of them first; none beside quotes."""
    plain = [unescape(token) for token in tokens]
    if not _QUOTES.isdisjoint(plain):
        return []
    places = []
    for place, (token, following) in enumerate(pairwise(plain)):
        are_words = _is_word(token) and _is_word(following)
        if place > 0 and are_words and token.lower() != following.lower():
            places.append(place)
    return places


def _is_word(token: str) -> bool:
    """Whether a token has a letter or a digit, and so is no punctuation."""
    return any(map(str.isalnum, token))
