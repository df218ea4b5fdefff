"""Steps without a check of the device, as on a GPU: nothing waits, nothing moves, and the tokens are the same."""

import pytest
import torch
from agreement import check_agreement
from ending_models import LONGEST, VOCABULARY, ending, sources
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

from hf_capsule_mt.decoding import Engine, UnsupportedModelError, adapter_for, generate
from hf_capsule_mt.decoding.precision import PRECISIONS
from hf_capsule_mt.decoding.products import products
from hf_capsule_mt.decoding.search import search as search_module
from hf_capsule_mt.decoding.search import step_graph
from hf_capsule_mt.decoding.search.constraints import Constraints
from hf_capsule_mt.decoding.search.search import BeamSearch, GreedySearch, Settings

KINDS = ("marian/em_routing", "marian/gdr", "recurrent/hybrid", "t5/v1_0")
SEARCHES = {
    "greedy": {},
    "beams": {"num_beams": 4},
    "early": {"num_beams": 4, "early_stopping": True, "length_penalty": 0.6},
    "never": {"num_beams": 4, "early_stopping": "never", "num_return_sequences": 2},
}
CASES = [*((kind, "early") for kind in KINDS), *(("marian", search) for search in SEARCHES if search != "early")]
STEPS = 5
# Ways to read a tensor on the host, for which a GPU is waited.
READING = {"tolist", "item", "cpu", "numpy", "nonzero", "unique", "equal"}
READING |= {"__bool__", "__int__", "__index__", "__float__"}


@pytest.fixture
def seldom(monkeypatch):
    """Check on a CPU as seldom as on a GPU, and multiply as there."""
    monkeypatch.setitem(search_module._STEPS_TO_A_CHECK, "cpu", STEPS)
    monkeypatch.setattr(products, "has_onednn", lambda: False)


@pytest.mark.parametrize("search", SEARCHES)
def test_the_tokens_are_those_of_generate(search, seldom, engine_calls):
    model = ending("marian")
    for count, limit in ((12, LONGEST), (3, 1), (5, STEPS + 1)):
        check_agreement(model, sources(count, seed=count), engine_calls, max_new_tokens=limit, **SEARCHES[search])


@pytest.mark.parametrize("num_beams", [1, 3])
def test_more_steps_than_there_is_room_for_at_first(num_beams, seldom, engine_calls):
    options = {"num_beams": num_beams, "min_new_tokens": 35, "max_new_tokens": 39}
    check_agreement(ending("marian"), sources(16), engine_calls, **options)


def _search(name, num_beams):
    """A search of which no sentence has begun."""
    model, source = ending(name), sources(6)
    with torch.no_grad():
        encoded = model.get_encoder()(**source)
        adapter = adapter_for(model)(model, PRECISIONS["float32"])
        decoding = adapter.decoding(adapter, encoded, source["attention_mask"], num_beams)
    constraints = Constraints([], VOCABULARY, torch.device("cpu"))
    # No word ends a sentence.
    eos = torch.tensor([VOCABULARY])
    settings = Settings(constraints, start=2, eos=eos, pad=0, max_length=40, num_beams=num_beams)
    search = GreedySearch if num_beams == 1 else BeamSearch
    return search(decoding, adapter.vocabulary, settings, [30] * 6)


class _Reads(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func.__name__ in READING:
            self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("name", KINDS)
def test_the_host_reads_once_in_several_steps(name, num_beams, seldom):
    search = _search(name, num_beams)
    with torch.inference_mode(), _Reads() as reads:
        for check in range(1, 5):
            assert not search.advance()
            assert search.column == 1 + check * STEPS
    assert reads.names == ["tolist"] * 4


class _Graph(TorchDispatchMode):
    """A stand-in for a CUDA graph: replays must read and write the tensors that the first one did, and no others."""

    def __init__(self):
        super().__init__()
        self.first, self.replays = None, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor) and leaf.untyped_storage().data_ptr() not in self.made:
                self.given.add((leaf.data_ptr(), tuple(leaf.shape), leaf.stride()))
        found = func(*args, **(kwargs or {}))
        given = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves((args, kwargs)) if hasattr(leaf, "storage")}
        new = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor)}
        self.made |= new - given
        return found

    def of(self, step):
        def replay():
            self.given, self.made = set(), set()
            with self:
                step()
            self.replays += 1
            self.first = self.first or self.given
            assert self.given == self.first

        return replay


