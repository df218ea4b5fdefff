"""BLEU and the length of translations by the length of the source, as all four papers show them.

Zheng et al. 2019, Fig. 5, shows both. Dou et al. 2019, Fig. 5, and Wang et al. 2019, Fig. 4, show BLEU.
"""

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np

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
    shares = [index / num_buckets for index in range(1, num_buckets)]
    quantiles = np.quantile(lengths, shares, method="inverted_cdf")
    edges = sorted({int(edge) for edge in quantiles} - {max(lengths)})
    if not edges:
        raise UserError(f"most sources have {max(lengths)} words, the most there are. Use --length_edges.")
    return edges


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
    buckets = []
    for below, longest in zip([None, *edges], [*edges, None]):
        inside = [_is_in_bucket(length, below, longest) for length in lengths]
        sentences = sum(inside)
        streams = [list(compress(reference, inside)) for reference in references]
        scores = {}
        if sentences:
            for system, translations in systems.items():
                score = metric.corpus_score(list(compress(translations, inside)), streams)
                scores[system] = {
                    "bleu": score.score,
                    "words": score.sys_len / sentences,
                    "ratio": score.sys_len / max(score.ref_len, 1),
                }
        name = _bucket_name(below, longest)
        buckets.append({"name": name, "longest": longest, "sentences": sentences, "systems": scores})
    return buckets


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
    systems = next(list(bucket["systems"]) for bucket in buckets if bucket["systems"])
    header = ["source words", "sentences"]
    for system in systems:
        header += [f"{system}: BLEU", "words", "ratio"]
    rows = [header, ["---:"] * len(header)]
    for bucket in buckets:
        cells = [bucket["name"], str(bucket["sentences"])]
        for scores in bucket["systems"].values():
            cells += [f"{scores['bleu']:.2f}", f"{scores['words']:.1f}", f"{scores['ratio']:.3f}"]
        missing = len(header) - len(cells)
        rows.append(cells + ["–"] * missing)
    caption = (
        f"By length of the source in words ({record['source_tokenize']}): BLEU, words of a translation on average, and "
        "ratio of all words to those of the references."
    )
    return "\n".join([*markdown_table(rows), "", caption])
