"""Tiny COMET checkpoints with random weights, and what COMET itself makes of them.

`tiny_comet_scores.json` was written by COMET 2.2.7, in an environment of its own with `pip install unbabel-comet==2.2.7
"setuptools<80"`, by `python tests/evaluation/tiny_comet.py tests/evaluation/tiny_comet_scores.json`. Its loader needs
`pkg_resources`, which newer setuptools lack: without it the patch of sparsemax is silently left out.
"""

import itertools
import json
import string
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import torch
import yaml
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram
from transformers import (
    MT5Config,
    MT5ForConditionalGeneration,
    XLMRobertaConfig,
    XLMRobertaModel,
    XLMRobertaXLConfig,
    XLMRobertaXLModel,
)

SCORE_TOKEN = 250089
"""The token whose logit is the score of MetricX."""

POSITIONS = 38
"""Of which two are not used, as in XLM-R: texts of more than 34 tokens are cut, and joint ones of more than 36."""
SOURCES = ["A dog runs.", "It is late, and the dog has run for a long time now.", "Where is it?", "The house is old."]
TRANSLATIONS = ["Ein Hund rennt.", "Es ist so spat.", "Wo ist es denn nun wieder hin gelaufen?", "Das Haus ist neu."]
REFERENCES = ["Ein Hund lauft.", "Es ist spat, und der Hund ist lange gelaufen.", "Wo ist es?", "Das Haus ist alt."]

SCALES = {
    "norm.weight": 0.2,
    "word_embeddings": 2.0,
    "estimator": 0.5,
    "hidden2tag.weight": 0.3,
    "hidden2tag.bias": 0.0,
}

KINDS = {
    "regression": {"class_identifier": "regression_metric", "layer_norm": False},
    "regression-normalized": {"class_identifier": "regression_metric", "layer_norm": True},
    "regression-first-token": {"class_identifier": "regression_metric", "pool": "cls"},
    "regression-max": {"class_identifier": "regression_metric", "pool": "max", "layer": 1},
    "referenceless": {"class_identifier": "referenceless_regression_metric"},
    "unified-source": {"class_identifier": "unified_metric", "input_segments": ["mt", "src"]},
    "unified-sparse": {
        "class_identifier": "unified_metric",
        "input_segments": ["mt", "src"],
        "layer_transformation": "sparsemax",
        "layer_norm": True,
    },
    "unified-patch": {
        "class_identifier": "unified_metric",
        "input_segments": ["mt", "src"],
        "layer_transformation": "sparsemax_patch",
    },
    "unified-both": {"class_identifier": "unified_metric", "input_segments": ["mt", "src", "ref"]},
    "xcomet": {"class_identifier": "xcomet_metric", "word_layer": 1},
    "xcomet-xl": {"class_identifier": "xcomet_metric", "word_layer": 1, "encoder_model": "XLM-RoBERTa-XL"},
}


def write_checkpoint(folder, kind):
    """Write a checkpoint as COMET does, with its encoder's settings and tokenizer in the same folder."""
    folder = Path(folder)
    fields = dict(KINDS[kind])
    identifier = fields.pop("class_identifier")
    is_joint = identifier in ("unified_metric", "xcomet_metric")
    settings = {
        "encoder_model": "XLM-RoBERTa",
        "pretrained_model": str(folder / "encoder"),
        "sent_layer" if is_joint else "layer": "mix",
        "layer_transformation": "softmax",
        "layer_norm": False,
        "hidden_sizes": [12, 6],
        "activations": "Tanh",
        "final_activation": None,
        "dropout": 0.1,
        "nr_frozen_epochs": 0.3,
        "keep_embeddings_frozen": True,
        "validation_data": [],
        "train_data": [],
        **({} if is_joint else {"pool": "avg"}),
        **({"word_layer": 2} if is_joint else {}),
        **fields,
    }
    (folder / "checkpoints").mkdir(parents=True)
    write_tokenizer(folder / "encoder")
    weights = _weights(folder / "encoder", identifier, settings)
    written = {**settings, "class_identifier": identifier}
    (folder / "hparams.yaml").write_text(yaml.safe_dump(written))
    saved = dict(settings)
    # Only the YAML file of such a model names the patch. The checkpoint says sparsemax.
    if saved["layer_transformation"] == "sparsemax_patch":
        saved["layer_transformation"] = "sparsemax"
    checkpoint = {"state_dict": weights, "hyper_parameters": saved, "pytorch-lightning_version": "2.6.6"}
    torch.save(checkpoint, folder / "checkpoints" / "model.ckpt")
    return folder


