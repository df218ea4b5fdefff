"""Tags and what is kept, in `pipeline("translation")`: by the attention of each family, batched or not."""

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import tiny_multilingual
import torch
from attention_of_model import cross_attention
from test_markup import PAGE
from tiny_marian import marian_tokenizer, save_tiny_marian, tiny_model, tiny_tokenizer
from transformers import AutoModelForSeq2SeqLM, MarianConfig, MarianMTModel, pipeline

from hf_capsule_mt import preset_config
from hf_capsule_mt.data.languages import TOKENIZING
from hf_capsule_mt.translation.alignment.words import source_spans, target_spans, word_weights
from hf_capsule_mt.translation.tags.placement import Node
from hf_capsule_mt.translation.tags.writer import SentenceWriter

TAGGED = "a <b>c d</b> e<x/> &amp; <i>f</i>"


def tags_of(text):
    return sorted(re.findall("<[^>]*>", text))


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    return pipeline("translation", model=str(save_tiny_marian(tmp_path_factory.mktemp("marian"))), device="cpu")


def test_words_are_those_of_the_translation_without_tags(translator):
    [found] = translator(TAGGED, tags=True)
    [plain] = translator("a c d e & f")
    assert tags_of(found["translation_text"]) == tags_of(TAGGED)
    assert re.sub("<[^>]*>", "", found["translation_text"]) == plain["translation_text"]


def test_batches_and_several_translations(translator):
    texts = [TAGGED, "g", "<p>h <b>i</b> j</p><p>k l {m} n", "<b>o p</b>"]
    options = {"tags": True, "keep": r"\{\w\}"}
    one_by_one = [translator(text, **options)[0] for text in texts]
    assert translator(texts, **options, batch_size=3) == one_by_one
    assert [tags_of(found["translation_text"]) for found in one_by_one] == [tags_of(text) for text in texts]
    assert "{m}" in one_by_one[2]["translation_text"]
    several = translator(TAGGED, tags=True, num_beams=3, num_return_sequences=2)
    plain = translator("a c d e & f", num_beams=3, num_return_sequences=2)
    assert [re.sub("<[^>]*>", "", found["translation_text"]) for found in several] == [
        found["translation_text"] for found in plain
    ]


def test_threads(translator):
    """The kind of attention is the model's, so that one thread changes it for all."""
    texts = [f"a <b>{word}</b> c" for word in "abcdefgh" * 4]
    expected = [translator(text, tags=True) for text in texts]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda text: translator(text, tags=True), texts)) == expected


@pytest.mark.parametrize("kind", ["marian", "gdr"])
def test_alignment_leaves_the_passes_of_others_alone(kind):
    """Another thread may be anywhere in one: its mask is made for the attention that the model had then."""
    model = (
        tiny_model().eval()
        if kind == "marian"
        else AutoModelForSeq2SeqLM.from_config(preset_config("gdr", "tiny", vocab_size=32)).eval()
    )
    source = {"input_ids": torch.tensor([[5, 6, 7, 2], [5, 2, 0, 0]]), "attention_mask": torch.ones(2, 4).long()}
    source["attention_mask"][1, 2:] = 0
    words = model.generate(**source, max_new_tokens=4)
    kinds = []
    query = model.base_model.encoder.layers[0].self_attn.q_proj
    query.register_forward_hook(lambda *_: kinds.append(model.config._attn_implementation))
    found = cross_attention(model, words, **source)
    assert kinds == ["sdpa"]
    model.set_attn_implementation("eager")
    torch.testing.assert_close(cross_attention(model, words, **source), found)


def test_a_page_as_a_document(translator):
    for options in ({}, {"documents": "en", "batch_size": 4}):
        [found] = translator(PAGE, tags=True, **options)
        found = found["translation_text"]
        # Of the code, only what is untouched has letters that are no tags.
        assert tags_of(found) == tags_of(PAGE)
        for part in ("<pre>x  <b>\n</pre>", "<script>if (a<b) {}</script>", "<code>pip &lt;x&gt;</code>", "&foo;"):
            assert part in found


FAMILIES = {
    "gdr": {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 29, "guided_capsule_dim": 4},
    "em-routing": {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 29},
    "rnmt": {"d_model": 16, "encoder_layers": 2, "vocab_size": 29},
    "capsnmt": {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 29},
}


@pytest.mark.parametrize("method", FAMILIES)
def test_families(method):
    torch.manual_seed(0)
    model = AutoModelForSeq2SeqLM.from_config(preset_config(method, "tiny", **FAMILIES[method])).eval()
    model.generation_config.max_new_tokens = 7
    translate = partial(pipeline("translation", model=model, tokenizer=tiny_tokenizer(), device="cpu"), tags=True)
    if method == "capsnmt":
        # What needs no alignment needs no attention.
        assert tags_of(translate("<p><b>a c</b></p>")[0]["translation_text"]) == ["</b>", "</p>", "<b>", "<p>"]
        with pytest.raises(ValueError, match=r"caps_nmt model has no attention.* another family, such as rnmt"):
            translate(TAGGED)
        with pytest.raises(ValueError, match="If only addresses need it, give translate_addresses"):
            translate("a https://a.de b", documents="en")
        translate("a https://a.de b", documents="en", translate_addresses=True)
    else:
        assert tags_of(translate(TAGGED)[0]["translation_text"]) == tags_of(TAGGED)


