"""Train a translation model from scratch, or fine-tune one.

From scratch, with a tokenizer made by train_tokenizer:

    hf-capsule-mt train --method em-routing --size tiny --tokenizer_name tokenizer --train_file train.en train.de \\
        --validation_file val.en val.de --output_dir run --max_steps 8000 --eval_strategy epoch --save_strategy epoch
    ...
    The model is in run.

Fine-tune OPUS-MT:

    hf-capsule-mt train --model Helsinki-NLP/opus-mt-en-de --train_file train.jsonl --source_lang en --target_lang de \\
        --output_dir tuned

With --model the defaults are those of fine-tuning: --learning_rate 2e-5, --added_learning_rate 1e-3 for the layers that
--method adds, and 500 updates of warm-up, or a tenth of a shorter run. With --lora_rank the rate is 1e-3.

Teach NLLB a language that it lacks, which begins as a similar one:

    hf-capsule-mt train --model facebook/nllb-200-distilled-600M --new_language dsb_Latn --like deu_Latn \\
        --source_lang deu_Latn --target_lang dsb_Latn --train_file train.de train.dsb --output_dir with-dsb

With --general_validation_file the best checkpoint is one that has not become much worse on texts of another kind. If
every checkpoint has, the output folder holds the model of the start, and the exit status is 3.

--resume_from_checkpoint last continues a run that was killed. --lora_rank 8 trains only an adapter. The output folder
then holds the model with the adapter in it, and the adapter itself in adapter/.

Several processes share the batch of each update:

    accelerate launch --num_processes 8 -m hf_capsule_mt train ...
    torchrun --nproc_per_node 2 -m hf_capsule_mt train --use_cpu ...
"""

import argparse
import ast
import importlib.util
import re
from argparse import ArgumentDefaultsHelpFormatter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hf_capsule_mt.cli.parser import CommandHelp, ErrorsWithRemedies, add_import, check_option_names
from hf_capsule_mt.training.options import DataArguments, ModelArguments, TrainingOptions

_CLASSES_OF_TRANSFORMERS = (
    ("training_args.py", "TrainingArguments", []),
    ("training_args_seq2seq.py", "Seq2SeqTrainingArguments", ["TrainingArguments"]),
)
"""Files of Transformers with options, their classes, and the bases of these."""
# What people use, in this order: --help shows these, and --help_all all of them.
SHOWN = (
    *("train_file", "dataset_name", "source_lang", "target_lang", "validation_file", "general_validation_file"),
    *("model", "method", "size", "tokenizer_name", "new_language", "like", "config_overrides", "imports", "lora_rank"),
    *("output_dir", "overwrite_output_dir", "resume_from_checkpoint"),
    *("max_steps", "num_train_epochs", "max_tokens_per_batch", "max_general_loss"),
    *("gradient_accumulation_steps", "learning_rate", "warmup_steps", "eval_strategy", "eval_steps", "save_strategy"),
    *("save_steps", "bf16", "use_cpu", "push_to_hub", "hub_model_id"),
)
# Groups of the help. An option of data or training is in the first one whose pattern fits.
_GROUPS = {
    "input and output": r"(general_)?(train|validation)_file$|dataset|source_|target_|output_dir|overwrite|resume",
    "data": r"train_file_weights|max_(source|target)|preprocessing|bpe_dropout|streaming|shuffle_buffer",
    "run": r"num_train_epochs|max_steps|seed|data_seed|full_det|early|do_|use_cpu",
    "batches": r"max_tokens|per_device_train|gradient_accum|auto_find|average_tokens|train_samp|dataloader|length_col",
    "learning rate and optimizer": r"learning_rate|added_|lr_|warmup|optim|weight_decay|adam|max_grad|ema_|rdrop|neft",
    "evaluation": r"eval|predict|generat|bleu|max_general|metric|greater|per_device_eval|batch_eval|sortish|include_f",
    "checkpoints": r"save|load_best|enable_jit|ignore_data|restore",
    "log": r"log|report_to|run_name|project|trackio|disable_tqdm|include_num|skip_memory",
    "Hub": r"push|hub",
    "precision and speed": r"bf16|fp16|tf32|activation|gradient_check|torch_|use_liger|liger|use_cache",
    "several devices": r"ddp|fsdp|deepspeed|accelerator|parallelism|local_rank",
    "other options of Transformers": r"",
}


def _transformers_file(name: str) -> Path:
    """Return the path of a file of Transformers, which is found without importing it."""
    return Path(importlib.util.find_spec("transformers").origin).with_name(name)


