"""Pages show the words with their shares, and no text becomes a tag."""

import re
from html.parser import HTMLParser

import pytest
import torch

from hf_capsule_mt.analysis.figures import DARKEST
from hf_capsule_mt.analysis.pages import Section, report_page, sentences_page
from hf_capsule_mt.analysis.sentence import SentenceRouting

EVIL = "<script>alert('&')</script>"


class Reader(HTMLParser):
    """Tags, and the text and attributes of spans."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.spans = [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "span":
            self.spans.append(dict(attributes))

    def handle_data(self, data):
        if self.tags[-1:] == ["span"] and "text" not in self.spans[-1]:
            self.spans[-1]["text"] = data


def routing(**fields):
    return SentenceRouting((EVIL, "</s>"), ("x", "</s>"), EVIL, **fields)


def test_sentence_capsules():
    shares = torch.tensor([[[0.5, 0.5], [0.5, 0.5]], [[0.25, 0.75], [1.0, 0.0]]])
    reader = Reader(sentences_page(EVIL, {EVIL: routing(sentence=shares)}))
    assert "script" not in reader.tags
    found = [(span["text"], span["title"]) for span in reader.spans]
    assert found == [(EVIL, "0.25"), ("</s>", "1.00"), (EVIL, "0.75"), ("</s>", "0.00")]
    opacities = [float(re.search(r"/ ([\d.]+)\)", span["style"])[1]) for span in reader.spans]
    assert opacities == pytest.approx([DARKEST * share for share in (0.25, 1.0, 0.75, 0.0)], abs=1e-3)
    assert [span["style"].split(" / ")[0] for span in reader.spans] == ["background: rgb(0 114 178"] * 2 + [
        "background: rgb(213 94 0"
    ] * 2


def test_past_and_future():
    guided = torch.tensor([[[[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]]], [[[0.0, 1.0, 0.0, 0.0], [0.25] * 4]]])
    page = sentences_page("", {"line 1": routing(guided=guided, num_past=1, num_future=2)})
    shares = [span["title"] for span in Reader(page).spans]
    # PAST and FUTURE while the first target word is written, then while the second is.
    assert shares == ["0.10", "0.40", "0.50", "0.50", "0.00", "0.25", "1.00", "0.50"]


def test_it_needs_no_other_file():
    page = sentences_page("", {"line 1": routing(sentence=torch.ones(1, 2, 1))})
    assert not set(Reader(page).tags) & {"link", "img", "script"}


def test_report():
    table = [["name", EVIL], ["a", "1"]]
    full = Section(EVIL, EVIL, [table], figures=[("figures/one", EVIL)], links=[("routing.json", EVIL)])
    page = report_page(EVIL, EVIL, [full, Section("bare")])
    assert "script" not in Reader(page).tags
    assert 'href="routing.json"' in page
    assert 'src="figures/one.png"' in page
    assert 'href="figures/one.svg"' in page
    assert "<td>a</td><td>1</td>" in page
