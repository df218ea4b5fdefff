"""An attack with damaged inputs: each area damages a file, uses it as the commands do, and judges what came of it.

Of what is accepted, the judge asks whether the result is what the files now say. For a checkpoint it builds the model
by hand, of the values in the files and no others, and lets Transformers' own search translate. Of a server it asks
whether each answer is JSON and none is an error of the server.
"""

import contextlib
import json
import logging
import random
import re
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path

import bad_files
import bad_markup
import bad_texts
import torch
import transformers
from bad_requests import send
from mutations import byte_damage, json_damage, strange_value
from outcomes import Finding, Outcome, quiet
from safetensors.torch import load, load_file, save
from tiny_checkpoints import FAMILIES, tiny_checkpoint
from tokenizers import Tokenizer
from transformers import GenerationConfig

from hf_capsule_mt.cli import translate
from hf_capsule_mt.cli.common import report_user_errors
from hf_capsule_mt.data.lines import unbroken
from hf_capsule_mt.data.pair_writer import write_parallel_text
from hf_capsule_mt.data.parallel_text import read_parallel_text

LINES = ["a b c d", "", "x y"]
NO_LIMIT = 10**9
LARGEST_COUNT = 1000
ROUNDINGS = 10
DIFFERENT = 1e-5
"""Scores that are closer differ by rounding only."""
NOTHING = ["no word is the best, or all are"]
WEIGHTS, CONFIG, SETTINGS = "model.safetensors", "config.json", "generation_config.json"


def attack(area: str, seed: int, folder: Path) -> Finding:
    """Carry out the attack number `seed` of an area in an empty folder."""
    return AREAS[area](random.Random(f"{area} {seed}"), folder)


def _judge(use: Callable[[], object], is_right: Callable[[object], str]) -> Finding:
    """Call `use`. An error of the user is a refusal, and a result is right if `is_right` says nothing against it."""
    try:
        with quiet(), report_user_errors():
            result = use()
    except SystemExit:
        return Finding(Outcome.REFUSED, traceback.format_exc())
    except Exception:
        return Finding(Outcome.TRACEBACK, traceback.format_exc())
    try:
        with quiet():
            against = is_right(result)
    except Exception:
        against = f"accepted, but by hand there is {traceback.format_exc()}"
    return Finding(Outcome.SILENT_CHANGE if against else Outcome.RIGHT, against)


# Checkpoints.


def configuration(rng: random.Random, folder: Path) -> Finding:
    """Damage to config.json."""
    return _damaged_checkpoint(rng, folder, CONFIG, rng.choice([json_damage, json_damage, byte_damage]))


def decoding_settings(rng: random.Random, folder: Path) -> Finding:
    """Damage to generation_config.json."""
    return _damaged_checkpoint(rng, folder, SETTINGS, rng.choice([json_damage, json_damage, byte_damage]))


def weights(rng: random.Random, folder: Path) -> Finding:
    """Damage to model.safetensors, to its bytes or to its tensors."""
    return _damaged_checkpoint(rng, folder, WEIGHTS, rng.choice([byte_damage, _header_damage, _tensor_damage]))


def tokenizer(rng: random.Random, folder: Path) -> Finding:
    """Damage to a file of the tokenizer."""
    name = rng.choice(["tokenizer.json", "tokenizer.json", "tokenizer_config.json"])
    return _damaged_checkpoint(rng, folder, name, rng.choice([json_damage, byte_damage]))


def checkpoint(rng: random.Random, folder: Path) -> Finding:
    """A file that is missing, empty, halved or another checkpoint's, or an index of weights that leads elsewhere."""
    source = _copy(rng, folder)
    name = rng.choice([CONFIG, SETTINGS, WEIGHTS, "tokenizer.json"])
    kind = rng.choice(["missing", "empty", "halved", "another's", "index"])
    file = folder / name
    if kind == "missing":
        file.unlink()
    elif kind == "empty":
        file.write_bytes(b"")
    elif kind == "halved":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    elif kind == "another's":
        other = rng.choice([each for each in FAMILIES if each != source.name])
        shutil.copy(tiny_checkpoint(other) / name, file)
    else:
        _lay_index(rng, folder)
    must_fail = kind in ("missing", "empty", "halved")
    finding = _translated(folder)
    if must_fail and finding.outcome is Outcome.RIGHT:
        return Finding(Outcome.SILENT_CHANGE, f"{name} is {kind}, and nobody says so")
    return Finding(finding.outcome, f"{source.name}: {name} {kind}. {finding.about}")


