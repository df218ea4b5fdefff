"""Marian checkpoints in the forms in which OPUS-MT lies on the Hub, with random weights."""

import json
import os
import shutil
from pathlib import Path

import torch
from tiny_marian import ENGLISH, GERMAN, write_sentencepiece, write_vocabulary
from transformers import MarianConfig, MarianMTModel

REAL = Path(os.environ.get("OPUS_MT_FOLDER", Path(__file__).parents[2] / "shared" / "data" / "opus_mt"))
"""Settings and tokenizers of real models, where they are."""
REAL_FORMS = {"opus-mt-en-mg": torch.float32, "opus-mt-tc-big-fr-en": torch.float16}
FORMS = ["2020", "2022", "separate", *(name for name in REAL_FORMS if (REAL / name).is_dir())]
"""Of 2020, with all settings in config.json; of 2022, in float16; with two vocabularies; and real ones."""
_SIZES = {
    **{f"{side}_layers": 1 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 2 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 32 for side in ("encoder", "decoder")},
    **{"d_model": 16, "num_hidden_layers": 1},
}


def save_opus_mt(form, folder):
    """Write a checkpoint in one of the `FORMS`, and return its folder."""
    folder.mkdir(parents=True)
    if form in REAL_FORMS:
        for file in (REAL / form).iterdir():
            shutil.copyfile(file, folder / file.name)
        fields = json.loads((folder / "config.json").read_text())
    else:
        fields = _write_tokenizer(folder, form)
    fields |= _SIZES
    (folder / "config.json").write_text(json.dumps(fields))
    torch.manual_seed(0)
    model = MarianMTModel(MarianConfig.from_dict({**fields, "init_std": 1.0}))
    # Some translations end by themselves, others at their limit.
    model.final_logits_bias[:, model.config.eos_token_id] = 4
    is_half = form == "2022" or REAL_FORMS.get(form) == torch.float16
    weights = (model.half() if is_half else model).state_dict()
    del weights["lm_head.weight"]
    torch.save(weights, folder / "pytorch_model.bin")
    return folder


def _write_tokenizer(folder, form):
    """Write the files of a tokenizer, and the settings of 2022, and return the fields of config.json."""
    codes = [">>de<<", ">>pt_BR<<"]
    source = [*codes, *write_sentencepiece(folder / "source.spm", ENGLISH)]
    target = write_sentencepiece(folder / "target.spm", GERMAN)
    if form == "separate":
        write_vocabulary(folder / "target_vocab.json", target)
    else:
        source = target = [*source, *target]
    write_vocabulary(folder / "vocab.json", source)
    tokenizer = {"source_lang": "en", "target_lang": "de", "separate_vocabs": form == "separate"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    sizes = [len({"</s>", "<unk>", "<pad>", *pieces}) for pieces in (source, target)]
    tokens = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 2, "decoder_start_token_id": 2}
    settings = {"bad_words_ids": [[2]], "max_length": 24, "num_beams": 4}
    fields = {
        **{"_num_labels": 3, "architectures": ["MarianMTModel"], "model_type": "marian", "is_encoder_decoder": True},
        **{"activation_function": "swish", "add_bias_logits": False, "normalize_before": False, "dropout": 0.1},
        **{"scale_embedding": True, "static_position_embeddings": True, "max_position_embeddings": 512},
        **{"vocab_size": sizes[0], **tokens, **settings},
    }
    if form != "2020":
        separate = form == "separate"
        fields |= {"decoder_vocab_size": sizes[1], "forced_eos_token_id": 0, "torch_dtype": "float16"}
        fields |= {"share_encoder_decoder_embeddings": not separate, "tie_encoder_decoder": False}
        file = {"_from_model_config": True, "forced_eos_token_id": 0, **tokens, **settings}
        (folder / "generation_config.json").write_text(json.dumps(file))
    return fields
