"""XLIFF 1.2 and 2: units without a target get one, which is marked for review. Codes in a text come back in it."""

import re
from collections.abc import Sequence

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.tags.markup import Item, Run

from .accelerators import Accelerators
from .base import Document, FileFormat, Reason, Text
from .messages import Message, PlacedMessages
from .placeholders import has_words
from .xml_elements import Element, first_element_is, read_elements

_CODES = ("ph", "bpt", "ept", "it")
"""Elements whose contents are codes of another format."""
_STATE = re.compile(r"""\s(?:state|state-qualifier|subState)\s*=\s*(?:"[^"]*"|'[^']*')""")
"""The state of a translation, and what says more of it. With another state that would not be true."""
_FINAL = ("final", "signed-off", "reviewed")
"""States of translations that somebody has approved, of both versions."""
_UNTRANSLATED = ("new", "needs-translation", "initial")
"""States of targets that nobody has translated. Many programs copy the source into them."""
_TAG = re.compile(r"<[^<>]*>")
_CODE = re.compile(r"<(?:[\w.-]+:)?(x|ph|it|bpt|ept)[\s/>]")
_LAYOUT = re.compile(r"""(?:ctype|subType)\s*=\s*["'](?:\w+:)?[lp]b["']|equiv-text\s*=\s*["']&lt;""")
"""Says that a code is a line break, or a tag of another format."""
_BEHIND_SENTENCE = ".!?…。！？"

_OLD = ("trans-unit", "file", "target-language")
_NEW = ("segment", "xliff", "trgLang")
"""What has a source and a target, what names the language of the targets, and in which attribute, in both versions."""


class Xliff(FileFormat):
    """XLIFF of version 1.2 or 2."""

    name = "xliff"
    title = "XLIFF"
    suffixes = (".xlf", ".xliff")
    has_fuzzy = True

    def __init__(self, fuzzy: bool = False) -> None:
        """Read units without a target, and with `fuzzy` also those whose target is new or needs work."""
        self._fuzzy = fuzzy

    def is_begun_by(self, beginning: str) -> bool:
        """Return whether the first element is that of XLIFF."""
        return first_element_is("xliff", beginning)

    def with_fuzzy(self) -> "Xliff":
        """Return the format that also translates targets again that are new or need work or a review."""
        return Xliff(fuzzy=True)

    def read(self, data: bytes, target_lang: str | None = None) -> Document:
        """Read a file."""
        elements = read_elements(data)
        if elements[0].local_name != "xliff":
            raise UserError("The first element is not <xliff>.")
        document = PlacedMessages(data)
        _add_targets(document, elements, target_lang, self._fuzzy)
        return document


def _add_targets(document: PlacedMessages, elements: Sequence[Element], target_lang: str | None, fuzzy: bool) -> None:
    """Add the targets that a file gets, and what names their language."""
    is_old = elements[0].attributes.get("version", "1.2").startswith("1")
    unit, root, language = _NEW
    if is_old:
        unit, root, language = _OLD
    attribute = f' {language}="{target_lang}"'

    labels = [element.inner for element in elements if element.local_name == "source"]
    accelerators = Accelerators(labels, is_xml=True)
    for element in elements:
        if element.local_name == unit and not _is_open(element, is_old, fuzzy):
            _take_accelerator(accelerators, element)

    unit_end = 0
    for element in elements:
        # What stands in a unit is part of its message. Units in units would be written one over the other.
        if element.start < unit_end:
            continue
        if element.local_name == unit:
            unit_end = element.end

        if element.local_name == root and target_lang and language not in element.attributes:
            # An empty element ends with "/>".
            ending = element.first_tag[len(element.first_tag.rstrip("/>")) :]
            end = element.inner_start - len(ending)
            document.add(end, end, Message(""), lambda _: attribute)
        elif element.local_name == unit and _is_open(element, is_old, fuzzy):
            _add_target(document, element, is_old, accelerators)
        elif element.local_name == unit:
            reason = _reason_to_stay(element, is_old)
            if reason is not None:
                document.keep(reason, element.start, element.child("source").inner)


def _take_accelerator(accelerators: Accelerators, unit: Element) -> None:
    """Take the letter of a unit that stays."""
    source = unit.child("source")
    target = unit.child("target")
    if source is not None and target is not None:
        accelerators.take(source.inner, target.inner)


def _add_target(document: PlacedMessages, unit: Element, is_old: bool, accelerators: Accelerators) -> None:
    """Add the target of a unit, in the place of an empty one if there is one."""
    source = unit.child("source")
    target = unit.child("target")
    prefix = source.name.removesuffix("source")
    name = f"{prefix}target"

    if target is None:
        # Before it stand the source, and the same source in segments.
        start = end = (unit.child("seg-source") or source).end
        # It is on a line of its own if its source is.
        indent = unit.data[unit.inner_start : source.start].decode()
        space = indent[len(indent.rstrip()) :]
        tag = f"<{name}>"
    else:
        start = target.start
        end = target.end
        space = ""
        tag = target.first_tag.replace("/>", ">")

    before = ""
    if is_old:
        tag = _with_state(tag, "needs-review-translation")
    else:
        before = _with_state(unit.first_tag, "translated") + unit.data[unit.inner_start : start].decode()
        start = unit.start

    def written(translation: str) -> str:
        return f"{before}{space}{tag}{translation}</{name}>"

    codes = [f"{prefix}{code}".lower() for code in _CODES]
    message = Message(source.inner, tags=True, lines=False, ignored_tags=codes, accelerators=accelerators)
    message.texts = list(map(_with_placeholders, message.texts))
    document.add(start, end, message, written, *_names(unit, is_old))


