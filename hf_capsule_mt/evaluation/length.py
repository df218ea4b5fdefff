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
    quantiles = np.quantile(lengths, [index / num_buckets for index in range(1, num_buckets)], method="inverted_cdf")
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

    `edges` are the longest length of every bucket but the last, in rising order. BLEU's tokenizer cuts the words that
    are counted too.

    Returns:
        The `name` of each bucket, such as "≤ 10", "11–20" or "> 20", its `longest` length (None for any), the number of
        its `sentences`, and `systems`: by name the `bleu` of these sentences as a corpus, the mean number of `words` of
        a translation, and the `ratio` of all words to those of the references. A bucket without sentences has none.
    """
    metric = make_metrics(["bleu"], tokenize, lowercase)["bleu"]
    buckets = []
    for below, longest in zip([None, *edges], [*edges, None]):
        name = f"≤ {longest}" if below is None else f"> {below}"
        if below is not None and longest is not None:
            name = str(longest) if longest == below + 1 else f"{below + 1}–{longest}"
        inside = [(below or -1) < length <= (longest or length) for length in lengths]
        streams = [list(compress(reference, inside)) for reference in references]
        found = {}
        for system, translations in systems.items() if any(inside) else ():
            score = metric.corpus_score(list(compress(translations, inside)), streams)
            words, ratio = score.sys_len / sum(inside), score.sys_len / max(score.ref_len, 1)
            found[system] = {"bleu": score.score, "words": words, "ratio": ratio}
        buckets.append({"name": name, "longest": longest, "sentences": sum(inside), "systems": found})
    return buckets


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
