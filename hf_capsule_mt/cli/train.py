"""The command `train`. Its options stand in options/train_options.py and in training/options.py."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback, set_seed
from transformers.utils import logging

from hf_capsule_mt.environment import environment
from hf_capsule_mt.errors import UserError, blamed_on_user
from hf_capsule_mt.files import write_json
from hf_capsule_mt.loading import commit_of, load_tokenizer
from hf_capsule_mt.modeling.warm_start import added_weights
from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.build import build_model, check_vocabulary
from hf_capsule_mt.training.callbacks import StopOnSigterm
from hf_capsule_mt.training.checkpoint_folders import claim_folder, find_checkpoint
from hf_capsule_mt.training.lora import merge_adapter, with_adapter
from hf_capsule_mt.training.model_preparation import force_target_language
from hf_capsule_mt.training.new_languages import add_language_tokens, begin_rows
from hf_capsule_mt.training.options import DataArguments, ModelArguments
from hf_capsule_mt.training.run_recorder import RunRecorder, evaluations_of
from hf_capsule_mt.training.trainer import TranslationTrainer
from hf_capsule_mt.training.training_data import load_data

from .common import import_code, leave_group_at_exit, report_user_errors, warn_if_busy, warn_of_one_process
from .options import train_options
from .options.train_options import TrainParser
from .parser import check_option_names

logger = logging.get_logger(__name__)

_FINE_TUNING = {"learning_rate": 2e-5, "warmup_steps": None}
"""Defaults of options with --model."""
_NOTHING_KEPT = 3
"""Exit status of a run in which every checkpoint loses too much on the general validation data."""
# Of layers that a method adds, and of an adapter: they start at zero, and would stay there at the rate above.
_ADDED_RATE = 1e-3


def build_parser() -> TrainParser:
    """Return the parser of the command, with all options of Transformers."""
    return train_options.build_parser(TranslationTrainingArguments)


@report_user_errors()
def main(argv: Sequence[str] | None = None, callbacks: Sequence[TrainerCallback] = ()) -> None:
    """Train, evaluate, and save model, tokenizer, `run_record.json` and the model card in the output folder.

    Args:
        argv: the options (default: those of the command line).
        callbacks: are told the events of the training.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    parser = build_parser()
    check_option_names(parser, arguments)
    _set_defaults(parser, arguments)

    # Transformers finds options that do not fit each other.
    with blamed_on_user():
        data_args, model_args, args, command_args = parser.parse_args_into_dataclasses(arguments)

    import_code(command_args.imports)
    args.check_with(data_args)
    # Data is read after this, which can take hours.
    claim_folder(args, find_checkpoint(args.resume_from_checkpoint, args.output_dir), deletes=False)
    if model_args.lora_rank is not None and args.push_to_hub:
        raise UserError("Checkpoints of --lora_rank are adapters. Push the merged model when it is trained.")

    run = _Run(model_args, data_args, args)
    run.prepare(arguments)
    for callback in callbacks:
        run.trainer.add_callback(callback)

    run.train()
    if run.every_checkpoint_has_forgotten():
        run.keep_start()
    run.save_and_report()


def _set_defaults(parser: TrainParser, arguments: Sequence[str]) -> None:
    """Let the defaults be those of fine-tuning if a model is given."""
    options = {word.partition("=")[0].replace("-", "_") for word in arguments}
    if "__model" in options:
        parser.set_defaults(**_FINE_TUNING)
    if "__lora_rank" in options:
        parser.set_defaults(learning_rate=_ADDED_RATE)


