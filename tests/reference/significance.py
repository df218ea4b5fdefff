"""A bootstrap over training runs and sentences: one sample at a time, of texts that sacreBLEU scores."""

import math

import numpy as np


def compare_runs(baseline, system, references, metric, draws):
    """Return the differences of all samples, their 95% interval, and p.

    `draws` has for each sample the numbers of the drawn sentences, of the baseline's runs and of the system's runs.
    """
    differences = []
    for sentences, baseline_runs, system_runs in draws:
        old = mean_of_drawn_runs(baseline, references, metric, sentences, baseline_runs)
        new = mean_of_drawn_runs(system, references, metric, sentences, system_runs)
        differences.append(new - old)
    low, high = np.percentile(np.array(differences, dtype=np.float64), [2.5, 97.5])
    measured = mean_score(system, references, metric) - mean_score(baseline, references, metric)
    as_far = 0
    for difference in differences:
        # Both are sums of the same numbers, which may differ in the last bit.
        if abs(difference - measured) >= abs(measured) - 1e-9:
            as_far += 1
    return differences, (low, high), (as_far + 1) / (len(differences) + 1)


def mean_score(runs, references, metric):
    scores = [metric.corpus_score(run, references).score for run in runs]
    return sum(scores) / len(scores)


def mean_of_drawn_runs(runs, references, metric, sentences, drawn_runs):
    scores = []
    for run in runs:
        drawn_texts = [run[sentence] for sentence in sentences]
        drawn_references = []
        for stream in references:
            drawn_references.append([stream[sentence] for sentence in sentences])
        scores.append(metric.corpus_score(drawn_texts, drawn_references).score)
    mean = sum(scores) / len(scores)
    if len(runs) == 1:
        return mean
    mean_of_drawn = sum(scores[run] for run in drawn_runs) / len(drawn_runs)
    # Rao and Wu 1988: means of n that are drawn from n spread too little.
    return mean + math.sqrt(len(runs) / (len(runs) - 1)) * (mean_of_drawn - mean)