def _with_placeholders(text: Text) -> Text:
    """Return a text in which the model reads `{1}`, `{2}` and so on for codes that stand where words do."""
    runs = []
    number = 1
    for run in text.markup:
        written: list[str] = []
        items: list[Item] = []
        length = 0
        place = 0

        for item in run.items:
            between = run.text[place : item.at]
            words = run.text[item.at : item.end]
            kind = _kind(run, item)

            if kind == "kept" and not words:
                while f"{{{number}}}" in text.text:
                    number += 1
                words = f"{{{number}}}"
                number += 1
            elif kind == "point":
                words = ""

            start = length + len(between)
            length = start + len(words)
            written += [between, words]
            items.append(item._replace(kind=kind, at=start, end=length))
            place = item.end

        runs.append(run._replace(text="".join([*written, run.text[place:]]), items=items))
    return text._replace(markup=runs)


def _kind(run: Run, item: Item) -> str:
    """Return the kind of an item of a run. A code is "kept" where it stands for a word, and else a "point"."""
    code = _CODE.match(item.raw)
    if code is None or item.kind not in ("point", "kept"):
        return item.kind

    content = run.text[item.at : item.end]
    is_tag = code[1] in ("it", "bpt", "ept") or _LAYOUT.search(item.raw) is not None
    if content and not content.startswith("<") and not is_tag:
        return "kept"

    before = run.text[max(item.at - 1, 0) : item.at]
    behind = run.text[item.end : item.end + 1]
    # In front of a word or behind it stands the begin or end of a link, and behind a sentence a line break.
    is_joined = before.isalnum() or behind.isalnum() or (before and before in _BEHIND_SENTENCE)
    return "point" if is_tag or is_joined else "kept"


def _names(unit: Element, is_old: bool) -> tuple[str, str | None]:
    """Return the name of a unit, or of a segment in it, and that of the file that it is of."""
    names = []
    if not is_old:
        names.append(unit.parent.attributes.get("id"))
    names.append(unit.attributes.get("id"))

    file = unit.parent
    while file is not None and file.local_name != "file":
        file = file.parent
    of_file = None
    if file is not None:
        of_file = file.attributes.get("original") or file.attributes.get("id")
    return "/".join(filter(None, names)), of_file


def _with_state(tag: str, state: str) -> str:
    """Return a first tag with another state, without what says more of the old one."""
    without_state = _STATE.sub("", tag).removesuffix(">").rstrip()
    return f'{without_state} state="{state}">'


def _is_open(unit: Element, is_old: bool, fuzzy: bool) -> bool:
    """Return whether a unit is translated. Nobody has approved it, and it has no target or one that may be replaced."""
    source = unit.child("source")
    target = unit.child("target")
    if source is None or unit.stays or unit.attributes.get("approved") == "yes":
        return False

    state = _state(unit, is_old)
    if state in _FINAL:
        return False

    has_target = target is not None and bool(target.inner.strip())
    if has_target and not _may_be_replaced(source, target, state, fuzzy):
        return False
    return has_words(_TAG.sub("", source.inner))


def _reason_to_stay(unit: Element, is_old: bool) -> Reason | None:
    """Return why a unit that is not open stays. None if it has no words, or a translation that is no draft."""
    source = unit.child("source")
    target = unit.child("target")
    if source is None or not has_words(_TAG.sub("", source.inner)):
        return None
    if unit.stays:
        return Reason.TO_STAY
    if target is None or not target.inner.strip():
        return Reason.APPROVED

    state = _state(unit, is_old)
    is_draft = state in _UNTRANSLATED or state.startswith("needs-")
    if is_draft and unit.attributes.get("approved") != "yes":
        return Reason.FUZZY
    return None


def _state(unit: Element, is_old: bool) -> str:
    """Return the state of the translation of a unit, or nothing. In version 1.2 its target has it."""
    target = unit.child("target")
    if not is_old:
        return unit.attributes.get("state", "")
    if target is None:
        return ""
    return target.attributes.get("state", "")


def _may_be_replaced(source: Element, target: Element, state: str, fuzzy: bool) -> bool:
    """Return whether no work is lost with a target, or the user wants a new one for one that needs work."""
    if fuzzy:
        return state in _UNTRANSLATED or state.startswith("needs-")
    return state in _UNTRANSLATED and target.inner.strip() == source.inner.strip()
