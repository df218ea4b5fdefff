"""Statistics of routing as a record of plain numbers and as tables."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from .statistics import RoutingStatistics
from .subwords import source_subwords
from .word_shares import ALIKE, LEAST_COUNT


class Table(NamedTuple):
    """A title, rows of text of which the first is the head, and what the numbers are."""

    title: str
    rows: list[list[str]]
    note: str


def record_routing(statistics: RoutingStatistics, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return the numbers, for JSON.

    Args:
        statistics: of a corpus.
        tokenizer: the model's, for words.

    Returns:
        * "routing": by name the "entropy" (nats) and "diversity" by iteration, numbers of "routings", "inputs" and
          output "capsules"; for layers and heads, how many capsules get most from each, at the last iteration
          ("capsules_led"); for words, the "mean_assignment" by iteration and capsule.
        * "words": by name, for every capsule the "piece"s with the largest "share", and their "count".
        * "guided_names": of the guided capsules.
        * "past_and_future": see [`PastAndFutureSums.result`]; None without.
        * "top_5_overlap": {"past": ..., "future": ...}; None without.
    """
    overlaps = statistics.overlaps
    return {
        "routing": {name: _record_sums(sums) for name, sums in statistics.sums.items()},
        "words": {
            name: [
                [
                    {"piece": source_subwords(tokenizer, [word])[0], "share": share, "count": count}
                    for word, share, count in one
                ]
                for one in shares.largest()
            ]
            for name, shares in statistics.word_shares.items()
        },
        "guided_names": statistics.guided_names,
        "past_and_future": None if statistics.past_and_future is None else statistics.past_and_future.result(),
        "top_5_overlap": None if overlaps is None else dict(zip(("past", "future"), overlaps)),
    }


def _record_sums(sums: Any) -> dict[str, Any]:
    mean = sums.mean_assignment
    record = {
        "entropy": sums.entropy,
        "diversity": sums.diversity,
        "routings": sums.routings,
        "inputs": mean.shape[1] if sums.keep_inputs else sums.inputs,
        "capsules": mean.shape[2],
    }
    if sums.keep_inputs:
        last = mean[-1]
        # After one iteration all are alike, and none leads.
        led = last.argmax(0)[last.max(0).values - last.min(0).values > ALIKE]
        return {**record, "capsules_led": led.bincount(minlength=mean.shape[1]).tolist()}
    return {**record, "mean_assignment": mean.squeeze(1).tolist()}


def routing_tables(record: Mapping[str, Any]) -> list[Table]:
    """Return the tables of [`record_routing`]'s record, with "gates" of [`record_gates`] and a [`Worth`], "worth"."""
    tables = [_gates(record["gates"])] if record["gates"] else []
    tables += [_worth(record["worth"])] if record["worth"]["added"] else []
    tables += [_by_iteration(record["routing"])] if record["routing"] else []
    tables += _led(record["routing"])
    for name, capsules in record["words"].items():
        numbers = [str(number + 1) for number in range(len(capsules))]
        names = record["guided_names"] if name == "guided capsules" else numbers
        tables.append(_shares(name, names, record["routing"][name]["mean_assignment"]))
        if any(capsules):
            tables.append(_words_of_capsules(name, names, capsules))
    if record["past_and_future"] is not None:
        tables.append(_past_and_future(record["past_and_future"]))
    if record["top_5_overlap"] is not None:
        tables.append(_overlap(record["top_5_overlap"]))
    return tables


def _gates(gates: Mapping[str, Mapping[str, float]]) -> Table:
    rows = [["place", "mean", "largest"]]
    rows += [[place, f"{gate['mean']:.4f}", f"{gate['largest']:.4f}"] for place, gate in gates.items()]
    note = (
        "Magnitude of gamma, 0 at the start, by which aggregated layers, of unit size, and routed heads are multiplied "
        "before they are added to what the plain model has."
    )
    return Table("How far what was added is switched on", rows, note)


