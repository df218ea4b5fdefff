"""The script that measures what a corpus costs, on a small one."""

import runpy
from argparse import Namespace
from pathlib import Path

import pytest
from tiny_run import files, write_corpus

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "data.py"), run_name="data")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    text = files(write_corpus(folder), "train")
    SCRIPT["make_corpus"](Namespace(text=text, pairs=3000, folder=folder))
    return folder


@pytest.mark.parametrize("measure", ["start", "stream"])
def test_what_a_corpus_costs(measure, corpus):
    costs = SCRIPT["stream_costs" if measure == "stream" else "corpus_costs"](Namespace(folder=corpus, measure=measure))
    assert costs["tokens a CPU second"] > 0
    assert costs["peak MB"] >= costs["own MB at the end"] > 0
    if measure == "start":
        assert costs["pairs"] == 3000
