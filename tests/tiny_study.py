"""A study for tests: two rows and their shared settings, to be changed and written as YAML."""

import yaml

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
