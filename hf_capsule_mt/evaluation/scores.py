"""sacreBLEU's BLEU, chrF, chrF++ and TER of a corpus, with the signatures that make a score comparable."""

from collections.abc import Collection, Mapping, Sequence

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from hf_capsule_mt.errors import UserError

METRICS = ("bleu", "chrf", "chrf++", "ter")
"""The names of the metrics."""


def score_translations(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    metrics: Sequence[str] = ("bleu", "chrf", "ter"),
) -> dict[str, dict[str, float | str]]:
    """Score a corpus of translations with sacreBLEU.

    Args:
        hypotheses: the translations, one segment each. An empty one counts as empty.
        references: one or more reference streams, each with one segment for every hypothesis.
        tokenize: BLEU's tokenizer. `"none"` on tokenized text gives the scores of `multi-bleu.perl`. `"13a"` and
            `"intl"` give those of NIST's `mteval-v13a` and `mteval-v14`.
        lowercase: BLEU and chrF of lower-cased text. TER ignores case, as is usual.
        metrics: names among `METRICS`.

    Returns:
        For every metric its `score`, 0 to 100, and sacreBLEU's `signature`. A lower `ter` is better.
    """
    check_aligned(hypotheses, references)
    chosen_metrics = make_metrics(metrics, tokenize, lowercase)

    scores = {}
    for name, metric in chosen_metrics.items():
        result = metric.corpus_score(hypotheses, references)
        scores[name] = {
            "score": result.score,
            # It only knows the number of references once a corpus is scored.
            "signature": metric.get_signature().format(),
        }
    return scores


def make_metrics(names: Sequence[str], tokenize: str = "13a", lowercase: bool = False) -> dict[str, Metric]:
    """Return sacreBLEU's metrics by name, for the arguments of [`score_translations`].

    Raises:
        UserError: if sacreBLEU has no such metric or tokenizer, or this needs a package that is not installed.
    """
    _check_known(tokenize, BLEU.TOKENIZERS)
    for name in names:
        _check_known(name, METRICS)
    try:
        return {name: _make_metric(name, tokenize, lowercase) for name in names}
    except (RuntimeError, ImportError) as error:
        # sacreBLEU's own message has several lines.
        reason = " ".join(str(error).split())
        raise UserError(f"tokenize is {tokenize!r}: {reason}") from error


def _check_known(name: str, known: Collection[str]) -> None:
    if name not in known:
        choices = ", ".join(known)
        raise UserError(f"{name!r} is unknown. sacreBLEU has {choices}.")


def _make_metric(name: str, tokenize: str, lowercase: bool) -> Metric:
    if name == "bleu":
        return BLEU(tokenize=tokenize, lowercase=lowercase)
    if name == "chrf":
        return CHRF(lowercase=lowercase)
    if name == "chrf++":
        return CHRF(lowercase=lowercase, word_order=2)
    return TER()


def check_aligned(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise a UserError unless every reference stream has one segment for every hypothesis, and there are some."""
    segments = len(hypotheses)
    if not hypotheses or not references:
        raise UserError(f"Nothing to score: {segments} hypotheses, {len(references)} reference streams.")
    for number, stream in enumerate(references, start=1):
        if len(stream) != segments:
            raise UserError(f"{segments} hypotheses but {len(stream)} segments in reference {number}.")


def score_report(scores: Mapping[str, Mapping[str, float | str]]) -> str:
    """Return a table of the scores that [`score_translations`] returns, in columns of fixed width."""
    width = max(len(name) for name in (*scores, "metric")) + 2
    lines = [f"{'metric':<{width}}{'score':>7}  signature"]
    for name, entry in scores.items():
        score = entry["score"]
        signature = entry["signature"]
        # Trained metrics go from about 0 to 1.
        rounded = f"{score:.2f}" if name in METRICS else f"{score:.4f}"
        lines.append(f"{name:<{width}}{rounded:>7}  {signature}")
    return "\n".join(lines)