@pytest.mark.parametrize("kind", ["mbart", "t5", "m2m100"])
def test_models_of_transformers(kind, tmp_path, engine_calls):
    model, tokenizer = getattr(tiny_multilingual, kind)(*((tmp_path,) if kind == "m2m100" else ()))
    codes = {"mbart": ("en_XX", "de_DE"), "m2m100": ("en", "de")}.get(kind)
    languages = dict(zip(("src_lang", "tgt_lang"), codes)) if codes else {}
    found = pipeline("translation", model=model, tokenizer=tokenizer, device="cpu")(
        "the <b>old</b> house", tags=True, max_new_tokens=9, **languages
    )
    assert tags_of(found[0]["translation_text"]) == ["</b>", "<b>"]
    assert engine_calls


@pytest.mark.parametrize("separate_vocabs", [False, True])
def test_places_of_tokens(tmp_path, separate_vocabs):
    tokenizer, text = marian_tokenizer(tmp_path, separate_vocabs), "the old  house, is green"
    ids = tokenizer(text)["input_ids"]
    spans = source_spans(tokenizer, text, ids)
    assert len(spans) == len(ids)
    assert spans[-1] is None
    covered = {place for span in spans if span for place in range(*span)}
    assert covered == {place for place, character in enumerate(text) if not character.isspace()}
    tiny = tiny_tokenizer()
    assert source_spans(tiny, "a  bc d", tiny("a  bc d")["input_ids"]) == [(0, 1), (3, 5), (6, 7), None]
    decode = partial(tiny.batch_decode, skip_special_tokens=True)
    assert target_spans([3, 2, 4, 0], decode) == [(0, 1), None, (2, 3), None]
    assert target_spans([], decode) == []


class WithoutOffsets:
    """A tokenizer that only says which pieces a text has."""

    is_fast = False

    def __init__(self, *pieces):
        self.pieces = pieces

    def __call__(self, text, **options):
        return {"input_ids": [*range(len(self.pieces))]}

    def tokenize(self, text):
        return self.pieces


@pytest.mark.parametrize(
    ("text", "pieces", "spans"),
    [
        ("abb  b", ["▁a", "b", "b", "▁b"], [(0, 1), (1, 2), (2, 3), (5, 6)]),
        ("ab a", ["▁", "ab", "▁a"], [None, (0, 2), (3, 4)]),
        # A character that is written in another way has the place of its first piece.
        ("x½ a", ["▁x", "1", "⁄", "2", "▁a"], [(0, 1), (1, 2), None, None, (3, 4)]),
        # What stands far away is another word.
        ("½ " + "b " * 12 + "1", ["1", "▁b"], [(0, 1), (2, 3)]),
    ],
)
def test_places_of_pieces(text, pieces, spans):
    assert source_spans(WithoutOffsets(*pieces), text, range(len(pieces))) == spans


class SeenByAnotherThread(WithoutOffsets):
    """It notes whether another thread could use it while it finds pieces."""

    def tokenize(self, text):
        with ThreadPoolExecutor(1) as other:
            self.is_free = other.submit(self.is_taken).result()
        return super().tokenize(text)

    def is_taken(self):
        is_taken = TOKENIZING.acquire(blocking=False)
        if is_taken:
            TOKENIZING.release()
        return is_taken


def test_pieces_are_found_while_no_other_thread_uses_the_tokenizer():
    """A tokenizer of Marian has other pieces while another thread spells a term."""
    tokenizer = SeenByAnotherThread("▁a")
    assert source_spans(tokenizer, "a", [0]) == [(0, 1)]
    assert not tokenizer.is_free


@pytest.mark.parametrize("kind", ["mbart", "nllb"])
def test_places_of_tokens_of_a_text_that_was_cut(kind):
    """Behind a code of the language, and before one."""
    tokenizer = getattr(tiny_multilingual, kind)()[1]
    text = "a b c d e f g h"
    whole, cut = tokenizer(text)["input_ids"], tokenizer(text, truncation=True, max_length=6)["input_ids"]
    spans = source_spans(tokenizer, text, cut)
    assert len(cut) < len(whole)
    kept = next(place for place, (token, other) in enumerate(zip(whole, cut)) if token != other)
    assert spans == source_spans(tokenizer, text, whole)[:kept] + [None] * (len(cut) - kept)


