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
    source_words = 0
    covered_by_reference = 0
    covered = 0
    under_translated = 0
    over_translated = 0

    for reference, translation in zip(references, translations, strict=True):
        by_reference = _covered(reference)
        by_translation = _covered(translation)
        source_words += reference.source_words
        covered_by_reference += len(by_reference)
        covered += len(by_translation)
        under_translated += len(by_reference - by_translation)
        over_translated += len(_over_translated(reference, translation))

    if not covered_by_reference:
        raise UserError("No word of the references is aligned with a source word. Are they of these sources?")

    return {
        "cdr": 1 - under_translated / covered_by_reference,
        "source_words": source_words,
        "covered_by_reference": covered_by_reference,
        "covered": covered,
        "under_translated": under_translated,
        "over_translated": over_translated,
    }


def _covered(alignment: Alignment) -> set[int]:
    """Return the source words that are aligned with any target word."""
    return {source_word for source_word, _ in alignment.links}


def _over_translated(reference: Alignment, translation: Alignment) -> set[int]:
    """Return the source words that a word form of the translation repeats, more often than in the reference."""
    reference_times = _occurrences(reference)
    translation_times = _occurrences(translation)
    repeated = set()
    for (source_word, form), times in translation_times.items():
        # A form that the reference has not at all may still occur once.
        allowed = max(1, reference_times[source_word, form])
        if times > allowed:
            repeated.add(source_word)
    return repeated


def _occurrences(alignment: Alignment) -> Counter:
    """Count how many times each source word is aligned with each target word form."""
    occurrences = Counter()
    for source_word, target_word in alignment.links:
        form = alignment.target[target_word]
        occurrences[source_word, form] += 1
    return occurrences


def adequacy_report(record: Mapping[str, Any]) -> str:
    """Return the table in Markdown of a record's `adequacy`, and under it what it shows."""
    rows = [["system", "CDR", "under-translated", "over-translated"]]
    for name, counts in record["systems"].items():
        source_words = counts["source_words"]
        cdr = counts["cdr"]
        under_translated = _count_cell(counts["under_translated"], source_words)
        over_translated = _count_cell(counts["over_translated"], source_words)
        rows.append([name, f"{cdr:.3f}", under_translated, over_translated])

    # Sources and references are the same for every system.
    first_counts = next(iter(record["systems"].values()))
    source_words = first_counts["source_words"]
    covered_by_reference = first_counts["covered_by_reference"]
    settings = record["settings"]
    units = ALIGNERS[settings["aligner"]].format(**settings)

    caption = (
        f"There are {source_words} source {units}. The reference "
        f"translates {covered_by_reference} of them. CDR is the share of these that the system translates "
        "too. The others are under-translated. Over-translated words are those for which it repeats a word."
    )
    return f"{table_in_markdown(rows)}\n\n{caption}"


def _count_cell(count: int, source_words: int) -> str:
    percent = 100 * count / source_words
    return f"{count} ({percent:.2f}%)"
