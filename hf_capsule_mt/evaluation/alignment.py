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
from hf_capsule_mt.translation.alignment.forced import alignment_heads, attending, cross_attentions_of, teacher_force
from hf_capsule_mt.translation.alignment.words import attended_positions
from hf_capsule_mt.translation.generation.decoder import evaluating


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
    in lower case. eflomal takes its random numbers from the system, so two runs differ a little.

    Args:
        sources: the words of each sentence.
        streams: for each system or reference, the words of its translation of each sentence.
        more_sources: sentences that eflomal also learns from, such as those of the training data.
        more_targets: their translations.

    Returns:
        For each stream the alignment of every sentence. A sentence of 1,024 words or more, or none, has no links.

    Raises:
        ValueError: if streams differ in length.
    """
    joined_sources = _join(sources)
    joined_streams = [_join(stream) for stream in streams]
    pairs = []
    for stream in joined_streams:
        pairs += zip(joined_sources, stream, strict=True)
    pairs += zip(_join(more_sources), _join(more_targets), strict=True)

    # Each pair once: whoever wrote a translation, it has the same alignment.
    pairs = list(dict.fromkeys(pairs))
    links_of_pairs = _run_eflomal(pairs)
    links = dict(zip(pairs, links_of_pairs, strict=True))

    alignments = []
    for stream in joined_streams:
        stream_alignments = []
        for source, target in zip(joined_sources, stream):
            source_words = len(source.split())
            target_words = tuple(target.split())
            stream_alignments.append(Alignment(source_words, target_words, links[source, target]))
        alignments.append(stream_alignments)
    return alignments


def _join(sentences: Sequence[Sequence[str]]) -> list[str]:
    """Return each sentence, which is given by its words, as text in lower case."""
    return [" ".join(words).lower() for words in sentences]


def _run_eflomal(pairs: Sequence[tuple[str, str]]) -> list[tuple[tuple[int, int], ...]]:
    from eflomal import Aligner

    # IBM model 1 and HMM. The third model expects each word to be translated as often as usual, and hides repetitions.
    aligner = Aligner(model=2)
    sources, targets = zip(*pairs)
    with TemporaryDirectory() as folder:
        links_file = Path(folder, "links")
        aligner.align(sources, targets, links_filename_fwd=str(links_file))
        lines = links_file.read_text().splitlines()
    return [_read_links(line) for line in lines]


def _read_links(line: str) -> tuple[tuple[int, int], ...]:
    """Read a line such as "0-0 2-1": source word 0 is translated by target word 0, and 2 by 1."""
    links = []
    for link in line.split():
        source, target = link.split("-")
        links.append((int(source), int(target)))
    return tuple(links)


def align_by_attention(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    streams: Sequence[Sequence[str]],
    *,
    max_tokens_per_batch: int = 4096,
) -> list[list[Alignment]]:
    """Let a model write several streams of translations, and link every token with the source token it attends to most.

    Attention is that of the step that writes the token, of the layers of [`attended_positions`]. A token that attends
    most to a special token, such as the end of the source, has no link. Words are the tokens of the model.

    Args:
        model: an encoder-decoder with cross-attention. It is in evaluation mode while this runs.
        tokenizer: the model's.
        sources: a text each. One that is too long for the model is cut, with a warning.
        streams: for each system or reference, its translation of each source.
        max_tokens_per_batch: source and target tokens of a batch together, padding included.

    Returns:
        For each stream the alignment of every sentence. One without a word on either side has no links.

    Raises:
        UserError: if the model has no cross-attention, or a sentence exceeds `max_tokens_per_batch`.
    """
    limit = source_limit(model.config, tokenizer)
    encoded_sources = encode_lines(tokenizer, sources, limit)
    pairs = []
    for stream in streams:
        encoded_targets = encode_lines(tokenizer, stream, limit, side="text_target")
        pairs += zip(encoded_sources, encoded_targets, strict=True)

    lengths = [_pair_length(source, target) for source, target in pairs]
    stream_numbers = range(1, len(sources) + 1)
    line_numbers = [*stream_numbers] * len(streams)
    batches = batch_by_tokens(lengths, max_tokens_per_batch, line_numbers)

    special = special_ids(tokenizer)
    # No batch has the pairs of length 0, which stay without links.
    alignments = [_alignment(source, target, None, special) for source, target in pairs]

    with evaluating(model):
        reader = attending(model)
        for batch in tqdm(batches, unit=" batches", desc="aligning"):
            batch_sources = [pairs[index][0] for index in batch]
            batch_targets = [pairs[index][1] for index in batch]
            forced = teacher_force(reader, batch_sources, batch_targets, output_attentions=True)
            cross_attentions = cross_attentions_of(model, forced.output)
            attended = attended_positions(cross_attentions, forced.source_mask, alignment_heads(model))
            for index, positions in zip(batch, attended.tolist()):
                source, target = pairs[index]
                alignments[index] = _alignment(source, target, positions, special)

    # The pairs of one stream are next to each other.
    starts = range(0, len(pairs), len(sources))
    return [alignments[start : start + len(sources)] for start in starts]


def _pair_length(source: Sequence[int], target: Sequence[int]) -> int:
    """Return the number of tokens of both sides together, or 0 if one side has none."""
    if not source or not target:
        return 0
    return len(source) + len(target)


def _alignment(
    source: Sequence[int],
    target: Sequence[int],
    attended: Sequence[int] | None,
    special: Container[int],
) -> Alignment:
    """Align the tokens that are not special.

    Args:
        source: the token ids of the source.
        target: the token ids of the translation.
        attended: a source position for each target position, or None for an alignment without links.
        special: the ids of special tokens.
    """
    source_positions = [position for position, token in enumerate(source) if token not in special]
    target_positions = [position for position, token in enumerate(target) if token not in special]
    # A language code in front of a text moves the positions of its words.
    word_at = {position: word for word, position in enumerate(source_positions)}

    links = []
    if attended is not None:
        for target_word, position in enumerate(target_positions):
            source_word = word_at.get(attended[position])
            if source_word is not None:
                links.append((source_word, target_word))

    words = tuple(target[position] for position in target_positions)
    return Alignment(len(source_positions), words, tuple(links))
