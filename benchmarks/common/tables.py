"""What tables of speed share: their rows, ratios of rates, and where a record was measured."""

from statistics import median

from benchmarks.common.records import Record

GENERATE = "generate()"
Table = list[list[str]]
"""Rows of cells."""


def ratios(plain: list[float], method: list[float]) -> list[float]:
    """Return the method's rate divided by the plain model's, for every round."""
    return [rate / plain_rate for plain_rate, rate in zip(plain, method, strict=True)]


def ratio_cell(plain: list[float], method: list[float]) -> str:
    """Return the median of the ratios, and the smallest and the largest."""
    of_rounds = ratios(plain, method)
    smallest = min(of_rounds)
    largest = max(of_rounds)
    return f"{median(of_rounds):.2f} ({smallest:.2f}–{largest:.2f})"


def machine(environment: Record, **versions: str | None) -> str:
    """Return the machine of a record, and the versions of its software, as text."""
    packages = environment["packages"]
    versions = {"torch": packages.get("torch"), "transformers": packages.get("transformers"), **versions}
    known = [f"{name} {version}" for name, version in versions.items() if version]
    number = environment["cpu_threads"]
    threads = "threads" if number > 1 else "thread"
    parts = [str(environment["device"]), f"{number} {threads}", f"`{', '.join(known)}`"]
    # Old records have no date.
    if environment.get("date"):
        parts.append(environment["date"])
    return ", ".join(parts)


def clock_in_words(clock: str | None) -> str:
    """Return what a clock measured."""
    return "CPU time" if clock == "cpu" else "time that passed"
