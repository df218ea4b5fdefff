"""BLEU and the length of translations by the length of the source, as all four papers show them.

Zheng et al. 2019, Fig. 5, shows both; Dou et al. 2019, Fig. 5, and Wang et al. 2019, Fig. 4, show BLEU.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU

from hf_capsule_mt.evaluation.scores import markdown_table

from .scores import AlignedTexts, make_metrics


@dataclass(frozen=True)
class SystemInBucket:
    """A system's translations of the sentences of a bucket.

    Attributes:
        bleu: of these sentences as a corpus, 0 to 100.
        words: in a translation, on average.
        ratio: of all words of the translations to those of the references, of several to those of the closest.
    """

    bleu: float
    words: float
    ratio: float


@dataclass(frozen=True)
class Bucket:
    """The sentences whose source has more words than the bucket before allows, and no more than `longest`.

    Attributes:
        longest: the longest allowed, None for any length.
        sentences: their number.
        systems: what was found, by system; empty if there are no sentences.
    """

    longest: int | None
    sentences: int
    systems: dict[str, SystemInBucket]


def count_words(sentences: Sequence[str], tokenize: str = "13a") -> list[int]:
    """Return the number of words of each sentence, as sacreBLEU's tokenizer of this name has them."""
    return [len(words) for words in split_words(sentences, tokenize)]


def split_words(sentences: Sequence[str], tokenize: str = "13a") -> list[list[str]]:
    """Return the words of each sentence, as sacreBLEU's tokenizer of this name has them."""
    tokenizer = make_metrics(["bleu"], tokenize)["bleu"].tokenizer
    return [tokenizer(sentence.rstrip()).split() for sentence in sentences]


def quantile_edges(lengths: Sequence[int], num_buckets: int) -> list[int]:
    """Return the longest length of every bucket but the last, so that buckets have as many sentences as ties allow.

    Raises:
        ValueError: if most sentences are as long as the longest.
    """
    # Blank sources, which may be many, are in the first bucket.
    lengths = [length for length in lengths if length > 0] or [0]
    quantiles = np.quantile(lengths, [index / num_buckets for index in range(1, num_buckets)], method="inverted_cdf")
    edges = sorted({int(edge) for edge in quantiles} - {max(lengths)})
    if not edges:
        raise ValueError(f"most sources have {max(lengths)} words, the most there are. Use --length_edges.")
    return edges


def score_by_length(
    texts: AlignedTexts, lengths: Sequence[int], edges: Sequence[int], *, tokenize: str = "13a", lowercase: bool = False
) -> list[Bucket]:
    """Score every system on the sentences of each bucket.

    Args:
        texts: the systems and references.
        lengths: of the sources, in words.
        edges: the longest length of every bucket but the last, in rising order.
        tokenize: BLEU's tokenizer, which cuts the words that are counted too.
        lowercase: BLEU of lower-cased text.
    """
    check_edges(edges)
    members: list[list[int]] = [[] for _ in range(len(edges) + 1)]
    for index, length in enumerate(lengths):
        members[bisect_left(edges, length)].append(index)
    metric = make_metrics(["bleu"], tokenize, lowercase)["bleu"]
    return [
        Bucket(longest, len(indices), _score(metric, texts, indices) if indices else {})
        for longest, indices in zip([*edges, None], members)
    ]


def check_edges(edges: Sequence[int]) -> None:
    """Raise a ValueError unless the edges of buckets rise from at least 1."""
    if not edges or any(after <= before for before, after in zip([0, *edges], edges)):
        raise ValueError(f"The edges of buckets are {' '.join(map(str, edges))}. They must rise, from at least 1.")


def _score(metric: BLEU, texts: AlignedTexts, indices: Sequence[int]) -> dict[str, SystemInBucket]:
    references = [[reference[index] for index in indices] for reference in texts.references]
    found = {}
    for name, translations in texts.systems.items():
        score = metric.corpus_score([translations[index] for index in indices], references)
        found[name] = SystemInBucket(score.score, score.sys_len / len(indices), score.sys_len / max(score.ref_len, 1))
    return found


def record_buckets(buckets: Sequence[Bucket]) -> list[dict[str, Any]]:
    """Buckets with their names, as plain mappings: what records have, and what figures are drawn from."""
    names = bucket_names([bucket.longest for bucket in buckets])
    return [{"name": name, **asdict(bucket)} for name, bucket in zip(names, buckets, strict=True)]


def bucket_names(edges: Sequence[int | None]) -> list[str]:
    """Return the names of the buckets up to each length, the last of which may be None: "≤ 10", "11–20", "> 20"."""
    names = []
    for shortest, longest in zip([None, *edges], edges):
        if shortest is None:
            names.append(f"≤ {longest}")
        elif longest is None:
            names.append(f"> {shortest}")
        else:
            names.append(str(longest) if longest == shortest + 1 else f"{shortest + 1}–{longest}")
    return names


def length_report(record: Mapping[str, Any]) -> str:
    """Return the table in Markdown of a record's `by_length`, and under it what it shows."""
    buckets = record["buckets"]
    systems = next(list(bucket["systems"]) for bucket in buckets if bucket["systems"])
    header = ["source words", "sentences"]
    for system in systems:
        header += [f"{system}: BLEU", "words", "ratio"]
    rows = [header, ["---:"] * len(header)]
    for bucket in buckets:
        cells = [
            f"{one['bleu']:.2f} {one['words']:.1f} {one['ratio']:.3f}".split() for one in bucket["systems"].values()
        ]
        values = [value for triple in cells for value in triple] or ["–"] * (3 * len(systems))
        rows.append([bucket["name"], str(bucket["sentences"]), *values])
    caption = (
        f"By length of the source in words ({record['source_tokenize']}): BLEU, words of a translation on average, and "
        "ratio of all words to those of the references."
    )
    return "\n".join([*markdown_table(rows), "", caption])