def _lay_index(rng: random.Random, folder: Path) -> None:
    tensors = list(load_file(folder / WEIGHTS))
    elsewhere = rng.choice(["/etc/passwd", "..", "", "a/b.safetensors", 5, None, ["a"]])
    (folder / WEIGHTS).unlink()
    index = {"metadata": {}, "weight_map": {**dict.fromkeys(tensors, elsewhere)}}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index))


def _damaged_checkpoint(
    rng: random.Random, folder: Path, name: str, damage: Callable[[random.Random, bytes], bytes]
) -> Finding:
    source = _copy(rng, folder)
    data = (folder / name).read_bytes()
    damaged = damage(rng, data)
    while _endless(damaged):
        damaged = damage(rng, data)
    (folder / name).write_bytes(damaged)
    finding = _translated(folder)
    return Finding(finding.outcome, f"{source.name}/{name} after {damage.__name__}. {finding.about}")


def _endless(data: bytes) -> bool:
    # Such a model is built and computes as its file says. Nobody promises that it will be soon.
    counts = re.findall(rb'"(?:num_\w+|\w+_iterations|\w+_layers|\w*vocab_size)": (\d+)', data)
    return any(int(count) > LARGEST_COUNT for count in counts)


def _copy(rng: random.Random, folder: Path) -> Path:
    source = tiny_checkpoint(rng.choice(list(FAMILIES)))
    for name in (CONFIG, SETTINGS, WEIGHTS, "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, folder / name)
    return source


def _header_damage(rng: random.Random, data: bytes) -> bytes:
    length = int.from_bytes(data[:8], "little")
    header = json_damage(rng, data[8 : 8 + length])
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def _tensor_damage(rng: random.Random, data: bytes) -> bytes:
    tensors = load(data)
    name = rng.choice(sorted(tensors))
    tensor = tensors.pop(name)
    kind = rng.choice(["less", "renamed", "shape", "type", "more"])
    if kind == "renamed":
        tensors[f"{name}x"] = tensor
    elif kind == "shape":
        tensors[name] = tensor.flatten()[:-1].clone()
    elif kind == "type":
        tensors[name] = tensor.to(rng.choice([torch.float16, torch.int8, torch.bool, torch.float64]))
    elif kind == "more":
        tensors |= {name: tensor, "x": tensor.clone()}
    return save(tensors, {"format": "pt"})


def _translated(folder: Path) -> Finding:
    text = folder.parent / f"{folder.name}.text"
    text.write_text("".join(f"{line}\n" for line in LINES))
    options = ["--model", str(folder), "--input_file", str(text), "--output_file", f"{text}.out", "--device", "cpu"]

    def use() -> list[str]:
        translate.main(options)
        return Path(f"{text}.out").read_text().removesuffix("\n").split("\n")

    return _judge(use, lambda lines: _against(folder, lines))


def _against(folder: Path, lines: list[str]) -> str:
    expected = by_hand(folder)
    if expected in (lines, NOTHING):
        return ""
    # Damaged weights may make words equally good but for the rounding, which is another where lines share a batch.
    others = [by_hand(folder, torch.Generator().manual_seed(seed)) for seed in range(ROUNDINGS)]
    chance = [line in found for line, *found in zip(lines, expected, *others)]
    return "" if len(lines) == len(expected) and all(chance) else f"{lines} instead of {expected}"


def by_hand(folder: Path, rounding: torch.Generator | None = None) -> list[str]:
    """Translate `LINES` with what the files of a checkpoint say and nothing else, or with another `rounding`."""
    fields = json.loads((folder / CONFIG).read_text())
    model, words = _model_by_hand(folder, fields), _words_by_hand(folder, fields)
    if not _decides(model, [words.encode(line).ids for line in LINES]):
        return NOTHING
    uncut = Tokenizer.from_str(words.to_str())
    uncut.no_truncation()
    ends = fields.get("eos_token_id")
    ends = {*ends} if isinstance(ends, list) else {ends}
    found = []
    for line in LINES:
        source = words.encode(line).ids
        # The end of a sentence by itself says nothing that could be translated.
        says_nothing = not line.strip() or set(uncut.encode(line).ids) <= ends
        ids = [] if says_nothing else _written_by_hand(model, source, fields, rounding)
        found.append(words.decode(ids, skip_special_tokens=True))
    return unbroken(found, "")


def _model_by_hand(folder: Path, fields: dict) -> transformers.PreTrainedModel:
    config_class, model_class, _ = FAMILIES[fields["model_type"]]
    model = model_class(config_class(**{name: fields[name] for name in fields if name != "auto_map"})).eval()
    tensors = load_file(folder / WEIGHTS)
    lost = set(model.load_state_dict(tensors, strict=False).missing_keys) - set(model.all_tied_weights_keys)
    assert all("embed_positions" in name for name in lost), f"{lost} are random"
    model.tie_weights()
    model.generation_config = GenerationConfig(**json.loads((folder / SETTINGS).read_text()))
    return model.to(getattr(torch, fields["dtype"]) if fields.get("dtype") else next(iter(tensors.values())).dtype)


def _words_by_hand(folder: Path, fields: dict) -> Tokenizer:
    words = Tokenizer.from_file(str(folder / "tokenizer.json"))
    words.no_padding()
    named = json.loads((folder / "tokenizer_config.json").read_text())
    # Null, 0 and less stand for no limit.
    of_tokenizer = named.get("model_max_length") or NO_LIMIT
    if of_tokenizer < 1:
        of_tokenizer = NO_LIMIT
    limit = min(of_tokenizer, fields.get("max_position_embeddings", NO_LIMIT))
    if limit < NO_LIMIT:
        words.enable_truncation(int(limit))
    words.add_special_tokens([named[name] for name in ("pad_token", "unk_token", "eos_token") if named.get(name)])
    return words


def _written_by_hand(
    model: transformers.PreTrainedModel, source: list[int], fields: dict, rounding: torch.Generator | None
) -> list[int]:
    settings = model.generation_config
    longest = min(settings.max_length or NO_LIMIT, fields.get("max_position_embeddings", NO_LIMIT))
    most = min(2 * len(source) + 20, longest - 1, settings.max_new_tokens or NO_LIMIT)
    # Two more than there will be, for a forced end is for those that do not end by themselves alone.
    options = {"max_length": most + 2, "max_new_tokens": None, "num_return_sequences": 1}
    # A cache changes only the speed, and Transformers reads {} as no cache here and as a cache there.
    options["use_cache"] = True
    options["stopping_criteria"] = [lambda ids, scores: torch.full((len(ids),), ids.shape[1] > most)]
    if rounding is not None:
        eps = 10 * torch.finfo(model.dtype).eps
        options["logits_processor"] = [
            lambda ids, scores: scores * (1 + eps * torch.randn(scores.shape, generator=rounding))
        ]
    with torch.no_grad():
        output = model.generate(torch.tensor([source]), return_dict_in_generate=False, **options)
    ids, ends = output[0].tolist()[1:], settings.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    return ids[: next((place for place, word in enumerate(ids) if word in ends), len(ids))]


def _decides(model: transformers.PreTrainedModel, sources: list[list[int]]) -> bool:
    """Whether one word is the best at every step: damaged weights may overflow, or make all words equally good."""
    with torch.no_grad():
        read = [model(input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([ids])) for ids in sources if ids]
    # Padding, 0, is never written.
    best = [output.logits[..., 1:].float().topk(2, dim=-1).values for output in read]
    finite = all(output.logits.isfinite().all() for output in read)
    return finite and all((first - second > DIFFERENT).all() for first, second in (two.unbind(-1) for two in best))


# Text.


def text(rng: random.Random, folder: Path) -> Finding:
    """Damage to parallel text: what is kept must be lines of the same number."""
    kind = rng.choice(["text", "tsv", "jsonl"])
    pairs = [(f"{number} {_words(rng)}", f"{number} {_words(rng)}") for number in range(rng.randrange(1, 8))]
    names = {"text": ["a.en", "a.de"], "tsv": ["a.tsv"], "jsonl": ["a.jsonl"]}[kind]
    files = [folder / name for name in names]
    with quiet():
        write_parallel_text(files, *zip(*pairs), "en", "de")
    damaged = rng.choice(files)
    damage = rng.choice([byte_damage, _line_damage])
    damaged.write_bytes(damage(rng, damaged.read_bytes()))

    def against(found: object) -> str:
        expected = _pairs_by_hand(files, kind)
        return "" if list(zip(found.sources, found.targets)) == expected else f"{found} instead of {expected}"

    return _judge(lambda: read_parallel_text(files, "en", "de"), against)


def _words(rng: random.Random) -> str:
    return " ".join(rng.choice(["a", "Haus", "\u2028", "ü\n", "\x85", "\U0001f415", '"', "\\", "\t"]) for _ in range(4))


def _line_damage(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    value = json.dumps({"translation": {"en": strange_value(rng, "a"), "de": "b"}}).encode()
    bad = [b"", b"\xff", b"[" * 100_000, b"1" * 5000, b"{}", b"a\tb\tc", b"\r", b"\x00", b"\xef\xbb\xbf", value]
    place = rng.randrange(len(lines))
    return b"\n".join(lines[:place] + [rng.choice(bad)] + lines[place + rng.randrange(2) :])


def _pairs_by_hand(files: list[Path], kind: str) -> list[tuple[str, str]]:
    sides = [file.read_bytes().split(b"\n") for file in files]
    sides = [side[:-1] if side[-1] == b"" else side for side in sides]
    sides = [[line.removesuffix(b"\r") for line in side] for side in sides]
    for side in sides:
        side[:1] = [line.removeprefix(b"\xef\xbb\xbf") for line in side[:1]]
    if kind == "text":
        assert len(sides[0]) == len(sides[1])
        rows = zip(*sides)
    elif kind == "tsv":
        rows = [line.split(b"\t") for line in sides[0] if line.strip()]
        assert all(len(row) == 2 for row in rows)
    else:
        rows = _json_rows(sides[0])
    kept = []
    for row in rows:
        with contextlib.suppress(UnicodeDecodeError):
            source, target = (side.decode() for side in row)
            if source.strip() and target.strip():
                kept.append((source, target))
    return kept


def _json_rows(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    rows = []
    for line in lines:
        with contextlib.suppress(UnicodeDecodeError):
            if line.decode().strip():
                found = json.loads(line.decode())["translation"]
                rows.append(tuple((found[lang] or "").encode(errors="surrogatepass") for lang in ("en", "de")))
    return rows


# Requests.


def server(rng: random.Random, folder: Path) -> Finding:
    """Damage to requests: the answer is JSON, and says what is wrong or is a translation."""
    logging.disable(logging.CRITICAL)
    try:
        sent, status, against = send(rng, json_damage, byte_damage)
    finally:
        logging.disable(logging.NOTSET)
    about = f"{sent.path} {sent.kind} {sent.body[:2000]!r}: {against}"
    if against:
        return Finding(Outcome.TRACEBACK, about)
    return Finding(Outcome.RIGHT if status < 400 else Outcome.REFUSED, f"{about} {status}")


AREAS = {
    function.__name__.replace("_", " "): function
    for function in (configuration, decoding_settings, weights, tokenizer, checkpoint, text, server)
}
DAMAGED = list(AREAS)
AREAS |= bad_texts.AREAS | bad_files.AREAS | bad_markup.AREAS
