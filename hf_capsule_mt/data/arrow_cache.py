"""Corpora as Arrow files in the cache of `datasets`: read once, tokenised once, and mapped by every process.

A corpus is a folder `hf_capsule_mt/FINGERPRINT` of `HF_DATASETS_CACHE`. The fingerprint follows from the columns and
from the files' names, sizes, times and inodes, or from the data set of the Hub. The fingerprint of the token ids in it
also follows from the tokenizer and the limits. The first process to ask for a corpus makes it, and all others wait.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tokenizers
import transformers
from filelock import FileLock
from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.errors import UserError, blamed_on_user
from hf_capsule_mt.files import new_folder, read_json, write_json

from .batching import tokenize_batch
from .corpus_files import Columns, Corpus, find_corpora
from .lines import RawPair, ReadReport, text_bytes, useful_pairs
from .parallel_text import hub_pairs, read_shard
from .tokenizer import tokenizer_hash

if TYPE_CHECKING:
    from datasets import Dataset

# A part of every fingerprint. Raise it when other text or other ids are made of the same files.
_VERSION = 2
_CHUNK = 10_000
_TEXT = "text.arrow"
_FACTS = "facts.json"


@dataclass(frozen=True)
class TextCorpus:
    """The useful pairs of a corpus, in its order."""

    dataset: "Dataset"
    """Columns source and target."""
    report: ReadReport
    """Numbers of pairs that were read, kept and dropped."""
    sha256: dict[str, str]
    """Hashes of the kept lines of each side, by `source` and `target`."""
    name: str
    """What error messages call it."""

    def sources(self) -> Iterator[str]:
        """Yield the sources from the Arrow files."""
        for batch in self.dataset.select_columns("source").iter(_CHUNK):
            yield from batch["source"]


def read_corpora(
    files: Sequence[str | Path],
    columns: Columns,
    dataset_name: str | None = None,
    configuration: str | None = None,
) -> list[TextCorpus]:
    """Return the corpora of files, or of the training split of a data set, from the cache if they are in it.

    Args:
        files: named as for [`find_corpora`]. They are not read if a data set is named.
        columns: how a row names its two sides.
        dataset_name: a data set of the Hub, or a local folder of one.
        configuration: the data set's configuration, if it has several.

    Raises:
        UserError: as [`read_corpus`] and [`read_hub_corpus`] do.
    """
    if dataset_name is None:
        return [read_corpus(corpus, columns) for corpus in find_corpora(files, columns)]
    columns.check(f"--dataset_name {dataset_name}")
    return [read_hub_corpus(dataset_name, configuration, "train", columns)]


def read_corpus(corpus: Corpus, columns: Columns, name: str = "training data") -> TextCorpus:
    """Return the pairs of files, from the cache if they are in it.

    Raises:
        UserError: if a line does not have its format, or there is no useful pair.
    """
    files = []
    has_columns = False
    for shard in corpus.shards:
        stamps = [_stamp(path) for path in shard.paths]
        files.append((shard.format, *stamps))
        if shard.format not in ("text", "tsv"):
            has_columns = True

    identity = {
        "files": files,
        # With other columns the pairs of the same file are others.
        "columns": asdict(columns) if has_columns else None,
    }

    def pairs() -> Iterator[RawPair]:
        for shard in corpus.shards:
            yield from read_shard(shard, columns, name)

    return _cached(identity, pairs, f"{name} ({corpus})")


def read_hub_corpus(
    dataset_name: str,
    dataset_config_name: str | None,
    split: str,
    columns: Columns,
    *,
    streaming: bool = False,
) -> TextCorpus:
    """Return the pairs of a split of a data set of the Hub or of a local folder, from the cache if they are in it.

    Args:
        dataset_name: the data set or folder.
        dataset_config_name: its configuration, if it has several.
        split: such as "train".
        columns: how a row names its two sides.
        streaming: download only this split, instead of all.

    Raises:
        UserError: if the data set cannot be read, has no such columns, or no useful pair.
    """
    from datasets import load_dataset_builder
    from datasets.exceptions import DatasetsError

    with blamed_on_user((ValueError, DatasetsError), about=f"The data set {dataset_name} cannot be read"):
        builder = load_dataset_builder(dataset_name, dataset_config_name)
    where = f"{dataset_name}, split {split}"

    def pairs() -> Iterator[RawPair]:
        with blamed_on_user((ValueError, DatasetsError), about=f"{where}, cannot be read"):
            if streaming:
                rows = builder.as_streaming_dataset(split)
            else:
                builder.download_and_prepare()
                rows = builder.as_dataset(split)
            yield from hub_pairs(rows, columns, where)

    identity = {
        # The name of this folder follows from the data files and the revision.
        "dataset": str(builder.cache_dir),
        "split": split,
        "columns": asdict(columns),
    }
    return _cached(identity, pairs, where)


def tokenize_corpus(
    text: TextCorpus,
    tokenizer: PreTrainedTokenizerBase,
    max_source_length: int | None = None,
    max_target_length: int | None = None,
    *,
    num_proc: int | None = None,
) -> "Dataset":
    """Tokenise both sides and leave out pairs over a limit, or map the cache.

    Args:
        text: the corpus.
        tokenizer: may have two vocabularies.
        max_source_length: most tokens of a source, special tokens included (default: no limit).
        max_target_length: the same for targets.
        num_proc: the number of processes (default: this one, in which a fast tokenizer uses all cores).

    Returns:
        Columns input_ids and labels, lists of int32.

    Raises:
        UserError: every pair is over a limit.
    """
    from datasets import Features, List, Value

    limits = (max_source_length, max_target_length)
    versions = f"{tokenizers.__version__} {transformers.__version__}"
    made_by = f"{tokenizer_hash(tokenizer)} {type(tokenizer).__name__} {versions}"
    identity = {"tokenizer": made_by, "limits": limits}

    processes = None
    if num_proc is not None and num_proc > 1:
        # Not more processes than pairs.
        processes = min(num_proc, len(text.dataset))

    text_file = Path(text.dataset.cache_files[0]["filename"])
    with _only_process(text_file.parent):
        dataset = text.dataset.map(
            partial(tokenize_batch, tokenizer=tokenizer, limits=limits),
            batched=True,
            remove_columns=["source", "target"],
            # Every process keeps a note of each of these batches.
            writer_batch_size=_CHUNK,
            features=Features({"input_ids": List(Value("int32")), "labels": List(Value("int32"))}),
            num_proc=processes,
            new_fingerprint=_fingerprint(identity),
            load_from_cache_file=True,
            desc=f"Tokenising {text.name}",
        )

    if not len(dataset):
        raise UserError(f"All pairs of {text.name} are longer than {max_source_length} or {max_target_length} tokens.")
    return dataset


class Sentences:
    """Sentences of corpora, all sources and then all targets, read from the Arrow files in every pass.

    There are at most `most` of them, those of pairs that are drawn at random by the seed.
    """

    def __init__(self, texts: Sequence[TextCorpus], most: int | None = None, seed: int = 0) -> None:
        from datasets import concatenate_datasets

        pairs = concatenate_datasets([text.dataset for text in texts])
        if most is not None and most < 2 * len(pairs):
            generator = np.random.default_rng(seed)
            drawn = generator.choice(len(pairs), most // 2, replace=False)
            # In the order of the files, which is much faster to read.
            pairs = pairs.select(np.sort(drawn))
        self._pairs = pairs

    def __iter__(self) -> Iterator[str]:
        for side in ("source", "target"):
            for batch in self._pairs.select_columns(side).iter(_CHUNK):
                yield from batch[side]


def _stamp(path: Path) -> tuple[str, int, int, int, int]:
    status = path.stat()
    return (
        str(path.resolve()),
        status.st_size,
        status.st_mtime_ns,
        # These two also change when another file of the same size and time takes its place.
        status.st_ctime_ns,
        status.st_ino,
    )


def _fingerprint(identity: Mapping[str, Any]) -> str:
    text = json.dumps([_VERSION, identity], sort_keys=True)
    digest = hashlib.sha256(text.encode())
    return digest.hexdigest()[:32]


def _only_process(folder: Path) -> FileLock:
    """Return a lock that lets in one process at a time of all that share the file system."""
    # A barrier would time out: the others may wait long.
    folder.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(f"{folder}.lock")


def _cached(identity: Mapping[str, Any], pairs: Callable[[], Iterable[RawPair]], name: str) -> TextCorpus:
    """Return a corpus from the cache. If it is not in it, read its pairs and write them first.

    Args:
        identity: what the pairs follow from. Another one has another folder.
        pairs: returns all pairs.
        name: what error messages call the corpus.
    """
    from datasets import Dataset, config

    cache = Path(config.HF_DATASETS_CACHE, "hf_capsule_mt")
    folder = cache / _fingerprint(identity)
    with _only_process(folder):
        if not folder.is_dir():
            with new_folder(folder) as new:
                _write(new, pairs(), name)

    dataset = Dataset.from_file(str(folder / _TEXT))
    facts = read_json(folder / _FACTS)
    report = ReadReport(**facts["report"])
    return TextCorpus(dataset, report, facts["sha256"], name)


def _write(folder: Path, pairs: Iterable[RawPair], name: str) -> None:
    import pyarrow as pa

    report = ReadReport()
    source_digest = hashlib.sha256()
    target_digest = hashlib.sha256()
    schema = pa.schema({"source": pa.string(), "target": pa.string()})
    kept = useful_pairs(pairs, report)

    # Ten times as fast as `Dataset.from_generator`, which encodes row by row.
    with pa.OSFile(str(folder / _TEXT), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        while chunk := list(islice(kept, _CHUNK)):
            sources, targets = zip(*chunk)
            source_digest.update(text_bytes(sources))
            target_digest.update(text_bytes(targets))
            columns = [pa.array(sources, pa.string()), pa.array(targets, pa.string())]
            writer.write_batch(pa.record_batch(columns, schema=schema))

    if not report.kept:
        raise UserError(f"{name} holds no usable pair: {report}.")
    hashes = {"source": source_digest.hexdigest(), "target": target_digest.hexdigest()}
    write_json(folder / _FACTS, {"report": report, "sha256": hashes})
