"""What is measured over a corpus is what single sentences give, whatever the batches and their padding."""

import itertools
import math

import pytest
import torch
from routed_models import KINDS, TOKENIZER, WITH_BOTH_SIDES, corpus_for, routed

from hf_capsule_mt.analysis.corpus import EncodedCorpus, encode_references, translate_corpus
from hf_capsule_mt.analysis.routing_report import record_routing, routing_tables
from hf_capsule_mt.analysis.sentence import read_encoded
from hf_capsule_mt.analysis.statistics import AssignmentSums, diversities, entropies, measure_routing


def readings(model, corpus):
    return [read_encoded(model, TOKENIZER, corpus.sources[i], corpus.targets[i]) for i in corpus.lines]


def by_name(routing):
    """Assignments `[routings, iterations, inputs, N]` of a sentence, as they are named over a corpus."""
    named = {"encoder layers": routing.encoder_layers, "decoder layers": routing.decoder_layers}
    named |= {f"heads {place}": assignment for place, assignment in routing.heads.items()}
    named["guided capsules"] = routing.guided
    named["sentence capsules"] = None if routing.sentence is None else routing.sentence[None]
    return {name: assignment for name, assignment in named.items() if assignment is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_against_single_sentences(kind):
    model = routed(kind)
    corpus = corpus_for(model)
    assert corpus.lines == WITH_BOTH_SIDES
    statistics = measure_routing(model, corpus)
    expected = {}
    for routing in readings(model, corpus):
        for name, assignment in by_name(routing).items():
            if name == "guided capsules" and kind == "guided_attention":
                continue
            keep = "capsules" not in name
            expected.setdefault(name, AssignmentSums(keep)).add(assignment)
    assert set(statistics.sums) == set(expected)
    for name, sums in expected.items():
        found = statistics.sums[name]
        assert (found.routings, found.inputs) == (sums.routings, sums.inputs)
        torch.testing.assert_close(torch.tensor(found.entropy), torch.tensor(sums.entropy), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(torch.tensor(found.diversity), torch.tensor(sums.diversity), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(found.mean_assignment, sums.mean_assignment, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_batches_and_padding_change_nothing(kind):
    model = routed(kind)
    corpus = corpus_for(model)
    assert [len(corpus.batches(size)) for size in (1, 1000)] == [4, 1]
    found = (measure_routing(model, corpus, max_tokens_per_batch=size) for size in (1, 1000))
    assert_same(*(record_routing(statistics, TOKENIZER) for statistics in found))


def assert_same(one, other):
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for pair in zip(one, other):
            assert_same(*pair)
    else:
        assert one == (pytest.approx(other, rel=1e-4, abs=1e-6) if isinstance(one, float) else other)


def test_words_of_capsules():
    model = routed("capsule")
    corpus = corpus_for(model)
    found = {}
    for index, routing in zip(corpus.lines, readings(model, corpus)):
        for word, shares in zip(corpus.sources[index], routing.sentence[-1].tolist()):
            found.setdefault(word, []).append(shares)
    largest = measure_routing(model, corpus).word_shares["sentence capsules"].largest(most=3, least_count=2)
    for capsule, words in enumerate(largest):
        frequent = {word: shares for word, shares in found.items() if len(shares) >= 2}
        means = {word: sum(each[capsule] for each in shares) / len(shares) for word, shares in frequent.items()}
        assert [word for word, _, _ in words] == sorted(means, key=lambda word: -means[word])[:3]
        assert [share for _, share, _ in words] == pytest.approx([means[word] for word, _, _ in words], rel=1e-4)
        assert [count for _, _, count in words] == [len(found[word]) for word, _, _ in words]


def test_words_of_guided_capsules():
    model = routed("everything")
    corpus = corpus_for(model)
    routing = readings(model, corpus)[0]
    shares = measure_routing(model, encode_references(model, TOKENIZER, ["a b c d e f"], ["f e d"])).word_shares
    [(word, share, _)] = shares["guided capsules"].largest(most=1, least_count=1)[2]
    means = routing.guided[:, -1].mean(0)[:, 2]
    assert share == pytest.approx(float(means.max()), rel=1e-4)
    assert word == corpus.sources[0][int(means.argmax())]


def test_the_model_is_left_as_it_was():
    model = routed("everything").train()
    attention = model.config._attn_implementation
    assert attention == "sdpa"
    measure_routing(model, corpus_for(model))
    assert (model.training, model.config._attn_implementation) == (True, attention)
    model.eval()
    first = measure_routing(model, corpus_for(model)).sums["guided capsules"].entropy
    assert measure_routing(model.train(), corpus_for(model)).sums["guided capsules"].entropy == first


def test_own_translations():
    model = routed("capsule")
    corpus = translate_corpus(model, TOKENIZER, ["a b c", " ", "d"], max_new_tokens=5)
    assert corpus.targets[1] == []
    for index in corpus.lines:
        source = torch.tensor([corpus.sources[index]])
        written = model.generate(input_ids=source, max_new_tokens=5)[0, 1:].tolist()
        assert corpus.targets[index] == written


def test_bags_without_words():
    """As of a model that ends every translation at once."""
    model = routed("everything")
    record = record_routing(measure_routing(model, EncodedCorpus([[4, 5, 2]], [[2]])), None)
    assert record["top_5_overlap"]["past"] is None
    tables = routing_tables({**record, "gates": {}, "worth": {"added": None}})
    [rows] = [table.rows for table in tables if table.title == "Top-5 overlap"]
    assert rows[1][0] == ""
    # The module tells which losses there are.
    model.config.bow_loss_weight = 0.0
    assert (
        record_routing(measure_routing(model, EncodedCorpus([[4, 5, 2]], [[5, 2]])), None)["top_5_overlap"] is not None
    )


def test_long_sides_are_cut_to_the_models_positions(caplog):
    model = routed("everything")
    corpus = encode_references(model, TOKENIZER, ["a " * 60], ["b " * 60])
    assert len(corpus.sources[0]) == len(corpus.targets[0]) == 32
    assert len(caplog.records) == 2
    assert corpus.sources[0][-1] == corpus.targets[0][-1] == TOKENIZER.eos_token_id
    assert entropies(read_encoded(model, TOKENIZER, corpus.sources[0], corpus.targets[0]).guided).isfinite().all()


def random_assignment(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(shape, generator=generator, dtype=torch.float64)).softmax(-1)


def entropy_of(row):
    return -sum(float(c) * math.log(float(c)) for c in row if c > 0)


def diversity_of(matrix):
    """Of the columns of `[inputs, N]`."""
    columns = [matrix[:, n].tolist() for n in range(matrix.shape[1])]
    cosines = []
    for one, other in itertools.combinations(columns, 2):
        norms = math.sqrt(sum(c * c for c in one)) * math.sqrt(sum(c * c for c in other))
        cosines.append(sum(c * d for c, d in zip(one, other)) / norms if norms else 0.0)
    return 1 - sum(cosines) / len(cosines) if cosines else 0.0


@pytest.mark.parametrize("shape", [(3, 2, 4, 5), (1, 3, 1, 2), (2, 1, 6, 1)])
def test_entropies_and_diversities(shape):
    assignment = random_assignment(*shape)
    assignment[0, 0, :, 0] = 0  # a capsule that gets nothing
    found = entropies(assignment), diversities(assignment)
    for routing, iteration in itertools.product(*map(range, shape[:2])):
        for row in range(shape[2]):
            expected = entropy_of(assignment[routing, iteration, row])
            assert float(found[0][routing, iteration, row]) == pytest.approx(expected, abs=1e-12)
        expected = diversity_of(assignment[routing, iteration])
        assert float(found[1][routing, iteration]) == pytest.approx(expected, abs=1e-12)


def test_what_the_paper_reports_of_the_first_iteration():
    uniform = torch.full((1, 1, 6, 512), 1 / 512)
    assert float(entropies(uniform).mean()) == pytest.approx(6.24, abs=5e-3)
    assert float(diversities(uniform)) == pytest.approx(0.0, abs=1e-9)


def sums_of(parts, keep_inputs):
    sums = AssignmentSums(keep_inputs)
    for assignment, mask in parts:
        # What does not exist counts for nothing.
        sums.add(assignment if mask is None else assignment.masked_fill(~mask[:, None, :, None], 7.0), mask)
    return sums


def test_means_over_words_of_several_batches():
    parts = [(random_assignment(2, 3, 4, 5), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool())]
    # A sentence without words is none.
    parts.append((random_assignment(2, 3, 3, 5, seed=1), torch.tensor([[1, 1, 1], [0, 0, 0]]).bool()))
    sums = sums_of(parts, keep_inputs=False)
    sentences = [one[:, there] for assignment, mask in parts for one, there in zip(assignment, mask) if there.any()]
    assert (sums.routings, sums.inputs) == (3, 9)
    for iteration in range(3):
        rows = [row for sentence in sentences for row in sentence[iteration]]
        assert sums.entropy[iteration] == pytest.approx(sum(map(entropy_of, rows)) / 9)
        mean = sum(diversity_of(sentence[iteration]) for sentence in sentences) / 3
        assert sums.diversity[iteration] == pytest.approx(mean)
        torch.testing.assert_close(sums.mean_assignment[iteration, 0], torch.stack(rows).mean(0))


def test_layers_have_means_of_their_own():
    parts = [(random_assignment(4, 2, 3, 5, seed=seed), None) for seed in range(2)]
    sums = sums_of(parts, keep_inputs=True)
    whole = torch.cat([assignment for assignment, _ in parts])
    assert (sums.routings, sums.inputs) == (8, 24)
    torch.testing.assert_close(sums.mean_assignment, whole.mean(0))
    torch.testing.assert_close(torch.tensor(sums.entropy).double(), entropies(whole).mean((0, 2)), rtol=1e-6, atol=0)