@pytest.fixture
def graphs(monkeypatch, seldom):
    made = []
    monkeypatch.setitem(step_graph._RECORDERS, "cpu", lambda step: made.append(_Graph()) or made[-1].of(step))
    return made


@pytest.mark.parametrize(("name", "search"), CASES)
def test_steps_as_a_graph(name, search, graphs, engine_calls):
    options = {"max_new_tokens": LONGEST, "min_new_tokens": 3, **SEARCHES[search]}
    check_agreement(ending(name), sources(8), engine_calls, **options)
    # Most of the steps.
    assert sum(graph.replays for graph in graphs) >= 4
    assert any(graph.replays > STEPS for graph in graphs) or len(graphs) > 1


def test_the_first_step_after_a_change_is_not_recorded(graphs):
    """It loads what a device needs, which must not happen while a graph is recorded."""
    graph = step_graph.StepGraph(torch.device("cpu"))
    parts = [torch.zeros(2)]
    steps = []
    recorded = []
    for number in range(6):
        if number == 3:
            parts[0] = torch.zeros(3)
        graph.prepare(parts)
        graph.run(lambda: steps.append(parts[0].add_(1)))
        recorded.append(len(graphs))
    assert len(steps) == 6
    assert recorded == [0, 1, 1, 1, 2, 2]


def test_without_a_graph_it_decodes_as_before(monkeypatch, seldom, engine_calls, caplog):
    def fails(step):
        raise RuntimeError("no graphs here")

    monkeypatch.setitem(step_graph._RECORDERS, "cpu", fails)
    step_graph.logger.warning_once.cache_clear()
    for _ in range(2):
        check_agreement(ending("marian"), sources(4), engine_calls, max_new_tokens=9, num_beams=2)
    assert [record.message for record in caplog.records if "no graphs here" in record.message] == [
        "The engine decodes without a CUDA graph, which takes longer: no graphs here"
    ]


def test_what_a_gpu_has_no_engine_for(monkeypatch):
    model = ending("marian")
    with pytest.raises(ValueError, match="NoRepeatNGramLogitsProcessor on cuda"):
        Constraints([NoRepeatNGramLogitsProcessor(2)], VOCABULARY, torch.device("cuda"))
    processor = RepetitionPenaltyLogitsProcessor(1.3)
    # Another one for each row.
    processor.prompt_ignore_length = torch.tensor([1, 2])
    with pytest.raises(ValueError, match="RepetitionPenaltyLogitsProcessor on cpu"):
        Constraints([processor], VOCABULARY, torch.device("cpu"))
    monkeypatch.setattr(type(model), "device", torch.device("cuda", 1))
    with pytest.raises(ValueError, match="no dtype 'int8' on cuda:1"):
        Engine(model, "int8")
    monkeypatch.setattr(type(model), "device", torch.device("meta"))
    with pytest.raises(UnsupportedModelError, match="the engine needs float32, on a CPU or one CUDA device"):
        Engine(model)


def _on_cuda(name, count=24):
    return ending(name).to("cuda"), {key: value.to("cuda") for key, value in sources(count).items()}


@pytest.mark.cuda
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", KINDS)
def test_float32_on_cuda(name, search, engine_calls):
    model, source = _on_cuda(name)
    check_agreement(model, source, engine_calls, max_new_tokens=LONGEST, **SEARCHES[search])


@pytest.mark.cuda
@pytest.mark.parametrize("name", KINDS)
def test_bfloat16_on_cuda(name, engine_calls):
    model, source = _on_cuda(name)
    for dtype in ("float32", "bfloat16"):
        model.generate(**source, num_beams=3, max_new_tokens=10, custom_generate=generate, dtype=dtype)
    exact, found = (torch.stack([translation.scores[0] for translation in call]) for call in engine_calls)
    assert 0 < (exact - found).abs().median() < 0.05
