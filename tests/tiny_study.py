"""A study for tests: two rows and their shared settings, to be changed and written as YAML; and records of it."""

import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import yaml

from hf_capsule_mt.evaluation.bleu_statistics import pack_statistics

STORED = Path(__file__).parents[1] / "benchmarks" / "records"
SMALL = {"d_model": 16, "dropout": 0.1}


def study_of_two(folder):
    """What the file says; its data are in `folder`."""
    return {
        "title": "Two rows",
        "data": {
            "train_file": [f"{folder}/train.en", f"{folder}/train.de"],
            "validation_file": [f"{folder}/test.en", f"{folder}/test.de"],
        },
        "tests": {"test": [f"{folder}/test.en", f"{folder}/test.de"]},
        "train_tokenizer": {"vocab_size": 300},
        "train": {
            **{"max_tokens_per_batch": 200, "max_steps": 8, "warmup_steps": 4, "learning_rate": "1e-3"},
            **{"logging_steps": 2, "save_strategy": "steps", "save_steps": 2, "use_cpu": True, "report_to": "none"},
        },
        "average_checkpoints": {"last": 2},
        "translate": {"num_beams": 2, "max_new_tokens": 8, "device": "cpu"},
        "distill": {"num_beams": 1, "max_new_tokens": 8, "device": "cpu"},
        "evaluate": {"metrics": ["bleu"]},
        "size": "tiny",
        "rows": [
            {"name": "plain", "method": "transformer", "config": SMALL},
            {"name": "student", "method": "capsnmt", "config": SMALL, "teacher": "plain"},
        ],
    }


def write_study(path, study):
    """Write the file; returns its path."""
    path.write_text(yaml.safe_dump(study, sort_keys=False))
    return path


def write_record(folder, name, bleu, *, method, tests=("test",), config=None, log=None, statistics=None, **changes):
    """The records of one run, as the commands leave them, with the `statistics` of sentences."""
    config, run = config or {}, json.loads((STORED / "multi30k_transformer-3000_run_record.json").read_text())
    run["model"] |= {"method": method, "config_overrides": [f"{field}={value}" for field, value in config.items()]}
    run["data"] |= study_of_two(folder.parent)["data"]
    if name.endswith("_student"):
        run["data"]["train_file"] = ["runs/distilled/plain.en", "runs/distilled/plain.de"]
    run["data"] |= changes.pop("data", {})
    run["training"] |= {"max_steps": 8, "learning_rate": 1e-3, "save_steps": 2, "max_tokens_per_batch": 200}
    run["training"] |= {"warmup_steps": 4, "logging_steps": 2, **changes.pop("training", {})}
    run["config"] = {"d_model": 128, **config}
    run["environment"] |= {"device": "a machine", "packages": {"torch": "2"}}
    run |= {"command": "", "parameters": 2_605_056, "updates": 8, "seconds_of_this_call": 4.0, **changes}
    (folder / f"{name}_run_record.json").write_text(json.dumps(run))
    for test in tests:
        evaluation = json.loads((STORED / "multi30k_transformer_test_2016_flickr.json").read_text())
        evaluation |= {"scores": {"bleu": {"score": bleu, "signature": "nrefs:1"}}, "hypotheses": None}
        evaluation["references"] = [{"file": f"{test}.de", "sha256": None}]
        evaluation["settings"]["tokenize"] = "13a"
        if statistics is not None:
            evaluation["bleu_statistics"] = pack_statistics(statistics)
        (folder / f"{name}_{test}.json").write_text(json.dumps(evaluation))
    if log is not None:
        (folder / f"{name}_trainer_state.json").write_text(json.dumps({"log_history": log}))


def run_here(words, *others):
    """Run a command of the runner's in this process, which has imported already what every command imports."""
    module, argv = words[words.index("-m") + 1], words[words.index("-m") + 2 :]
    importlib.import_module(module).main(argv)
    return 0


def subprocess_here():
    """What looks like `subprocess` and runs analyses in this process, each with the pictures of one sentence."""

    def run(words, **options):
        return SimpleNamespace(returncode=run_here([*words, "--sentences", "1"]))

    return SimpleNamespace(run=run, DEVNULL=None)
