"""What would be silently wrong, or fail after the work, is refused. Other refusals are tested next to their code."""

from inspect import getsource
from types import SimpleNamespace

import pytest
import torch
from families import translator
from tiny_marian import marian_tokenizer, save_tiny_marian, tiny_model, tiny_tokenizer

from hf_capsule_mt import CapsuleAggregatedMarianForConditionalGeneration as Model
from hf_capsule_mt import preset_config
from hf_capsule_mt.analysis.corpus import Corpus
from hf_capsule_mt.analysis.sentence import read_sentence
from hf_capsule_mt.data.batching import TokenBudgetBatchSampler, batch_by_tokens
from hf_capsule_mt.data.corpus_files import Columns, find_corpora
from hf_capsule_mt.data.lines import read_lines
from hf_capsule_mt.data.streaming import stream_loader
from hf_capsule_mt.data.tokenizer import check_padding_side, train_joint_bpe
from hf_capsule_mt.decoding import generate
from hf_capsule_mt.environment import check_installed
from hf_capsule_mt.evaluation.adequacy import measure_adequacy
from hf_capsule_mt.evaluation.alignment import Alignment
from hf_capsule_mt.evaluation.scores import check_aligned, make_metrics
from hf_capsule_mt.files import new_folder, read_json
from hf_capsule_mt.modeling.routing import CapsuleRouting
from hf_capsule_mt.quickstart import SIZE, read_corpus
from hf_capsule_mt.training.arguments import ModelArguments
from hf_capsule_mt.training.build import build_model
from hf_capsule_mt.training.resuming import find_checkpoint
from hf_capsule_mt.translation.documents import cut_text
from hf_capsule_mt.translation.translator import translate_lines

WORDS = torch.tensor([[3, 4, 2]])


def hooked():
    model = translator("marian-none")
    model.lm_head.register_forward_hook(lambda *_: None)
    return model


def filled_meanwhile(path):
    with new_folder(path / "new"):
        (path / "new").mkdir()
        (path / "new" / "file").touch()


def adapted(folder):
    arguments = {"model": str(save_tiny_marian(folder)), "lora_rank": 2}
    return build_model(ModelArguments(config_overrides=["head_aggregation=em_routing"], **arguments), tiny_tokenizer())


def routed(folder):
    translator("marian-em_routing_joint").save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    "call",
    [
        lambda folder: train_joint_bpe(iter(()), 300),
        lambda folder: check_padding_side(SimpleNamespace(padding_side="left")),
        lambda folder: read_lines(folder / "latin"),
        lambda folder: read_json(folder / "list"),
        lambda folder: find_corpora([], Columns()),
        lambda folder: read_corpus(SIZE + 1),
        lambda folder: batch_by_tokens([3, 21, 0], 20),
        lambda folder: TokenBudgetBatchSampler([(1, 1)], 10, num_replicas=2),
        lambda folder: TokenBudgetBatchSampler([(9, 9)] * 3, 10, num_replicas=2),
        lambda folder: TokenBudgetBatchSampler([(3, 4), (2, 11)], 10, num_replicas=1),
        lambda folder: stream_loader(None, None, None, num_workers=2),
        lambda folder: preset_config("em", "tiny"),
        lambda folder: preset_config("em-routing", "huge"),
        lambda folder: CapsuleRouting("em", preset_config("em-routing", "tiny")),
        lambda folder: Model.from_marian(tiny_model(), dtype=torch.float16),
        lambda folder: Model.from_marian(translator("marian-em_routing_joint")),
        lambda folder: Model.from_marian(routed(folder / "model")),
        lambda folder: type(translator("recurrent-rnmt")).from_rnmt(tiny_model()),
        lambda folder: translator("recurrent-rnmt").model.encoder(WORDS, inputs_embeds=torch.zeros(1, 3, 8)),
        lambda folder: hooked()(WORDS, labels=WORDS, rdrop_alpha=1.0),
        lambda folder: tiny_model().generate(WORDS, custom_generate=generate, penalty_alpha=0.6, top_k=4),
        lambda folder: translate_lines(tiny_model(), tiny_tokenizer(), ["a"], engine="slow"),
        lambda folder: translate_lines(tiny_model(), train_joint_bpe(["a b"], 300), ["a"]),
        lambda folder: cut_text("a", "en", lambda text: False),
        lambda folder: check_aligned([], [[]]),
        lambda folder: check_aligned(["a"], [["a", "b"]]),
        lambda folder: make_metrics(("bleu",), "none at all"),
        lambda folder: measure_adequacy([Alignment(1, ("a",), ())], [Alignment(1, ("a",), ())]),
        lambda folder: Corpus([[]], [[3]]),
        lambda folder: read_sentence(translator("recurrent-capsule"), tiny_tokenizer(), "  "),
        lambda folder: read_sentence(translator("recurrent-capsule"), marian_tokenizer(folder, False), "\u200b"),
        lambda folder: ModelArguments(),
        lambda folder: ModelArguments(method="em-routing"),
        lambda folder: ModelArguments(model="folder", size="tiny"),
        lambda folder: ModelArguments(model="folder", method="gdr", lora_rank=2),
        lambda folder: find_checkpoint(True, folder),
        lambda folder: adapted(folder / "model"),
        lambda folder: filled_meanwhile(folder),
        lambda folder: check_installed("no_such_package", "figures"),
    ],
    ids=lambda call: getsource(call).split("folder: ")[1].strip(" ,\n"),
)
def test_refused(call, tmp_path):
    (tmp_path / "latin").write_bytes("ä".encode("latin-1"))
    (tmp_path / "list").write_text("[1]")
    with pytest.raises((ValueError, FileExistsError)):
        call(tmp_path)
