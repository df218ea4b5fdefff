"""LoRA in `hf-capsule-mt train`: an adapter is trained with PEFT, and at the end merged into its model."""

from pathlib import Path
from typing import TYPE_CHECKING

from transformers import PreTrainedModel, Trainer
from transformers.utils import is_peft_available

from hf_capsule_mt.checkpoints import ADAPTER, tensor_shapes
from hf_capsule_mt.files import read_json
from hf_capsule_mt.lora import LORA_PARAMETERS, LORA_TARGETS

from .arguments import ModelArguments

if TYPE_CHECKING:
    from peft import PeftModel

FOLDER = "adapter"
"""Folder of the trained adapter, in that of its run, which holds the merged model."""
_WEIGHTS = "adapter_model.safetensors"


def check_peft() -> None:
    """Raise a ValueError if PEFT is not installed."""
    if not is_peft_available():
        raise ValueError('lora_rank needs peft; pip install -e ".[peft]"')


def with_adapter(model: PreTrainedModel, args: ModelArguments) -> "PeftModel":
    """Return a model with an adapter of rank `args.lora_rank`, whose weights alone are trained.

    Updates count twice (alpha is 2 * rank), and have no dropout of their own, which those of parameters cannot have.
    """
    from peft import LoraConfig, TaskType, get_peft_model

    # PEFT writes it down as what the adapter belongs to; a model that was made of another one has none.
    model.name_or_path = args.model_name_or_path
    kind = model.config.model_type
    config = LoraConfig(
        task_type=TaskType.SEQ_2_SEQ_LM,
        r=args.lora_rank,
        lora_alpha=2 * args.lora_rank,
        target_modules=LORA_TARGETS[kind],
        target_parameters=LORA_PARAMETERS.get(kind),
        revision=None if args.model_revision == "main" else args.model_revision,
    )
    return get_peft_model(model, config)


def merge_adapter(trainer: Trainer) -> None:
    """Save the adapter of a trainer's model, and go on with the model that it is merged into."""
    if trainer.is_world_process_zero():
        trainer.model.save_pretrained(Path(trainer.args.output_dir) / FOLDER)
    trainer.model = trainer.model_wrapped = trainer.model.merge_and_unload()


def check_same_adapter(checkpoint: str | Path, model: "PeftModel") -> None:
    """Check that a checkpoint holds an adapter like that of `model`.

    Raises:
        OSError: if its weights are damaged.
        ValueError: if it holds none, or one of another model, revision, rank or shape.
    """
    from peft import get_peft_model_state_dict

    there = f"resume_from_checkpoint is {str(checkpoint)!r}"
    for name in (ADAPTER, _WEIGHTS):
        if not (Path(checkpoint) / name).is_file():
            raise ValueError(f"{there}, which holds no {name}, so no adapter; leave out --lora_rank")
    saved, config = read_json(Path(checkpoint) / ADAPTER), model.peft_config["default"]
    options = {"r": "lora_rank", "base_model_name_or_path": "model_name_or_path", "revision": "model_revision"}
    for field, option in options.items():
        if saved.get(field) != getattr(config, field):
            raise ValueError(
                f"{there}, whose {option} is {saved.get(field)!r}, and here it is {getattr(config, field)!r}; train "
                "with the options of its run, or name a checkpoint of this one"
            )
    state = {name: list(tensor.shape) for name, tensor in get_peft_model_state_dict(model).items()}
    if tensor_shapes({"": Path(checkpoint) / _WEIGHTS}) != state:
        raise ValueError(f"{there}, the adapter of a model with other layers; name a checkpoint of this run")
