"""The look for codes of languages in a corpus, before a model that must be told which language to write reads it."""

from collections.abc import Callable, Iterable, Iterator

from hf_capsule_mt.translation.language_codes import LanguageCodes


def each_checked(
    codes: LanguageCodes, sources: Iterable[str], where: str, warn: Callable[[str], object]
) -> Iterator[str]:
    """Yield sources as they are, and `warn` of the first that begins with no code, if the tokenizer has some.

    Args:
        codes: of the tokenizer.
        sources: of a corpus.
        where: names the corpus in messages.
        warn: is called once at most.

    Raises:
        ValueError: if a source begins with a code that the tokenizer lacks.
    """
    if not codes:
        yield from sources
        return
    told = False
    for number, source in enumerate(sources, 1):
        try:
            code = codes.at_head(source)
        except ValueError as error:
            raise ValueError(f"{where}, source {number}: {error}; correct or remove it") from None
        if not (told or code) and source.strip():
            told = True
            warn(f"{where}, source {number}, {source!r:.60}: {codes.missing()}")
        yield source
