"""LoRA: where adapters go in the models of this package, and the adapter that `train --lora_rank` trains with PEFT."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.modeling.portable_model import allow_readers

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, Trainer

    from .options import ModelArguments

# Instead of the output projection, or next to it.
_HEADS = [f"{place}.{linear}" for place in ("out_proj", "routed") for linear in ("inputs", "votes")]
_GUIDED = ["guided_votes.votes", "guided_votes.keys", "guided_routing.queries", "fc1", "fc2"]
_SENTENCE = ["projection", "scoring.0", "scoring.2"]

_PROJECTIONS = ["q_proj", "k_proj", "v_proj"]

LORA_TARGETS: dict[str, list[str]] = {
    "marian": [*_PROJECTIONS, "fc1", "fc2"],
    "m2m_100": [*_PROJECTIONS, "fc1", "fc2"],
    "mbart": [*_PROJECTIONS, "fc1", "fc2"],
    "capsule_aggregated_marian": [*_PROJECTIONS, *_HEADS, *_GUIDED],
    "capsule_aggregated_m2m_100": [*_PROJECTIONS, *_HEADS, *_GUIDED],
    "rnmt": [
        *("key_projection", "query", "start", "from_words", "from_hidden", "from_context", "readout"),
        *_SENTENCE,
        *_GUIDED,
    ],
    "caps_nmt": _SENTENCE,
}
"""By model type: the names of linear layers for `LoraConfig(target_modules=...)`."""

LORA_PARAMETERS: dict[str, list[str]] = {
    "rnmt": [f"{gru}.weight_{side}_l0" for gru in ("forward_gru", "backward_gru") for side in ("ih", "hh")],
    "caps_nmt": [
        f"{lstm}.weight_{side}_l0" for lstm in ("forward_lstm", "backward_lstm", "lstm") for side in ("ih", "hh")
    ],
}
"""By model type: the weights of recurrent layers for `LoraConfig(target_parameters=...)`."""

FOLDER = "adapter"
"""Folder of the trained adapter, in that of its run, which holds the merged model."""


def with_adapter(model: "PreTrainedModel", args: "ModelArguments", new_tokens: Sequence[int] = ()) -> "PeftModel":
    """Return a model that trains only an adapter of rank `args.lora_rank`, and the weights of new tokens.

    What the adapter adds is multiplied by 2 (alpha is 2 * rank). There is no dropout in it: adapters of parameters
    cannot have it.

    Args:
        model: the model.
        args: say the rank, and what the adapter belongs to.
        new_tokens: the ids of tokens that were added to the model, whose rows of the embedding are trained.

    Raises:
        UserError: if there are new tokens, and the model has several embeddings.
    """
    from peft import LoraConfig, TaskType, get_peft_model

    if new_tokens and not model.config.tie_word_embeddings:
        # PEFT trains the row of one embedding.
        raise UserError(
            "--new_language cannot be combined with --lora_rank here: the model has several embeddings. Leave out "
            "--lora_rank."
        )

    # PEFT writes it down as what the adapter belongs to.
    model.name_or_path = args.model

    kind = model.config.model_type
    config = LoraConfig(
        task_type=TaskType.SEQ_2_SEQ_LM,
        r=args.lora_rank,
        lora_alpha=2 * args.lora_rank,
        target_modules=LORA_TARGETS[kind],
        target_parameters=LORA_PARAMETERS.get(kind),
        trainable_token_indices=[*new_tokens] or None,
        revision=None if args.revision == "main" else args.revision,
    )

    adapted = get_peft_model(model, config)
    # By itself PEFT would read the configuration of the start at every save, to see whether embeddings were added.
    adapted.save_pretrained = partial(adapted.save_pretrained, save_embedding_layers=False)
    return adapted


def merge_adapter(trainer: "Trainer") -> None:
    """Save the adapter of a trainer's model, and continue with the model that it is merged into."""
    if trainer.is_world_process_zero():
        folder = Path(trainer.args.output_dir) / FOLDER
        trainer.model.save_pretrained(folder)
        allow_readers(folder.glob("*model*.safetensors"))
    trainer.replace_model(trainer.model.merge_and_unload())
