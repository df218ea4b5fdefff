"""Settings every test runs under. pyproject.toml puts this folder and those of helpers on sys.path."""

import atexit
import gc
import os
import re
import shutil
import sys
import tempfile
from functools import cache, partialmethod

import pytest
import torch
from hypothesis import settings

# While modules are imported, the collector would search all of them again and again, and find nothing.
gc.disable()
os.environ["HF_HUB_OFFLINE"] = "1"
# Corpora and runs of tests are of no use to anybody afterwards.
for variable in ("HF_DATASETS_CACHE", "TRACKIO_DIR", "WANDB_DIR"):
    os.environ[variable] = tempfile.mkdtemp(prefix=f"{variable.lower()}-")
    atexit.register(shutil.rmtree, os.environ[variable], ignore_errors=True)
os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true")
if not torch.cuda.is_available():
    # Triton runs kernels without a GPU. It reads this when it is imported.
    os.environ["TRITON_INTERPRET"] = "1"
    # Without a GPU, PyTorch stores every seed for later, with a stack trace. That is slow.
    torch.cuda.manual_seed_all = lambda seed: None
    if not torch.xpu.is_available():
        torch.xpu.manual_seed_all = lambda seed: None

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_make_parametrize_id(val, argname):
    """Refuse a test's name with bytes that are no text: they may differ in another collection, as gzip's time does."""
    if isinstance(val, bytes) and re.fullmatch(rb"[\t\r\n -~]*", val) is None:
        raise pytest.UsageError(f"{argname} has bytes that are no text. Name them: pytest.param(..., id='...').")


def pytest_collection_modifyitems(items):
    """Run long tests and those with other processes first. Keep the demo's together, so that one process has Gradio."""
    forking = {item.module for item in items if _has_commands_forked(item.module)}
    groups = (
        lambda item: item.module in forking,
        lambda item: item.path.parent.name == "system",
        lambda item: "demo" in item.path.name,
    )
    items.sort(key=lambda item: [not belongs(item) for belongs in groups])
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def _has_commands_forked(module):
    """Whether a server is started for its tests. One process should have all of them."""
    return any(getattr(value, "__module__", None) == "forked_commands" for value in vars(module).values())


def pytest_collection_finish():
    """Nothing that was imported is garbage, so it is not looked through again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def imports_left_alone():
    """What a test imports is not looked through again either."""
    before = len(sys.modules)
    yield
    if len(sys.modules) > before + 100:
        gc.freeze()


@pytest.fixture(autouse=True)
def default_verbosity():
    """Progress bars depend on it, and Transformers' own tests change it for all that follow in the process."""
    from transformers.utils import logging

    logging.set_verbosity_warning()


@pytest.fixture(autouse=True, scope="session")
def positions_made_once():
    """Marian computes its sinusoids number by number. In a tiny model this takes longer than all else."""
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    create, made = MarianSinusoidalPositionalEmbedding.create_weight, {}

    def create_once(embedding):
        size = embedding.weight.shape, embedding.weight.dtype, embedding.weight.device
        if size not in made:
            made[size] = create(embedding)
        # A caller may make it a parameter of its own model and change it.
        return made[size].clone()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MarianSinusoidalPositionalEmbedding, "create_weight", create_once)
        yield


@pytest.fixture(autouse=True, scope="session")
def nothing_drawn_without_memory():
    """A model that is loaded is first built on the device "meta". Random numbers take long there, and are lost."""

    def reset(layer, draw):
        if layer.weight is None or not layer.weight.is_meta:
            draw(layer)

    with pytest.MonkeyPatch.context() as patch:
        for kind in (torch.nn.Linear, torch.nn.Embedding, torch.nn.LayerNorm):
            patch.setattr(kind, "reset_parameters", partialmethod(reset, kind.reset_parameters))
        yield


@pytest.fixture(autouse=True, scope="session")
def records_made_once():
    """Every run asks for the versions of packages and for the commit, and its card compiles the same template."""
    import jinja2

    from hf_capsule_mt import environment

    with pytest.MonkeyPatch.context() as patch:
        for place, name in ((environment, "version"), (environment, "_commit"), (jinja2.Environment, "compile")):
            patch.setattr(place, name, cache(getattr(place, name)))
        yield


@pytest.fixture(autouse=True, scope="session")
def garbage_collected_by_itself():
    """Every Trainer collects garbage when it starts and ends, also that of other tests."""
    from accelerate.utils import memory

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "clear_device_cache", lambda **_: None)
        yield


@pytest.fixture
def often_switched():
    """Threads take turns often, so that a test soon finds what they must not share."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A folder to train in, which no test changes."""
    from tiny_run import write_corpus

    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def hub(monkeypatch):
    """A new Hub on loopback, which this process may talk to."""
    from huggingface_hub import constants, hf_api
    from loopback_hub import serve
    from transformers.utils import hub as transformers_hub

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serve() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        # Clients that may have been made for an earlier one.
        monkeypatch.setattr(hf_api.api, "endpoint", running.url)
        monkeypatch.setattr(transformers_hub, "_hf_api", None)
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.partition("/{repo_id}")
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", running.url + "".join(template[1:]))
        yield running


@pytest.fixture
def engine_calls(monkeypatch):
    """The translations of every call of an engine: none if Transformers did the work."""
    from hf_capsule_mt.decoding import Engine

    calls, translate = [], Engine.translate

    def recorded(*args):
        calls.append(translate(*args))
        return calls[-1]

    monkeypatch.setattr(Engine, "translate", recorded)
    return calls


@pytest.fixture
def int8_choices(monkeypatch):
    """The choice for int8 of every engine that is made."""
    from hf_capsule_mt.decoding import Engine

    choices, make = [], Engine.__init__

    def recorded(engine, model, dtype, choice=None):
        choices.append(choice)
        make(engine, model, dtype, choice)

    monkeypatch.setattr(Engine, "__init__", recorded)
    return choices
