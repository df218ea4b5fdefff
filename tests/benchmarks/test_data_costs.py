"""What a corpus costs: memory and time of a start, and of a stream."""

from argparse import Namespace

import pytest
from tiny_run import files

from benchmarks.data.costs import corpus_costs, make_corpus, stream_costs


@pytest.fixture(scope="module")
def large(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    make_corpus(Namespace(text=files(corpus, "train"), pairs=3000, folder=folder))
    return folder


@pytest.mark.parametrize("measure", ["start", "stream"])
def test_what_a_corpus_costs(measure, large):
    measured = stream_costs if measure == "stream" else corpus_costs
    costs = measured(Namespace(folder=large, measure=measure))
    assert costs["tokens a CPU second"] > 0
    assert costs["peak MB"] >= costs["own MB at the end"] > 0
    if measure == "start":
        assert costs["pairs"] == 3000
