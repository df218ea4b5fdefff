"""What would be silently wrong, or fail after the work, is refused. Other refusals are tested next to their code."""

from types import SimpleNamespace

import pytest
import torch
from families import translator
from tiny_marian import marian_tokenizer, save_tiny_marian, tiny_model, tiny_tokenizer
from translated_lines import translate_lines

from hf_capsule_mt import CapsuleAggregatedMarianForConditionalGeneration as Model
from hf_capsule_mt import preset_config
from hf_capsule_mt.analysis.corpus import EncodedCorpus
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
from hf_capsule_mt.training.build import build_model
from hf_capsule_mt.training.checkpoint_folders import find_checkpoint
from hf_capsule_mt.training.options import ModelArguments
from hf_capsule_mt.translation.text.segments import cut_text

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


REFUSED = [
    (lambda folder: train_joint_bpe(iter(()), 300), "There are no texts to train"),
    (lambda folder: check_padding_side(SimpleNamespace(padding_side="left")), "The tokenizer pads on the left"),
    (lambda folder: read_lines(folder / "latin"), "latin:1 is not UTF-8"),
    (lambda folder: read_json(folder / "list"), "list holds no JSON object"),
    (lambda folder: find_corpora([], Columns()), "there are no files"),
    (lambda folder: read_corpus(SIZE + 1), "num_sentences is 8601"),
    (lambda folder: batch_by_tokens([3, 21, 0], 20), "Line 2 has 21 tokens"),
    (lambda folder: batch_by_tokens([3, 21, 0], 20, [7, 8, 9]), "Line 8 has 21 tokens"),
    (
        lambda folder: TokenBudgetBatchSampler([(1, 1)], 10, num_replicas=2),
        "1 pairs in 1 batches cannot be dealt evenly",
    ),
    (
        lambda folder: TokenBudgetBatchSampler([(9, 9)] * 3, 10, num_replicas=2),
        "3 pairs in 3 batches cannot be dealt evenly",
    ),
    (lambda folder: TokenBudgetBatchSampler([(3, 4), (2, 11)], 10, num_replicas=1), "pair 1 has 11 tokens"),
    (lambda folder: stream_loader(None, None, None, num_workers=2), "A stream takes at most one worker"),
    (lambda folder: preset_config("em", "tiny"), "method is 'em'"),
    (lambda folder: preset_config("em-routing", "huge"), "size is 'huge'"),
    (lambda folder: CapsuleRouting("em", preset_config("em-routing", "tiny")), "There is no routing 'em'"),
    (
        lambda folder: Model.from_marian(tiny_model(), dtype=torch.float16),
        "from_marian takes a Marian model",
    ),
    (lambda folder: Model.from_marian(translator("marian-em_routing_joint")), "from_marian takes a plain Marian model"),
    (lambda folder: Model.from_marian(routed(folder / "model")), "from_marian takes a plain Marian model"),
    (
        lambda folder: type(translator("recurrent-rnmt")).from_rnmt(tiny_model()),
        "from_rnmt takes a trained RNMTForConditionalGeneration",
    ),
    (
        lambda folder: translator("recurrent-rnmt").model.encoder(WORDS, inputs_embeds=torch.zeros(1, 3, 8)),
        "takes either input_ids or inputs_embeds",
    ),
    (lambda folder: hooked()(WORDS, labels=WORDS, rdrop_alpha=1.0), "a hook on the output projection"),
    (
        lambda folder: tiny_model().generate(WORDS, custom_generate=generate, penalty_alpha=0.6, top_k=4),
        "does not know the mode 'contrastive_search'",
    ),
    (lambda folder: translate_lines(tiny_model(), tiny_tokenizer(), ["a"], engine="slow"), "engine is 'slow'"),
    (
        lambda folder: translate_lines(tiny_model(), train_joint_bpe(["a b"], 300), ["a"]),
        "The tokenizer has token id 259",
    ),
    (lambda folder: cut_text("a", "en", lambda text: False), "The model cannot read 'a'"),
    (lambda folder: check_aligned([], [[]]), "Nothing to score"),
    (lambda folder: check_aligned(["a"], [["a", "b"]]), "1 hypotheses but 2 segments in reference 1"),
    (lambda folder: make_metrics(("bleu",), "none at all"), "'none at all' is unknown"),
    (
        lambda folder: measure_adequacy([Alignment(1, ("a",), ())], [Alignment(1, ("a",), ())]),
        "No word of the references is aligned",
    ),
    (lambda folder: EncodedCorpus([[]], [[3]]), "No line has both a source and a translation"),
    (lambda folder: read_sentence(translator("recurrent-capsule"), tiny_tokenizer(), "  "), "The source has no tokens"),
    (
        lambda folder: read_sentence(translator("recurrent-capsule"), marian_tokenizer(folder, False), "\u200b"),
        "The source has no tokens",
    ),
    (lambda folder: ModelArguments(), "Give --method and --tokenizer_name"),
    (lambda folder: ModelArguments(method="em-routing"), "Give --method and --tokenizer_name"),
    (lambda folder: ModelArguments(model="folder", size="tiny"), "folder has a size already"),
    (
        lambda folder: ModelArguments(model="folder", method="gdr", lora_rank=2),
        "trains an adapter for --model, without --method",
    ),
    (lambda folder: find_checkpoint(True, folder), "holds no complete checkpoint to resume from"),
    (lambda folder: adapted(folder / "model"), "add weights that an adapter would leave random"),
    (lambda folder: filled_meanwhile(folder), "new is there and not empty"),
    (lambda folder: check_installed("no_such_package", "figures"), "no_such_package is not installed"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_refused(call, words, tmp_path):
    (tmp_path / "latin").write_bytes("ä".encode("latin-1"))
    (tmp_path / "list").write_text("[1]")
    with pytest.raises((ValueError, FileExistsError), match=words):
        call(tmp_path)
