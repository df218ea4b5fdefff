"""Where the text of a subtitle is broken into lines, as guides for subtitles ask.

A line ends best with a sentence, then with a comma or another mark between clauses. Otherwise the lines are about
equally long.
"""

import re
from collections.abc import Sequence

from .base import cut_in_proportion, words_of

_MARKUP = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")
"""Tags of subtitles, which are not shown."""
_QUOTES = r"['\"”’»)\]」』）]*$"
_SENTENCE_END = re.compile(rf"[.?!…。？！♪]{_QUOTES}")
_CLAUSE_END = re.compile(rf"[,;:–—،؛、，；：]{_QUOTES}")
_NO_END = re.compile(r"^\W*(?:\w|Mrs?|Ms|Dr|Prof|St|Hr|Fr|Sra?|Mme|Mlle|bzw|vs)\.$")
"""Words whose full stop ends no sentence: initials and titles, between which and a name no line ends."""
_CANNOT_BEGIN = re.compile(r"[.?!…,;:»)\]。？！、，；：」』）%]")
"""Stands in front of no line, although in French and Japanese it can follow a space or be a unit of its own."""
_LINE = 42
"""Characters that a line may have in most guides for subtitles, such as that of Netflix."""
_UNSPACED_LINE = 16
"""The same for Chinese, Japanese and Korean."""
_MOST_LINES = 6
"""Lines of a subtitle. A text of more is none, and each of its lines would be looked for in the whole text."""


def shown_length(text: str) -> int:
    """Return the number of characters of a text that viewers see, with spaces."""
    return len(_MARKUP.sub("", text))


def broken_into_lines(text: str, source_lengths: Sequence[int]) -> list[str]:
    """Break the text of a subtitle into lines.

    Args:
        text: the text, which may have tags.
        source_lengths: the lengths of the lines of the source, in characters. The text gets as many lines, or fewer if
            it has not as many words. No mark makes a line longer than the longest of them and than guides allow.

    Returns:
        The lines.
    """
    if len(source_lengths) > _MOST_LINES:
        return cut_in_proportion(text, source_lengths)

    words, joint = words_of(text)
    longest = _UNSPACED_LINE
    if joint:
        longest = max(_LINE, *source_lengths)

    lines = []
    for lines_left in range(len(source_lengths), 1, -1):
        if len(words) < 2:
            break
        end = _end_of_line(words, joint, lines_left, longest)
        lines.append(joint.join(words[:end]))
        words = words[end:]
    lines.append(joint.join(words))
    return lines


def _end_of_line(words: Sequence[str], joint: str, lines_left: int, longest: int) -> int:
    """Return the number of words of the next line, so that each line behind it gets one, while there are enough."""
    lengths = []
    length = 0
    for word in words:
        length += shown_length(word)
        lengths.append(length)
        length += len(joint)

    total = lengths[-1]
    ends = range(1, max(2, len(words) - lines_left + 2))
    ends = [end for end in ends if _can_end(words, end)] or ends

    def distance(end: int) -> float:
        return abs(lengths[end - 1] - total / lines_left)

    for mark in (_SENTENCE_END, _CLAUSE_END):
        best = [
            end
            for end in ends
            if _is_end(words[end - 1], mark)
            and lengths[end - 1] <= longest
            and total - lengths[end - 1] <= longest * (lines_left - 1) + len(joint)
        ]
        if best:
            return min(best, key=distance)
    return min(ends, key=distance)


def _can_end(words: Sequence[str], end: int) -> bool:
    """Return whether a line may end between two words."""
    return not _CANNOT_BEGIN.match(words[end]) and not _NO_END.match(words[end - 1])


def _is_end(word: str, mark: re.Pattern) -> bool:
    """Return whether a word ends with a mark, in front of the tags that end there."""
    return mark.search(_MARKUP.sub("", word)) is not None