def test_attention_of_words_is_as_by_hand():
    """A word's weight: the mean over its tokens, the sum over the other's, and of each of those the share."""
    attention = torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.1, 0.8], [0.0, 0.6, 0.4]])
    places = [(0, 2), (2, 3), None], [(0, 1), (1, 3), (4, 5)]
    first, second = (0.7 + 0.2) / 2, 0.6
    found = word_weights(attention, *places, [(0, 3)], [(0, 3), (4, 5)])
    assert found == [[pytest.approx(first / (first + second))], [pytest.approx(second / (first + second))]]
    # A comma follows its word without a space.
    adjacent = [(0, 2), (2, 3)]
    assert word_weights(torch.eye(2), *[adjacent] * 4) == [[1, 0], [0, 1]]
    # Words without a token, of both sides, and a word that nothing attends to.
    tokens = [(0, 1), None], [None, (2, 3)]
    words = [(0, 1), (2, 3)]
    assert word_weights(torch.tensor([[0.0, 1.0], [0.5, 0.5]]), *tokens, words, words) == [[0, 0], [1, 0]]
    assert word_weights(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), *tokens, words, words) == [[0, 0], [0, 0]]


def test_attention_is_that_of_the_step_that_writes_the_word():
    """It is the mean over the heads and the last two layers."""
    torch.manual_seed(0)
    model = MarianMTModel(MarianConfig(**{**tiny_model().config.to_dict(), "decoder_layers": 3})).eval()
    source, target = torch.tensor([[3, 4, 5, 2]]), torch.tensor([[0, 6, 7, 2]])
    attention = cross_attention(model, target, input_ids=source, attention_mask=torch.ones_like(source))
    model.set_attn_implementation("eager")
    output = model(input_ids=source, decoder_input_ids=target[:, :-1], output_attentions=True)
    layers = [weights.mean(1) for weights in output.cross_attentions]
    assert len(layers) == 3
    torch.testing.assert_close(attention, (layers[1] + layers[2]) / 2)
    assert not torch.allclose(attention, layers[2])
    assert not torch.allclose(attention, sum(layers) / 3)


def test_separate_vocabularies(tmp_path):
    tokenizer = marian_tokenizer(tmp_path, True)
    sizes = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": len(tokenizer.target_encoder)}
    fields = {**tiny_model().config.to_dict(), **sizes, "vocab_size": tokenizer.vocab_size, "pad_token_id": 2}
    torch.manual_seed(0)
    model = MarianMTModel(MarianConfig(**{**fields, "eos_token_id": 0, "decoder_start_token_id": 2})).eval()
    model.generation_config.max_new_tokens = 6
    translate = pipeline("translation", model=model, tokenizer=tokenizer, device="cpu")
    assert tags_of(translate(">>de<< the <b>old</b> house", tags=True)[0]["translation_text"]) == ["</b>", "<b>"]


def test_a_text_that_stands_twice_is_the_last_one():
    """What comes before it is a prefix, which the model reads too."""
    tokenizer = tiny_tokenizer()
    ids = tokenizer("a b a b")["input_ids"]
    assert source_spans(tokenizer, "a b", ids) == [None, None, (0, 1), (2, 3), None]


def test_a_letter_belongs_to_the_token_that_completes_it():
    """The first of its tokens is shown as a replacement character, which is in no text."""
    texts = {1: "\ufffd", 2: "ő", 3: "őa"}
    assert target_spans([7, 8, 9], lambda beginnings: [texts[len(ids)] for ids in beginnings]) == [None, (0, 1), (1, 2)]


def test_a_kept_part_replaces_no_words_of_others():
    """Three words belong to it, and the second one does not. Only the two that stand together are replaced."""
    weights = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]
    words = [(0, 1), (2, 3), (4, 5), (6, 7)]
    root = Node(last=2, children=[Node("{x}", last=1, is_kept=True)])
    assert SentenceWriter("p q r s", words, weights, {0: []}).write(root) == "p q {x}"


@pytest.mark.parametrize(
    ("owners", "element", "kept"),
    [
        # The first word alone has as large a gain as all three.
        ((0, 1, 0, 1), "<b>p q r</b> s", "{x} q r s"),
        # The last two words have as large a gain as all four.
        ((0, 1, 0, 0), "<b>p q r s</b>", "p q {x}"),
        # Apart, two words have the same gain, and together none.
        ((0, 1, 1, 0), "<b>p</b> q r s", "{x} q r s"),
        # Two words together gain more than the first one, and the words between are a loss.
        ((0, 1, 1, 1, 0, 0), "p q r s <b>t u</b>", "p q r s {x}"),
    ],
)
def test_of_equal_ranges_an_element_gets_the_longest_and_a_kept_part_the_shortest(owners, element, kept):
    translation = "p q r s t u"[: 2 * len(owners) - 1]
    words = [(2 * number, 2 * number + 1) for number in range(len(owners))]
    weights = [[float(owner == word) for word in range(2)] for owner in owners]
    around = Node(last=2, children=[Node("<b>", "</b>", last=1)])
    assert SentenceWriter(translation, words, weights, {}).write(around) == element
    instead = Node(last=2, children=[Node("{x}", last=1, is_kept=True)])
    assert SentenceWriter(translation, words, weights, {0: []}).write(instead) == kept
