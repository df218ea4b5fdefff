"""A program for a process where this package cannot be imported: it loads checkpoints, saves and pushes them again.

It runs in a folder with the checkpoints and `task.json`, and writes what it found to `found.json`. The test that starts
it computes the same numbers with the functions at the top.
"""

import gc
import json
import multiprocessing
import os
import sys
from pathlib import Path

import torch

BATCH = {
    "input_ids": [[3, 4, 5, 2], [6, 2, 0, 0]],
    "attention_mask": [[1, 1, 1, 1], [1, 1, 0, 0]],
    "labels": [[7, 8, 2], [9, 2, -100]],
}
TRUST = {"trust_remote_code": True}
# Every import of them fails.
FORBIDDEN = ("hf_capsule_mt", "accelerate", "peft", "scipy", "torchao")


def tensors():
    return {name: torch.tensor(value) for name, value in BATCH.items()}


def results(model):
    """Numbers to compare."""
    with torch.no_grad():
        output = model(**tensors())
        source = {name: value for name, value in tensors().items() if name != "labels"}
        beams = model.generate(**source, num_beams=3, num_return_sequences=2)
    return [output.loss.item(), output.logits.tolist(), beams.tolist()]


def load_twice_at_once(folder):
    """Load a checkpoint in two processes, which find none of the code's files in the cache."""
    fork = multiprocessing.get_context("fork")
    both = fork.Barrier(2)
    with fork.Pool(2, initializer=both.wait) as pool:
        return pool.map(load_class, [folder] * 2, chunksize=1)


def load_class(folder):
    from transformers import AutoModelForSeq2SeqLM

    return type(AutoModelForSeq2SeqLM.from_pretrained(folder, **TRUST)).__name__


def translations(folder, sentences, **options):
    from transformers import pipeline

    return pipeline("translation", model=folder, device="cpu", **TRUST, **options)(sentences)


def load_and_save(method, sentences):
    """Load the checkpoint of a method, save it, and do the same with the result. Return the numbers of both."""
    from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

    first, second, third = (f"{folder}/{method}" for folder in ("first", "second", "third"))
    model = AutoModelForSeq2SeqLM.from_pretrained(first, **TRUST)
    base_name = type(AutoModel.from_pretrained(first, **TRUST)).__name__
    found = [results(model), base_name, translations(first, sentences)]
    # A model that is saved has all of its files, wherever it came from.
    os.rename(first, "moved")
    model.save_pretrained(second)
    os.rename("moved", first)
    AutoTokenizer.from_pretrained(first).save_pretrained(second)
    again = AutoModelForSeq2SeqLM.from_pretrained(second, **TRUST)
    again.save_pretrained(third)
    assert [results(again), base_name, translations(second, sentences)] == found
    return found


def load_plain():
    """Load a plain model, without remote code."""
    from transformers import AutoModelForSeq2SeqLM

    model, report = AutoModelForSeq2SeqLM.from_pretrained("plain", output_loading_info=True)
    assert not any(report.values()), report
    return [type(model).__name__, results(model)]


def load_classifier():
    """Return what a classifier says without remote code, and its logits with it."""
    from transformers import AutoModelForSequenceClassification

    try:
        AutoModelForSequenceClassification.from_pretrained("classifier")
        refusal = "it was loaded"
    except ValueError as error:
        refusal = str(error)
    model = AutoModelForSequenceClassification.from_pretrained("classifier", **TRUST)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor(BATCH["input_ids"][:1])).logits
    return refusal, logits.tolist()


def train_and_push(commit):
    """Load a model from the Hub, train it for a step, and push it. Return its numbers."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model = AutoModelForSeq2SeqLM.from_pretrained("user/name", revision=commit, **TRUST)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(**tensors()).loss.backward()
    optimizer.step()
    model.eval().push_to_hub("user/again")
    AutoTokenizer.from_pretrained("user/name", revision=commit, **TRUST).push_to_hub("user/again")
    return results(model)


def main():
    # While modules are imported it looks through all of them again and again, and finds nothing.
    gc.disable()
    for name in FORBIDDEN:
        sys.modules[name] = None
    from huggingface_hub import constants
    from transformers import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    gc.freeze()
    gc.enable()
    task = json.loads(Path("task.json").read_text())
    sentences = task["sentences"]
    found = {"at once": load_twice_at_once("first/capsnmt")}
    for method in task["methods"]:
        found[method] = load_and_save(method, sentences)
    found["plain"] = load_plain()
    found["untrusted"], found["labels"] = load_classifier()
    # Until here there was no Hub.
    constants.HF_HUB_OFFLINE = False
    found["from the Hub"] = translations("user/name", sentences, revision=task["commit"])
    found["trained"] = train_and_push(task["commit"])
    Path("found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
