"""The code of Markdown pages, and what runs it."""

import importlib
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import hf_capsule_mt_command

ROOT = Path(__file__).parents[2]
PAGES = sorted(str(path.relative_to(ROOT)) for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
NEEDS = {"needs the Hub", "waits for lines", "needs the package index", "needs several machines", "asks for a token"}
NEEDS |= {"serves until it is stopped", "works in a clone", "needs Ray or datatrove"}
NEEDS |= {"needs Kubernetes"}
"""Why a block may be left out, as the comment in front of it says."""
# Of the same commands, what takes seconds.
_SMALLER = {
    r"Helsinki-NLP/opus-mt-en-de": "marian",
    r"Unbabel/wmt22-comet-da": "comet_model",
    r"--size (base|big)": "--size tiny",
    r"(--max_steps |max_steps: |max_steps=)(100000|8000|3000|300)": r"\g<1>2",
    r"--max_steps 200000": "--max_steps 3",
    r"(--eval_steps |--save_steps |save_steps: )\d+": r"\g<1>1",
    # Of the tutorials: a corpus of a few pairs, and two updates.
    r"num_train=8000, num_validation=100, num_test=100": "num_train=40, num_validation=4, num_test=4",
    r"vocab_size: 1000\b": "vocab_size: 300",
    r"--vocab_size 1500": "--vocab_size 300",
    r"read_corpus\(8000\)": "read_corpus(40)",
    r"max_steps: 120": "max_steps: 2",
    r"warmup_steps: 40": "warmup_steps: 1",
    r"--last 5": "--last 2",
    r"--eval_strategy steps": "--eval_strategy steps --generation_max_length 4",
    r"num_beams: 5": "num_beams: 1, max_new_tokens: 4",
    r"routing_iterations: \[1, 3\]": "routing_iterations: [1]",
    r"training train": "training train --vocab_size 99 --max_tokens_per_batch 96 --batch_size 2 --max_new_tokens 2",
    r"python -m benchmarks.training growth": "python -m benchmarks.training growth --vocab_size 99",
    r"--lengths 32 64 128 --fit_from 32": "--lengths 4 8 16 --fit_from 4",
    r"--rounds 3": "--rounds 1",
    r"--warmup_steps (200|2000)": "--warmup_steps 1",
    r"--min_score -1.5": "--min_score -20",
    r"python -m benchmarks.decoding latency": "python -m benchmarks.decoding latency --num_sentences 1",
    r"hf-capsule-mt analyze": "hf-capsule-mt analyze --lines",
    r"--num_train 4000 --num_validation 500 --num_test 1000": "--num_train 12 --num_validation 6 --num_test 6",
    r"export --model run/average --dtype": "export --model capsnmt --dtype",
    r"export --model run/average": "export --model marian",
    r"python -m benchmarks.probing run": "python -m benchmarks.probing run --seeds 1",
}


@dataclass(frozen=True)
class Block:
    """A fenced block, with the comment in front of it."""

    page: str
    line: int
    language: str
    title: str | None
    needs: str | None
    text: str

    @property
    def smaller(self):
        """The code with a small model, few updates and so on."""
        text = self.text
        for pattern, replacement in _SMALLER.items():
            text = re.sub(pattern, replacement, text)
        return text


def blocks(page, text=None):
    """All fenced blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8") if text is None else text
    fences = re.finditer(
        r'^(?:<!-- (?P<needs>[^>]*) -->\n)?```(?P<language>\w*)(?: title="(?P<title>[^"]*)")?\n(?P<text>.*?)^```$',
        text,
        flags=re.MULTILINE | re.DOTALL,
    )
    return [Block(page, text.count("\n", 0, fence.start()) + 1, **fence.groupdict()) for fence in fences]


def commands(text):
    """The words of each command of a block of bash."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run_command(words, monkeypatch):
    """Run one of our commands in this process, as a launcher's first process if it has one."""
    name, *options = _without_launcher(words)
    if name in ("benchmarks.studies", "benchmarks.probing", "benchmarks.training", "benchmarks.decoding"):
        importlib.import_module(f"{name}.__main__").main(options)
        return
    monkeypatch.setattr(sys, "argv", ["hf-capsule-mt"])
    hf_capsule_mt_command.main([name, *options])


def _without_launcher(words):
    """The command and its options, of `hf-capsule-mt NAME ...` or of `LAUNCHER -m hf_capsule_mt NAME ...`."""
    launcher, *rest = words
    if words[:2] == ["python", "-m"]:
        return words[2:]
    if launcher == "hf-capsule-mt":
        return rest
    if launcher == "accelerate":
        from accelerate.commands.launch import launch_command_parser

        assert rest.pop(0) == "launch"
        parsed = launch_command_parser().parse_args(rest)
    elif launcher == "torchrun":
        from torch.distributed.run import get_args_parser

        parsed = get_args_parser().parse_args(rest)
    else:
        raise AssertionError(f"{shlex.join(words)} is not a command of ours; say in front of its block what it needs")
    assert parsed.module
    assert parsed.training_script == "hf_capsule_mt"
    return parsed.training_script_args