def _worth(worth: Mapping[str, Any]) -> Table:
    # Never "-0.000".
    rows = [[place, f"{worth['loss']:.3f}", f"{round(added, 3) + 0.0:.3f}"] for place, added in worth["added"].items()]
    note = (
        "The loss of what the model was made to write, in nats a token, and what is added to it when what capsules "
        "bring to a position or sentence is replaced by its mean over all other lines: what this model makes of its "
        "capsules, not how one trained without them would do."
    )
    return Table("What the capsules are worth", [["capsules", "loss", "added without them"], *rows], note)


def _by_iteration(routing: Mapping[str, Any]) -> Table:
    most = max(len(one["entropy"]) for one in routing.values())
    numbers = [f"{measure} {number}" for measure in ("entropy", "diversity") for number in range(1, most + 1)]
    rows = [["routing", "capsules", *numbers]]
    for name, one in routing.items():
        empty = [""] * (most - len(one["entropy"]))
        cells = [f"{value:.3f}" for value in one["entropy"]] + empty + [f"{value:.3f}" for value in one["diversity"]]
        rows.append([name, str(one["capsules"]), *cells, *empty])
    note = (
        "By iteration. Entropy in nats, of how an input is dealt to the output capsules: the lower, the surer (Dou et "
        "al. 2019, Eq. 17, as the paper's figures are: its print lacks the minus and divides by the capsules too). "
        "Diversity is 1 - the mean cosine between what two output capsules get: the higher, the more they differ (Eq. "
        "18, whose print lacks the 1 -)."
    )
    return Table("Entropy and diversity", rows, note)


def _led(routing: Mapping[str, Any]) -> list[Table]:
    found = {name: one["capsules_led"] for name, one in routing.items() if "capsules_led" in one}
    if not found:
        return []
    most = max(map(len, found.values()))
    rows = [["routing", *(str(number) for number in range(1, most + 1))]]
    rows += [[name, *map(str, led), *[""] * (most - len(led))] for name, led in found.items()]
    note = (
        "To how many output capsules each layer, or head, is assigned more than any other, in the mean over all "
        "positions; what EM routing makes of it, the activations of layers weigh too."
    )
    return [Table("Capsules led by each layer or head", rows, note)]


def _shares(name: str, names: Sequence[str], means: Sequence[Sequence[float]]) -> Table:
    rows = [["iteration", *names]]
    rows += [[str(number), *(f"{share:.3f}" for share in shares)] for number, shares in enumerate(means, start=1)]
    return Table(f"Shares of {name}", rows, f"Mean assignment of a source word{_WHILE.get(name, '')}.")


_WHILE = {"guided capsules": ", over all target words that are written"}


def _words_of_capsules(name: str, names: Sequence[str], capsules: Sequence[Sequence[Mapping[str, Any]]]) -> Table:
    rows = [["capsule", "source pieces"]]
    rows += [
        [one, ", ".join(f"{word['piece']} ({word['share']:.2f})" for word in words)]
        for one, words in zip(names, capsules, strict=True)
    ]
    note = (
        "Those that a capsule gets the largest share of, in the mean over their occurrences, of pieces that occur "
        f"{LEAST_COUNT} times or more."
    )
    return Table(f"Words that feed {name}", rows, note)


def _past_and_future(found: Mapping[str, Any]) -> Table:
    rows = [["source words", "to PAST", "to FUTURE"]]
    for name, what in (("before", "not yet translated"), ("after", "translated")):
        rows.append([what, *_sides(found[name])])
    note = f"Mean assignment; {found['aligned_words']} of {found['words']} source words could be aligned."
    return Table("PAST and FUTURE of a source word", rows, note)


def _overlap(found: Mapping[str, float | None]) -> Table:
    note = (
        "The fraction of n target words in the bag that are among the 5 n which its capsules find most likely "
        "(r_OL of Zheng et al. 2019)."
    )
    return Table("Top-5 overlap", [["PAST", "FUTURE"], _sides(found)], note)


def _sides(found: Mapping[str, float | None]) -> list[str]:
    return ["" if found[side] is None else f"{found[side]:.3f}" for side in ("past", "future")]
