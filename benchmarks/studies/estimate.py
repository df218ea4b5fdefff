"""The cost of a study in GPU hours, by published speeds."""

from collections.abc import Sequence

from benchmarks.studies.steps import Job
from benchmarks.studies.study import Study


def estimate(study: Study, jobs: Sequence[Job]) -> str | None:
    """Return the GPU hours of training `jobs`, with the arithmetic; None where the study names no GPU.

    A job takes `max_steps` over the row's `updates_per_second` (else the study's), on the study's GPUs.
    """
    if study.cost is None:
        return None
    seconds = [found for job in jobs if (found := _seconds(study, job)) is not None]
    hours, gpus, unknown = sum(seconds) / 3600, study.cost.gpus, len(jobs) - len(seconds)
    text = (
        f"about {hours * gpus:,.0f} hours of one {study.cost.gpu}: {len(seconds)} run(s), together {hours:,.0f} "
        f"hours on {gpus}, the updates divided by the updates per second. {study.cost.source}"
    )
    return text + (f" Not counted: {unknown} run(s) of unknown speed or length." if unknown else "")


def _seconds(study: Study, job: Job) -> float | None:
    speed = job.row.updates_per_second or study.cost.updates_per_second
    updates = job.row.train.get("max_steps")
    return None if speed is None or updates is None or float(updates) < 1 else float(updates) / speed