class _Run:
    """A run of training, from its options to the files that it leaves."""

    def __init__(
        self, model_args: ModelArguments, data_args: DataArguments, args: TranslationTrainingArguments
    ) -> None:
        self.model_args = model_args
        self.data_args = data_args
        self.args = args
        self.keeps_start = False

    def prepare(self, arguments: Sequence[str]) -> None:
        """Load what the run starts from, and its data, and make its trainer."""
        started = time.time()
        versions = environment(self.args.device)
        if self.model_args.model is not None:
            self.model_args.revision = commit_of(self.model_args.model, self.model_args.revision) or "main"
        warn_of_one_process(self.args.world_size)
        warn_if_busy(self.args.device)

        tokenizer = load_tokenizer(*self.model_args.tokenizer())
        check_vocabulary(self.model_args, tokenizer)
        self.new_tokens = add_language_tokens(tokenizer, self.model_args.new_languages())

        model = self._model_of_start(tokenizer)
        if self.model_args.model is not None:
            self._choose_added_rate(model)
        if not hasattr(model.config, "label_smoothing"):
            # That of the Trainer is for models of Transformers, whose own loss has none.
            self.args.label_smoothing_factor = self.model_args.label_smoothing
        if self.model_args.lora_rank is not None:
            model = with_adapter(model, self.model_args, [*self.new_tokens])

        data = load_data(self.data_args, self.args, tokenizer, model.config)
        force_target_language(model, tokenizer)
        self.recorder = RunRecorder(self.model_args, self.data_args, data.facts, arguments, started, versions)

        self.trainer = TranslationTrainer(
            model,
            self.args,
            train_dataset=data.train,
            eval_dataset=data.validation,
            processing_class=tokenizer,
            general_dataset=data.general,
            recorder=self.recorder,
        )

    def _model_of_start(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        """Return the model before the first update. A second call returns an equal one."""
        set_seed(self.args.seed)
        model = build_model(self.model_args, tokenizer)
        begin_rows(model, self.new_tokens)
        if self.model_args.model is None:
            # The limit that `translate` has for the longest source of training. Plain generate() has no other.
            settings = model.generation_config
            settings.max_new_tokens = min(settings.max_new_tokens, 2 * self.data_args.max_source_length + 21)
        return model

    def _choose_added_rate(self, model: PreTrainedModel) -> None:
        """Choose the learning rate of layers that a method adds, and say with which rates the model is tuned."""
        args = self.args
        adds_layers = self.model_args.method is not None and added_weights(model)
        if adds_layers and args.added_learning_rate is None:
            args.added_learning_rate = _ADDED_RATE
        if args.should_log:
            added = f", {args.added_learning_rate} for added layers" if args.added_learning_rate else ""
            logger.warning(f"Fine-tuning with learning rate {args.learning_rate}{added}.")

    def train(self) -> None:
        """Train. If SIGTERM came, a checkpoint is saved, and the command ends here."""
        trainer = self.trainer
        remedy = "Continue with --resume_from_checkpoint last."
        if self.args.resume_from_checkpoint == "auto":
            remedy = "The same command continues."

        with StopOnSigterm() as stop:
            trainer.add_callback(stop)
            self.result = trainer.train(resume_from_checkpoint=self.args.resume_from_checkpoint)

        if stop.stopped:
            if trainer.is_world_process_zero():
                print(f"Stopped by SIGTERM at update {trainer.state.global_step}. {remedy}", file=sys.stderr)
            leave_group_at_exit()
            raise SystemExit(StopOnSigterm.STATUS)

        self.evaluations = evaluations_of(trainer.comparable_log)

    def every_checkpoint_has_forgotten(self) -> bool:
        """Return whether there were evaluations after the start, and after each the model had lost too much."""
        has_evaluations = self.trainer.general_dataset is not None and len(self.evaluations) > 1
        return has_evaluations and self.trainer.state.best_global_step is None

    def keep_start(self) -> None:
        """Continue with the model that the run started from."""
        self.keeps_start = True
        tokenizer = self.trainer.processing_class
        model = self._model_of_start(tokenizer)
        force_target_language(model, tokenizer)
        self.trainer.replace_model(model)

    def save_and_report(self) -> None:
        """Save, evaluate and push what came out, and say which weights it has."""
        trainer = self.trainer
        if self.model_args.lora_rank is not None and not self.keeps_start:
            merge_adapter(trainer)
        # It is pushed at the end, with the scores.
        trainer.save_without_push()
        trainer.save_state()

        metrics = dict(self.result.metrics)
        if trainer.eval_dataset is not None:
            metrics |= trainer.evaluate()
        if trainer.is_world_process_zero():
            record = self.recorder.record(trainer, metrics, self.evaluations)
            record["keeps_start"] = self.keeps_start
            write_json(Path(self.args.output_dir) / "run_record.json", record)

        if self.keeps_start:
            # Neither the card of a trained model, nor a push.
            self._print_curves()
            self._end_without_a_checkpoint()

        if self.args.push_to_hub:
            trainer.push_to_hub()
        else:
            trainer.create_model_card()

        if trainer.is_world_process_zero():
            self._print_curves()
            self._print_scores(metrics)
            print(f"The model is in {self.args.output_dir}.")
        leave_group_at_exit()

    def _print_scores(self, metrics: Mapping[str, float]) -> None:
        """Print the scores of the weights that were saved, if there is validation data."""
        scores = []
        if "eval_bleu" in metrics:
            scores.append(f"BLEU {metrics['eval_bleu']:.2f}")
        if "eval_loss" in metrics:
            scores.append(f"loss {metrics['eval_loss']:.3f}")
        if scores:
            print(f"On the validation data: {', '.join(scores)}.")

    def _end_without_a_checkpoint(self) -> None:
        """End the command with a status of its own."""
        if self.trainer.is_world_process_zero():
            print(
                f"Every checkpoint loses more than {self.args.max_general_loss} BLEU on the general validation data. "
                f"The model in {self.args.output_dir} is that of the start. Lower --learning_rate, or raise "
                "--max_general_loss.",
                file=sys.stderr,
            )
        leave_group_at_exit()
        raise SystemExit(_NOTHING_KEPT)

    def _print_curves(self) -> None:
        """Print the scores of all evaluations, if there is general validation data."""
        if self.trainer.general_dataset is None or not self.trainer.is_world_process_zero():
            return

        best_update = self.trainer.state.best_global_step
        start, *later = self.evaluations
        least = start["general_bleu"] - self.args.max_general_loss

        print(f"{'updates':>9}{'validation BLEU':>17}{'general BLEU':>14}")
        for scores in self.evaluations:
            note = ""
            if scores["updates"] == best_update:
                note = "  best"
            elif scores["general_bleu"] < least:
                note = "  loses too much"
            updates, bleu, general_bleu = (scores[name] for name in ("updates", "bleu", "general_bleu"))
            print(f"{updates:>9}{bleu:>17.2f}{general_bleu:>14.2f}{note}")

        if best_update is not None and max(scores["bleu"] for scores in later) <= start["bleu"]:
            logger.warning(f"No checkpoint is better than the model at the start. Do not use {self.args.output_dir}.")
