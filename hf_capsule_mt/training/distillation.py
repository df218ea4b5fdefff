"""Sequence-level knowledge distillation (Kim and Rush 2016): a corpus as a teacher translates it.

The corpus is cut into shards of consecutive sentences. Each is written whole when it is done, so that several processes
can share the work and an interrupted run goes on with the next shard.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.encoding import batch_by_tokens, tokenize_lines
from hf_capsule_mt.files import parse_json, read_json, replace_text
from hf_capsule_mt.json_fields import decode
from hf_capsule_mt.translation.source_limits import source_limit
from hf_capsule_mt.translation.translation_report import sequence_scores
from hf_capsule_mt.translation.translator import decode_words, generate_batches

_SETTINGS = "settings.json"


@dataclass(frozen=True)
class Distilled:
    """The translation of one sentence by a teacher."""

    translation: str
    failure: str | None = None
    """The reason to leave the sentence out, or None."""
    score: float | None = None
    """The mean log-probability of its tokens, if it was asked for."""


@dataclass(frozen=True)
class Shards:
    """A folder of shards, and the settings that all of them were made with."""

    folder: Path
    num_sentences: int
    shard_size: int

    def __len__(self) -> int:
        return -(-self.num_sentences // self.shard_size)

    def open(self, settings: Mapping[str, Any]) -> None:
        """Make the folder, or check that what is in it was made with the same settings.

        Raises:
            OSError: if it is a symbolic link, which would lead what is written elsewhere.
            ValueError: if it was not; the message names the settings that differ.
        """
        settings = json.loads(json.dumps({**settings, "shard_size": self.shard_size}))
        file = self.folder / _SETTINGS
        if self.folder.is_symlink():
            raise OSError(f"{self.folder} is a symbolic link, which is not followed here; remove it")
        if file.is_file():
            found = read_json(file)
            different = [name for name in settings if found.get(name) != settings[name]]
            if different:
                raise ValueError(
                    f"{self.folder} is from an interrupted run with another {', '.join(different)}; repeat that run to "
                    "finish it, or delete the folder to start afresh"
                )
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_text(file, json.dumps(settings))

    def sentences(self, shard: int) -> range:
        """Return the indices of the sentences of a shard."""
        start = shard * self.shard_size
        return range(start, min(start + self.shard_size, self.num_sentences))

    def missing(self) -> list[int]:
        """Return the shards that are not yet written."""
        return [shard for shard in range(len(self)) if not self._file(shard).is_file()]

    def write(self, shard: int, results: Sequence[Distilled]) -> None:
        """Write the results of a shard, whole or not at all."""
        replace_text(self._file(shard), "".join(json.dumps(vars(result)) + "\n" for result in results))

    def read(self) -> Iterator[Distilled]:
        """Yield the results of all sentences, in order.

        Raises:
            ValueError: if a shard is damaged.
        """
        for shard in range(len(self)):
            yield from self._read(shard)

    def _read(self, shard: int) -> list[Distilled]:
        file = self._file(shard)
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
            results = [decode(Distilled, parse_json(line)) for line in lines]
        except ValueError as error:
            raise ValueError(f"{file} is damaged: {error}; delete it, and repeat the command") from error
        if len(results) != len(self.sentences(shard)):
            raise ValueError(f"{file} is damaged: it has {len(results)} sentences; delete it, and repeat the command")
        return results

    def remove(self) -> None:
        """Delete the shards, the settings and the folder."""
        shutil.rmtree(self.folder)

    def _file(self, shard: int) -> Path:
        return self.folder / f"shard-{shard:06}.jsonl"


def distill(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    max_tokens_per_batch: int,
    scores: bool = False,
    first: int = 1,
    **options: Any,
) -> list[Distilled]:
    """Translate every source. A failure is one that is longer than the model reads, one whose translation did not end
    within its limit, and one whose translation is empty.

    A batch has at most `max_tokens_per_batch` source tokens, padding included. With `scores` those of
    [`~hf_capsule_mt.translation.translation_report.sequence_scores`] are found too. Messages number the sources from
    `first` on. The `options` are those of [`~hf_capsule_mt.translation.translator.generate_batches`].

    Raises:
        ValueError: if a source has more tokens than a batch may, or `max_new_tokens` exceeds the model's positions.
    """
    limit = source_limit(model.config, tokenizer)
    encoded = tokenize_lines(tokenizer, sources)
    results = [Distilled("", f"more than {limit} source tokens") if len(ids) > limit else None for ids in encoded]
    lengths = [0 if result is not None else len(ids) for ids, result in zip(encoded, results)]
    batches = batch_by_tokens(lengths, max_tokens_per_batch, range(first, first + len(sources)))
    for batch, _, written in generate_batches(model, encoded, batches, **options):
        texts, likely = decode_words(tokenizer, written), [None] * len(batch)
        if scores:
            likely = sequence_scores(model, [encoded[index] for index in batch], [each.ids for each in written])
        for index, text, each, score in zip(batch, texts, written, likely, strict=True):
            results[index] = Distilled(text, _failure(text, each.end is not None), score)
    return [result or Distilled("", "empty source") for result in results]


def _failure(text: str, has_ended: bool) -> str | None:
    if not has_ended:
        return "no end within the limit"
    return None if text.strip() else "empty translation"