def write_tokenizer(folder):
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    # A word begins with one letter at least, because versions of the library place a lone "▁" differently.
    pieces = [
        *string.ascii_letters,
        *(f"▁{letter}" for letter in string.ascii_letters),
        *".,?",
        "▁Hund",
        "▁ist",
        "▁Haus",
        "▁dog",
        "▁the",
        "un",
        "er",
    ]
    vocabulary = [*((token, 0.0) for token in special), *((piece, -float(len(pieces))) for piece in pieces)]
    tokenizer = Tokenizer(Unigram(vocabulary, unk_id=3, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    ends = [("<s>", 0), ("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> </s> $B </s>", ends)
    tokenizer.add_special_tokens([*special, "<mask>"])
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos": 0, "eos": 2, "unk": 3, "sep": 2, "pad": 1, "cls": 0}
    tokens = {f"{name}_token": special[index] for name, index in names.items()}
    config = {**tokens, "mask_token": "<mask>", "tokenizer_class": "XLMRobertaTokenizer", "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_metricx(folder):
    """Write a random MetricX model. Its tokenizer is in the folder `tokenizer`. Return the folder."""
    torch.manual_seed(0)
    size = {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 2}
    model = MT5ForConditionalGeneration(MT5Config(vocab_size=SCORE_TOKEN + 1, **size))
    # An output of its own, whose scores lie on both sides of the limits.
    model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.shared.weight) * 20)
    model.save_pretrained(folder)
    write_tokenizer(Path(folder, "tokenizer"))
    return folder


def _weights(folder, identifier, settings):
    is_large = settings["encoder_model"].endswith("XL")
    size = {"vocab_size": 140, "hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2}
    config = (XLMRobertaXLConfig if is_large else XLMRobertaConfig)(
        **size, intermediate_size=16, max_position_embeddings=POSITIONS, type_vocab_size=1, pad_token_id=1
    )
    config.save_pretrained(folder)
    model = (XLMRobertaXLModel if is_large else XLMRobertaModel)(config, add_pooling_layer=False)
    shapes = {f"encoder.model.{name}": tensor.shape for name, tensor in model.state_dict().items()}
    if "mix" in (settings.get("layer"), settings.get("sent_layer")):
        shapes |= {f"layerwise_attention.scalar_parameters.{layer}": (1,) for layer in range(4)}
        shapes |= {"layerwise_attention.gamma": (1,)}
        # The dropout of layers, which only training uses.
        shapes |= {"layerwise_attention.dropout_mask": (4,), "layerwise_attention.dropout_fill": (4,)}
    vectors = {"regression_metric": 6, "referenceless_regression_metric": 4}.get(identifier, 1)
    widths = [8 * vectors, 12, 6, 1]
    for number, (width, next_width) in enumerate(itertools.pairwise(widths)):
        shapes |= {
            f"estimator.ff.{3 * number}.weight": (next_width, width),
            f"estimator.ff.{3 * number}.bias": (next_width,),
        }
    if identifier == "xcomet_metric":
        shapes |= {"hidden2tag.weight": (4, 8), "hidden2tag.bias": (4,)}
    return {name: _random(name, shape) for name, shape in shapes.items()}


def _random(name, shape):
    """Return the same numbers for a name in every version of every library."""
    if name.endswith("position_ids"):
        return torch.arange(shape[-1]).view(shape)
    numbers = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    # Tokens must differ, so that some are tagged, and networks must not be saturated, so that scores differ.
    scale = next((scale for part, scale in SCALES.items() if part in name.lower()), 0.6)
    mean = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
    return torch.from_numpy(mean + numbers * scale).float()


def scores_of_comet(folder):
    """Score with COMET itself."""
    from comet import load_from_checkpoint

    model = load_from_checkpoint(str(folder / "checkpoints" / "model.ckpt"), local_files_only=True)
    rows = zip(SOURCES, TRANSLATIONS, REFERENCES)
    samples = [{"src": source, "mt": translation, "ref": reference} for source, translation, reference in rows]
    results = {}
    for name, lines in (("with references", samples), ("without", [{"src": s["src"], "mt": s["mt"]} for s in samples])):
        try:
            found = model.predict(lines, batch_size=3, gpus=0, num_workers=0, progress_bar=False)
        except KeyError:
            # It needs references.
            continue
        results[name] = {"scores": [float(score) for score in found.scores]}
        if "metadata" in found and "error_spans" in found.metadata:
            results[name]["spans"] = found.metadata.error_spans
    transformation = getattr(getattr(model, "layerwise_attention", None), "transform_fn", None)
    return {**results, "transformation": getattr(transformation, "__name__", None)}


if __name__ == "__main__":
    found = {}
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as temporary:
            found[kind] = scores_of_comet(write_checkpoint(Path(temporary, "model"), kind))
    assert found["unified-patch"]["transformation"] == "softmax", "setuptools has no pkg_resources here"
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
