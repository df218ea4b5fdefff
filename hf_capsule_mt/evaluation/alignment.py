"""Alignment of target words with source words: by eflomal (Östling and Tiedemann 2016), or by a model's attention.

eflomal learns from the sentences that it aligns, so the more there are, the better.
"""

from collections.abc import Container, Hashable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.encoding import encode_lines, source_limit, special_ids
from hf_capsule_mt.translation.attention import attended_positions, attending, cross_attentions_of, teacher_force
from hf_capsule_mt.translation.translator import evaluating


@dataclass(frozen=True)
class Alignment:
    """A sentence and a translation of it. The same form in the target is the same word.

    A link (i, j) says that target word j translates source word i. A target word has one source word at most.
    """

    source_words: int
    target: tuple[Hashable, ...]
    links: tuple[tuple[int, int], ...]


def has_eflomal() -> bool:
    """Return whether eflomal is installed."""
    return find_spec("eflomal") is not None


def align_words(
    sources: Sequence[Sequence[str]],
    streams: Sequence[Sequence[Sequence[str]]],
    *,
    more_sources: Sequence[Sequence[str]] = (),
    more_targets: Sequence[Sequence[str]] = (),
) -> list[list[Alignment]]:
    """Align several streams of translations with their sources, all at once, so that one model aligns them all.

    It is eflomal's HMM, in the direction in which every target word picks its source word or none. Words are compared
    in lower case. eflomal takes its random numbers from the system, so two runs differ a little. It also learns from
    `more_sources` and `more_targets`, such as the training data.

    A sentence is a list of words, and a stream has a translation of each, by a system or as reference. Each stream gets
    the alignment of every sentence. A sentence of 1,024 words or more, or none, has no links.

    Raises:
        ValueError: if streams differ in length.
    """
    left = [_join(words) for words in sources]
    right = [[_join(words) for words in stream] for stream in streams]
    more = zip(map(_join, more_sources), map(_join, more_targets), strict=True)
    # Each pair once: whoever wrote a translation, it has the same alignment.
    pairs = list(dict.fromkeys([*(pair for stream in right for pair in zip(left, stream, strict=True)), *more]))
    links = dict(zip(pairs, _run_eflomal(pairs), strict=True))
    return [
        [
            Alignment(len(source.split()), tuple(target.split()), links[source, target])
            for source, target in zip(left, stream)
        ]
        for stream in right
    ]


def _join(words: Sequence[str]) -> str:
    return " ".join(words).lower()


def _run_eflomal(pairs: Sequence[tuple[str, str]]) -> list[tuple[tuple[int, int], ...]]:
    from eflomal import Aligner

    sources, targets = zip(*pairs)
    # IBM model 1 and HMM. The third model expects each word to be translated as often as usual, and hides repetitions.
    aligner = Aligner(model=2)
    with TemporaryDirectory() as folder:
        links_file = Path(folder, "links")
        aligner.align(sources, targets, links_filename_fwd=str(links_file))
        lines = links_file.read_text().splitlines()
    return [tuple(tuple(map(int, link.split("-"))) for link in line.split()) for line in lines]


def align_by_attention(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    streams: Sequence[Sequence[str]],
    *,
    max_tokens_per_batch: int = 4096,
) -> list[list[Alignment]]:
    """Let a model write several streams of translations, and link every token with the source token it attends to most.

    Attention is that of the step that writes the token, of the layer of [`attended_positions`]. A token that attends
    most to a special token, such as the end of the source, has no link. Words are the tokens of the model.

    Streams are as in [`align_words`], of texts. A text is cut to the model's limit, with a warning. One without a word
    has no links. A batch has `max_tokens_per_batch` source and target tokens together, padding included.

    Raises:
        ValueError: if the model has no cross-attention, or a sentence exceeds `max_tokens_per_batch`.
    """
    limit = source_limit(model.config, tokenizer)
    left = encode_lines(tokenizer, sources, limit)
    right = [encode_lines(tokenizer, stream, limit, side="text_target") for stream in streams]
    pairs = [pair for targets in right for pair in zip(left, targets, strict=True)]
    special = special_ids(tokenizer)
    aligned = [_alignment(source, target, (), special) for source, target in pairs]
    lengths = [len(source) + len(target) if source and target else 0 for source, target in pairs]
    numbers = [*range(1, len(left) + 1)] * len(right)
    with evaluating(model):
        reader = attending(model)
        for batch in tqdm(batch_by_tokens(lengths, max_tokens_per_batch, numbers), unit=" batches", desc="aligning"):
            forced = teacher_force(reader, *zip(*(pairs[index] for index in batch)), output_attentions=True)
            attended = attended_positions(cross_attentions_of(model, forced.output), forced.source_mask)
            for index, positions in zip(batch, attended.tolist()):
                aligned[index] = _alignment(*pairs[index], positions, special)
    return [aligned[start : start + len(left)] for start in range(0, len(pairs), len(left))]


def _alignment(
    source: Sequence[int], target: Sequence[int], attended: Sequence[int], special: Container[int]
) -> Alignment:
    """Align the tokens that are not special. `attended` has a source position for each target position."""
    words = [position for position, token in enumerate(source) if token not in special]
    places = {position: index for index, position in enumerate(words)}
    kept = [position for position, token in enumerate(target) if token not in special]
    links = ((places.get(attended[position]), index) for index, position in enumerate(kept) if attended)
    return Alignment(
        source_words=len(words),
        target=tuple(target[position] for position in kept),
        links=tuple(link for link in links if link[0] is not None),
    )
