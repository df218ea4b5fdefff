"""Coverage of the source, under-translation and over-translation, by word alignment.

C_ref are the source words that are aligned with a word of the reference, C_gen those that are aligned with a word of
the translation.

* The coverage difference ratio is CDR = 1 - |C_ref \\ C_gen| / |C_ref| (Kong et al. 2019; Zheng et al. 2019, Table 3).
* Under-translated words are C_ref \\ C_gen: the reference translates them, and the system does not (Tu et al. 2016).
* Over-translated words are translated several times without need (Tu et al. 2016). Here these are the source words that
  a word of the translation repeats: it is aligned with them twice or more, and more often than in the reference. OTEM
  (Yang et al. 2018) counts n-grams in the same way.

Zheng et al. let people judge over- and under-translation. These are automatic counts. They are sums over the corpus, so
a long sentence weighs more than a short one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hf_capsule_mt.errors import UserError

from .alignment import Alignment
from .tables import table_in_markdown

ALIGNERS = {
    "eflomal": "words ({source_tokenize}), aligned by eflomal (HMM), whose results differ a little from run to run",
    "attention": "tokens, aligned by the cross-attention of {model}",
}
"""Units that each aligner counts, as a report names them."""


def measure_adequacy(references: Sequence[Alignment], translations: Sequence[Alignment]) -> dict[str, Any]:
    """Compare what translations cover with what references cover, by alignments of the same sources by one aligner.

    Returns:
        `cdr`, 0 to 1, which is 1 if the translations cover all that the references cover, and numbers of source words:
        all `source_words`, those that are `covered_by_reference`, those that are `covered` by the translations, and
        those that are `under_translated` and `over_translated`.

    Raises:
        UserError: if no reference is aligned with anything.
    """
    names = ("source_words", "covered_by_reference", "covered", "under_translated", "over_translated")
    counts = dict.fromkeys(names, 0)
    for reference, translation in zip(references, translations, strict=True):
        by_reference = _covered(reference)
        by_translation = _covered(translation)
        counts["source_words"] += reference.source_words
        counts["covered_by_reference"] += len(by_reference)
        counts["covered"] += len(by_translation)
        counts["under_translated"] += len(by_reference - by_translation)
        counts["over_translated"] += len(_over_translated(reference, translation))
    if not counts["covered_by_reference"]:
        raise UserError("No word of the references is aligned with a source word. Are they of these sources?")
    return {"cdr": 1 - counts["under_translated"] / counts["covered_by_reference"], **counts}


def _covered(alignment: Alignment) -> set[int]:
    return {source for source, _ in alignment.links}


def _over_translated(reference: Alignment, translation: Alignment) -> set[int]:
    """Return the source words that a word form of the translation repeats, more often than in the reference."""
    reference_times = _occurrences(reference)
    repeated = set()
    for (source_word, form), times in _occurrences(translation).items():
        if times > max(1, reference_times[source_word, form]):
            repeated.add(source_word)
    return repeated


def _occurrences(alignment: Alignment) -> Counter:
    """Count how many times each source word is aligned with each target word form."""
    return Counter((source, alignment.target[target]) for source, target in alignment.links)


def adequacy_report(record: Mapping[str, Any]) -> str:
    """Return the table in Markdown of a record's `adequacy`, and under it what it shows."""
    rows = [["system", "CDR", "under-translated", "over-translated"]]
    for name, counts in record["systems"].items():
        under_translated = _count_cell(counts["under_translated"], counts["source_words"])
        over_translated = _count_cell(counts["over_translated"], counts["source_words"])
        rows.append([name, f"{counts['cdr']:.3f}", under_translated, over_translated])
    first = next(iter(record["systems"].values()))
    settings = record["settings"]
    units = ALIGNERS[settings["aligner"]].format(**settings)
    caption = (
        f"There are {first['source_words']} source {units}. The reference "
        f"translates {first['covered_by_reference']} of them. CDR is the share of these that the system translates "
        "too. The others are under-translated. Over-translated words are those for which it repeats a word."
    )
    return f"{table_in_markdown(rows)}\n\n{caption}"


def _count_cell(count: int, source_words: int) -> str:
    return f"{count} ({100 * count / source_words:.2f}%)"
