"""BLEU and the length of translations by the length of the source, as all four papers show them.

Zheng et al. 2019, Fig. 5, shows both. Dou et al. 2019, Fig. 5, and Wang et al. 2019, Fig. 4, show BLEU.
"""

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU

from hf_capsule_mt.errors import UserError

from .scores import make_metrics
from .tables import markdown_table


def split_words(sentences: Sequence[str], tokenize: str = "13a") -> list[list[str]]:
    """Return the words of each sentence, as sacreBLEU's tokenizer of this name has them."""
    tokenizer = make_metrics(["bleu"], tokenize)["bleu"].tokenizer
    return [tokenizer(sentence.rstrip()).split() for sentence in sentences]


def quantile_edges(lengths: Sequence[int], num_buckets: int) -> list[int]:
    """Return the longest length of every bucket but the last, so that buckets have as many sentences as ties allow.

    Raises:
        UserError: if most sentences are as long as the longest.
    """
    # Blank sources, which may be many, are in the first bucket.
    lengths = [length for length in lengths if length > 0] or [0]
    longest = max(lengths)
    shares = [index / num_buckets for index in range(1, num_buckets)]
    quantiles = np.quantile(lengths, shares, method="inverted_cdf")
    edges = {int(quantile) for quantile in quantiles}
    # No sentence would be left for the last bucket.
    edges.discard(longest)
    if not edges:
        raise UserError(f"most sources have {longest} words, the most there are. Use --length_edges.")
    return sorted(edges)


def score_by_length(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    lengths: Sequence[int],
    edges: Sequence[int],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> list[dict[str, Any]]:
    """Score every system on the sentences of each bucket, by the length of their sources in words.

    Args:
        systems: the translations of each system, by its name.
        references: one or more reference streams, each with one segment for every source.
        lengths: the number of words of each source.
        edges: the longest length of every bucket but the last, in rising order.
        tokenize: BLEU's tokenizer, which also cuts the words of translations that are counted.
        lowercase: whether BLEU is of lower-cased text.

    Returns:
        The `name` of each bucket, such as "≤ 10", "11–20" or "> 20", its `longest` length (None for any), the number of
        its `sentences`, and `systems`: by name the `bleu` of these sentences as a corpus, the mean number of `words` of
        a translation, and the `ratio` of all words to those of the references. A bucket without sentences has none.
    """
    metric = make_metrics(["bleu"], tokenize, lowercase)["bleu"]
    lower_edges = [None, *edges]
    upper_edges = [*edges, None]

    buckets = []
    for below, longest in zip(lower_edges, upper_edges):
        inside = [_is_in_bucket(length, below, longest) for length in lengths]
        sentences = sum(inside)

        scores = {}
        if sentences:
            streams = [list(compress(reference, inside)) for reference in references]
            for system, translations in systems.items():
                bucket_translations = list(compress(translations, inside))
                scores[system] = _score_bucket(metric, bucket_translations, streams)

        bucket = {
            "name": _bucket_name(below, longest),
            "longest": longest,
            "sentences": sentences,
            "systems": scores,
        }
        buckets.append(bucket)
    return buckets


def _score_bucket(
    metric: BLEU,
    translations: Sequence[str],
    references: Sequence[Sequence[str]],
) -> dict[str, float]:
    """Return BLEU, the mean number of words, and the ratio of all words to those of the references."""
    score = metric.corpus_score(translations, references)
    return {
        "bleu": score.score,
        "words": score.sys_len / len(translations),
        # References may all be empty.
        "ratio": score.sys_len / max(score.ref_len, 1),
    }


def _is_in_bucket(length: int, below: int | None, longest: int | None) -> bool:
    """Return whether a length is above the edge `below` and at most `longest`. The first and last have one edge."""
    is_above = below is None or length > below
    is_within = longest is None or length <= longest
    return is_above and is_within


def _bucket_name(below: int | None, longest: int | None) -> str:
    if below is None:
        return f"≤ {longest}"
    if longest is None:
        return f"> {below}"
    if longest == below + 1:
        return str(longest)
    return f"{below + 1}–{longest}"


def length_report(record: Mapping[str, Any]) -> str:
    """Return the table in Markdown of a record's `by_length`, and under it what it shows."""
    buckets = record["buckets"]
    # A bucket without sentences does not name the systems.
    filled_buckets = [bucket for bucket in buckets if bucket["systems"]]
    systems = list(filled_buckets[0]["systems"])

    header = ["source words", "sentences"]
    for system in systems:
        header += [f"{system}: BLEU", "words", "ratio"]
    alignment = ["---:"] * len(header)
    rows = [header, alignment]

    for bucket in buckets:
        cells = [bucket["name"], str(bucket["sentences"])]
        for scores in bucket["systems"].values():
            cells += _score_cells(scores)
        missing = len(header) - len(cells)
        cells += ["–"] * missing
        rows.append(cells)

    table = markdown_table(rows)
    caption = (
        f"By length of the source in words ({record['source_tokenize']}): BLEU, words of a translation on average, and "
        "ratio of all words to those of the references."
    )
    return "\n".join([*table, "", caption])


def _score_cells(scores: Mapping[str, float]) -> list[str]:
    bleu = scores["bleu"]
    words = scores["words"]
    ratio = scores["ratio"]
    return [f"{bleu:.2f}", f"{words:.1f}", f"{ratio:.3f}"]