def _hf_argument_parser() -> type[argparse.ArgumentParser]:
    """Return Transformers' public `HfArgumentParser`, from its file, because the package takes long to import."""
    spec = importlib.util.spec_from_file_location("hf_argparser", _transformers_file("hf_argparser.py"))
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError:
        # Then it needs other files of the package.
        from transformers import hf_argparser as module
    return module.HfArgumentParser


HfArgumentParser = _hf_argument_parser()


class _HelpFormatter(CommandHelp, ArgumentDefaultsHelpFormatter):
    """Help as of the other commands, and a default with every option."""


class _Help(argparse.Action):
    """Shows the options that people use, or all of them with `--help_all`."""

    def __call__(self, parser: argparse.ArgumentParser, *args: Any) -> None:
        # argparse has no public lists of a parser's groups and options.
        for group in parser._action_groups:
            group._group_actions.sort(key=_place_in_help)

        for action in parser._actions:
            if args[-1] != "--help_all" and action.dest not in (*SHOWN, argparse.SUPPRESS):
                action.help = argparse.SUPPRESS
            # Not the spelling with hyphens, no value of a flag, and no default that is none.
            action.option_strings = [name for name in action.option_strings if "-" not in name.lstrip("-")]
            action.nargs = 0 if action.const is True else action.nargs
            if not action.default:
                action.default = argparse.SUPPRESS

        parser.print_help()
        parser.exit()


def _place_in_help(action: argparse.Action) -> int:
    """Return the place of an option in its group: those that people use come first."""
    return SHOWN.index(action.dest) if action.dest in SHOWN else len(SHOWN)


class TrainParser(ErrorsWithRemedies, HfArgumentParser):
    """Transformers' parser of classes of options, with the errors of the other commands."""

    def parse_args(self, args: Sequence[str], namespace: Any = None) -> None:
        """End on a mistake in the options that stand here. The others need Transformers, and are left to it."""
        known = {name for action in self._actions for name in action.option_strings}
        unknown = {word.partition("=")[0] for word in args if word.startswith("--")} - known
        if unknown:
            of_transformers = _names_in_transformers()
            if of_transformers is not None:
                check_option_names(self, args, of_transformers)

        # The help of all options also needs Transformers.
        if not unknown and "--help_all" not in args:
            try:
                self.parse_args_into_dataclasses(list(args))
            except ValueError as error:
                # The classes find options that do not fit each other.
                self.error(str(error))


def _names_in_transformers() -> set[str] | None:
    """Return the options of Transformers, read without importing it. None if its classes are not as they were."""
    names = set()
    for file, class_name, expected_bases in _CLASSES_OF_TRANSFORMERS:
        tree = ast.parse(_transformers_file(file).read_text(encoding="utf-8"))
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name]
        bases = [ast.unparse(base) for node in classes for base in node.bases]
        if not classes or bases != expected_bases:
            return None

        # The fields of a dataclass are the names with a type.
        fields = [node.target.id for node in classes[0].body if isinstance(node, ast.AnnAssign)]
        for name in fields:
            for spelling in (name, f"no_{name}"):
                names |= {f"--{spelling}", f"--{spelling.replace('_', '-')}"}
    return names


def build_parser(training_class: type = TrainingOptions) -> TrainParser:
    """Return the parser of the command.

    Args:
        training_class: the class of the training arguments. By default it has those that people use. That of
            `training/arguments.py` has all of Transformers.
    """
    parser = TrainParser(
        (DataArguments, ModelArguments, training_class),
        usage="%(prog)s --option value ...",
        description=__doc__,
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )

    silent = {"action": _Help, "nargs": 0, "dest": argparse.SUPPRESS, "default": argparse.SUPPRESS}
    parser.add_argument("-h", "--help", **silent, help="show the options that people use, and exit")
    parser.add_argument("--help_all", **silent, help="show all options, and exit")
    _sort_into_groups(parser)
    return parser


def _sort_into_groups(parser: TrainParser) -> None:
    """Sort the options of data and training, over a hundred, into groups by their subject."""
    # argparse has no public lists of a parser's groups and options.
    of_classes = {group.title: group for group in parser._action_groups}
    add_import(of_classes["model"])
    groups = {title: parser.add_argument_group(title) for title in _GROUPS}
    for title in ("data", "training"):
        for action in of_classes[title]._group_actions:
            subject = next(name for name, pattern in _GROUPS.items() if re.match(pattern, action.dest))
            groups[subject]._group_actions.append(action)
    first, *others = groups.values()
    parser._action_groups[:] = [of_classes["options"], first, of_classes["model"], *others]
