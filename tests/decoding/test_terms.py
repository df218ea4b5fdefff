"""Search that must write terms, next to a search in plain Python that reads every hypothesis again."""

import random
from functools import partial

import pytest
import torch
from ending_models import LONGEST, ONE_OF_EACH_FAMILY, STORED, ending, sources, stored
from reference import terms as reference
from transformers import (
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    LogitsProcessorList,
    SuppressTokensAtBeginLogitsProcessor,
)

from hf_capsule_mt.decoding import ShortlistLogitsProcessor, generate
from hf_capsule_mt.decoding.engine import engine_of
from hf_capsule_mt.decoding.search.constraints import Constraints
from hf_capsule_mt.decoding.search.search import Settings
from hf_capsule_mt.decoding.search.term_automaton import State, TermAutomaton, WordBoundaries
from hf_capsule_mt.decoding.search.term_banks import Finished, SentenceBanks, TermBanks, default_bank_width
from hf_capsule_mt.errors import UserError


def words(*tokens):
    """Boundaries of a vocabulary of 12: tokens 6 to 11 continue a word, and all end with a letter but 0 and 5."""
    return WordBoundaries([token >= 6 for token in range(12)], [token not in (0, 5) for token in range(12)])


def after(automaton, tokens):
    state = State()
    for token in tokens:
        state = automaton.after(state, token)
        if state is None:
            return None
    return state


@pytest.mark.parametrize("seed", range(40))
def test_an_automaton_reads_as_the_whole_text_does(seed):
    chance = random.Random(seed)
    boundaries = words() if seed % 2 else None
    alphabet = [1, 2, 3, 6, 7, 5] if seed % 3 else [1, 2]
    terms = []
    for _ in range(chance.randint(1, 4)):
        forms = [tuple(chance.choices(alphabet, k=chance.randint(1, 3))) for _ in range(chance.randint(1, 4))]
        terms.append(list(dict.fromkeys(forms)))
    if seed % 5 == 0:
        terms.append(terms[0])
    automaton = TermAutomaton(terms, boundaries)
    for _ in range(60):
        state = State()
        tokens = []
        while len(tokens) < 12:
            token = chance.choice(alphabet)
            following = automaton.after(state, token)
            assert (following is None) == reference.makes_longer_word([*tokens, token], terms, boundaries)
            if following is None:
                continue
            state = following
            tokens.append(token)
            placed, walk = reference.read(tokens, terms, boundaries, ended=False)
            assert state.walk == walk
            assert {term for term in range(len(terms)) if state.placed >> term & 1} == placed
            assert automaton.num_placed(state) == len(reference.read(tokens, terms, boundaries, ended=True)[0])
            assert automaton.continuations(state) == sorted({*reference.continuations(tokens, terms, boundaries)})


def test_no_overlap_is_lost():
    automaton = TermAutomaton([[(1, 1, 2)], [(3, 4), (3, 4, 5)]])
    assert automaton.num_placed(after(automaton, [1, 1, 1, 2])) == 1
    # A form that begins another counts, also where the longer one breaks off.
    assert automaton.num_placed(after(automaton, [3, 4])) == 1
    assert automaton.num_placed(after(automaton, [3, 4, 5])) == 1
    assert automaton.num_placed(after(automaton, [3, 4, 1, 1, 2])) == 2


def test_a_hypothesis_that_wants_to_end_without_its_terms_is_closed():
    banks = SentenceBanks(TermAutomaton([[(1, 2)]]), rows=4, width=2)
    # The second has the term, and the third is no hypothesis.
    banks.states = [State(), State(placed=1), State(), State()]
    scores = [-1.0, -2.0, -1e9, -3.0]
    assert banks.closed_rows(scores, [0.9, 0.9, 0.9, 0.1]) == {0}
    assert banks.closed_rows(scores, [0.9, 0.9, 0.9, 0.9]) == {0, 3}
    # If all are like this, one of them must go on.
    assert banks.closed_rows([-1.0, -1e9, -1e9, -3.0], [0.9] * 4) == set()


def test_only_a_hypothesis_with_all_terms_can_be_better_than_what_has_ended():
    banks = SentenceBanks(TermAutomaton([[(1, 2)]]), rows=4, width=2)
    banks.states = [State(), State(placed=1), State(placed=1), State()]
    assert banks.best_complete([-1.0, -2.0, -3.0, -0.5]) == -2.0


@pytest.mark.parametrize("width", [2, 9])
def test_a_search_waits_for_as_many_translations_as_a_bank_is_wide(width):
    banks = SentenceBanks(TermAutomaton([[(1, 2)]]), rows=2 * width, width=width)
    for score in range(12):
        banks.finish(Finished(missing=score % 2, score=-float(score), tokens=[]))
    assert banks.complete_scores() == [0.0, -2.0, -4.0, -6.0, -8.0, -10.0][:width]
    banks.finished.clear()
    for score in range(12):
        banks.finish(Finished(missing=0, score=-float(score), tokens=[]))
    assert len(banks.complete_scores()) == width


def test_two_equal_terms_need_two_places():
    automaton = TermAutomaton([[(1, 2)], [(1, 2)]])
    assert automaton.num_placed(after(automaton, [1, 2, 3])) == 1
    assert automaton.num_placed(after(automaton, [1, 2, 3, 1, 2])) == 2


def test_a_term_is_a_whole_word():
    automaton = TermAutomaton([[(1, 6), (1, 6, 7)]], words())
    # "1 6" is a form, and so is "1 6 7", but "1 6 8" is another word.
    assert after(automaton, [1, 6, 8]) is None
    assert automaton.num_placed(after(automaton, [1, 6, 2])) == 1
    assert automaton.num_placed(after(automaton, [1, 6, 7])) == 1
    assert after(automaton, [1, 6, 7, 8]) is None
    # A form that begins inside of a word is none, but it may follow a quote.
    inside = TermAutomaton([[(6, 7)]], words())
    assert inside.num_placed(after(inside, [1, 6, 7])) == 0
    assert inside.num_placed(after(inside, [5, 6, 7])) == 1
    assert inside.num_placed(after(inside, [6, 7])) == 1


def test_banks_have_room():
    terms = [[[(1,)]] * count for count in (1, 3, 40)]
    assert [default_bank_width(num_beams) for num_beams in (1, 2, 4, 5, 8)] == [1, 3, 3, 3, 5]
    assert TermBanks.of(terms[:1], 3).width == 3
    assert TermBanks.of(terms[1:2], 20).width == 8
    many = TermBanks.of(terms, 3)
    assert many.width == 2
    assert [automaton.num_terms for automaton in many.automata] == [1, 3, 15]
    assert many.settings(settings(ending("marian"))).num_beams == 32


def settings(model, **changes):
    config = model.generation_config
    eos = torch.tensor([config.eos_token_id]).flatten()
    size = model.get_output_embeddings().weight.shape[0]
    return Settings(
        **{
            "constraints": Constraints([], size, torch.device("cpu")),
            "start": config.decoder_start_token_id,
            "eos": eos,
            "pad": config.pad_token_id,
            "max_length": LONGEST + 1,
            **changes,
        }
    )


def log_probabilities_of(model, source, row):
    """The model in float64, called again for every hypothesis."""
    model = model.double()
    one = {name: tensor[row : row + 1] for name, tensor in source.items()}

    def log_probabilities(tokens):
        with torch.no_grad():
            logits = model(**one, decoder_input_ids=torch.tensor([tokens])).logits[0, -1]
        return logits.log_softmax(-1).tolist()

    return log_probabilities


def random_terms(chance, size, count):
    terms = []
    for _ in range(count):
        forms = [tuple(chance.sample(range(3, size), chance.randint(1, 3))) for _ in range(chance.randint(1, 4))]
        # One form begins another.
        terms.append([*forms, (*forms[0], chance.randrange(3, size))])
    return terms


@pytest.mark.parametrize(
    ("kind", "num_beams", "changes"),
    [
        ("marian", 4, {}),
        ("marian", 1, {}),
        ("marian", 6, {"length_penalty": 2.0}),
        ("marian", 2, {"early_stopping": True}),
        ("marian", 4, {"early_stopping": True, "length_penalty": 6.0}),
        ("marian", 3, {"early_stopping": "never", "length_penalty": 6.0}),
        *((kind, 4, {}) for kind in ONE_OF_EACH_FAMILY[1:]),
    ],
)
def test_tokens_are_those_of_the_reference(kind, num_beams, changes):
    model = ending(kind)
    size = model.get_output_embeddings().weight.shape[0]
    source = sources(4 if kind == "marian" else 2)
    chance = random.Random(num_beams)
    boundaries = WordBoundaries([token % 3 == 0 for token in range(size)], [token % 5 > 0 for token in range(size)])
    counts = [2, 3, 1, 1] if kind == "marian" else [2, 1]
    terms = [random_terms(chance, size, count) for count in counts]
    # One ends before its terms have room.
    limits = [8, 9, 8, 2][: len(terms)]
    banks = TermBanks.of(terms, default_bank_width(num_beams), boundaries)
    found = translate(model, source, settings(model, **changes), limits, banks)
    assert_as_reference(model, source, found, terms, boundaries, banks.width, limits, changes)


@pytest.mark.parametrize("num_beams", [1, 2, 4, 8])
def test_long_terms_are_written_to_their_end(num_beams):
    """No token of them is likely, so other hypotheses always have better scores."""
    model = ending("marian")
    size = model.get_output_embeddings().weight.shape[0]
    source = sources(2)
    tokens = random.Random(1).sample(range(3, size), 20)
    terms = [[[tuple(tokens[:9])]], [[tuple(tokens[9:16])], [tuple(tokens[16:])]]]
    limits = [10, 12]
    banks = TermBanks.of(terms, default_bank_width(num_beams))
    found = translate(model, source, settings(model), limits, banks)
    for translation, of_sentence in zip(found, terms):
        best = translation.sequences[0].tolist()
        assert all(holds(best, form) for [form] in of_sentence)
    assert_as_reference(model, source, found, terms, None, banks.width, limits, {})


def test_only_the_rest_of_a_term_may_follow_a_hypothesis_that_wants_to_end():
    """The end is likely behind "18." of "Node.js 18.x"."""
    banks = SentenceBanks(TermAutomaton([[(1, 2, 3)], [(4,)]]), rows=6, width=2)
    banks.states = [State(walk=(1, 2)), *[State()] * 5]
    proposed = {(0, 3): -5.0, (0, 4): -1.0, (0, 5): -1.0, (1, 4): -1.0}
    allowed = banks.allowed(proposed, closed={0, 1}, ends=frozenset([9]), is_at_limit=False)
    assert [(candidate.parent, candidate.token) for candidate in allowed] == [(0, 3)]


def assert_as_reference(model, source, found, terms, boundaries, width, limits, changes):
    """Compare the translations of each sentence with those of the search in plain Python."""
    for row in range(len(terms)):
        expected = reference.search(
            log_probabilities_of(model, source, row),
            terms[row],
            boundaries,
            width=width,
            ends=[model.generation_config.eos_token_id],
            limit=limits[row],
            start=model.generation_config.decoder_start_token_id,
            length_penalty=changes.get("length_penalty", 1.0),
            early=changes.get("early_stopping", False),
            longest=LONGEST,
        )
        assert len(expected) == len(found[row].sequences)
        for sequence, score, (_, expected_score, tokens) in zip(found[row].sequences, found[row].scores, expected):
            assert score.item() == pytest.approx(expected_score, abs=1e-4)
            if sequence[: len(tokens)].tolist() != tokens:
                # Two that are equally good.
                assert score.item() == pytest.approx(expected_score, abs=1e-6)


def test_a_search_that_never_stops_early_may_find_a_better_translation():
    """A longer one, whose score is a mean over more tokens."""
    model = ending("marian")
    chance = random.Random(1)
    terms = [[[(chance.randrange(3, 600),)]] for _ in range(4)]
    limits = [LONGEST] * 4
    scores = []
    for early_stopping in (False, "never"):
        of_search = settings(model, early_stopping=early_stopping)
        found = translate(model, sources(4), of_search, limits, TermBanks.of(terms, 1))
        scores.append([translation.scores[0].item() for translation in found])
    differences = [never - stopped for stopped, never in zip(*scores)]
    assert min(differences) > -1e-4
    assert max(differences) > 1e-2


def translate(model, source, of_search, limits, banks):
    engine = engine_of(model)
    encoded = engine.encode(**source)
    return engine.translate(encoded, source.get("attention_mask"), of_search, limits, banks)


def holds(sequence, form):
    return any(tuple(sequence[start : start + len(form)]) == form for start in range(len(sequence)))


def test_force_words_ids_work_again():
    """As in Transformers 4: a list of ids is a phrase, and a list of lists is one of these."""
    folder = STORED / "tatoeba-en-de-transformer"
    model = stored(folder.name)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    source = tokenizer(["Where did you buy that coat?", "The dog is old."], return_tensors="pt", padding=True)
    jacket, animals = (
        tokenizer(text, add_special_tokens=False)["input_ids"] for text in (" Jacke", (" Hund", " Tier"))
    )
    options = {"num_beams": 4, "max_new_tokens": 30, "custom_generate": generate}
    forced = model.generate(**source, force_words_ids=[jacket, animals], **options)
    texts = tokenizer.batch_decode(forced, skip_special_tokens=True)
    assert all("Jacke" in text and ("Hund" in text or "Tier" in text) for text in texts)
    # One more than a bank has by default.
    several = model.generate(**source, force_words_ids=[jacket], num_return_sequences=4, **options)
    texts = tokenizer.batch_decode(several, skip_special_tokens=True)
    assert len({*texts}) == 8
    assert all("Jacke" in text for text in texts)


def test_each_sentence_has_its_own_terms():
    model = ending("marian")
    source = sources(3)
    options = {"num_beams": 4, "max_new_tokens": LONGEST}
    plain = model.generate(**source, custom_generate=generate, **options)
    terms = [[], [[(40, 50)]], [[(60,)], [(70,)]]]
    found = model.generate(**source, custom_generate=partial(generate, terms=terms), **options).tolist()
    assert found[0][: plain.shape[1]] == plain[0].tolist()[: len(found[0])]
    assert holds(found[1], (40, 50))
    assert holds(found[2], (60,))
    assert holds(found[2], (70,))


def test_a_sentence_does_not_depend_on_the_terms_of_others():
    """Which have more hypotheses, and so more proposals."""
    model = ending("marian")
    size = model.get_output_embeddings().weight.shape[0]
    source = sources(8, seed=10)
    chance = random.Random(10)
    terms = [[[(chance.randrange(3, size),)]] for _ in range(8)]
    terms[3] = [[(chance.randrange(3, size),)] for _ in range(7)]
    options = {"num_beams": 4, "num_return_sequences": 2, "max_new_tokens": LONGEST}
    together = model.generate(**source, custom_generate=partial(generate, terms=terms), **options)
    together = together.unflatten(0, (8, 2))
    for row in range(8):
        one = {name: tensor[row : row + 1] for name, tensor in source.items()}
        alone = model.generate(**one, custom_generate=partial(generate, terms=terms[row : row + 1]), **options)
        assert together[row, :, : alone.shape[1]].tolist() == alone.tolist()


def test_the_last_of_too_few_translations_is_repeated():
    """There are two tokens, so two translations of one token."""
    model = ending("marian")
    size = model.get_output_embeddings().weight.shape[0]
    others = [token for token in range(size) if token not in (40, 50)]
    options = {"num_beams": 4, "num_return_sequences": 3, "max_new_tokens": 1, "suppress_tokens": others}
    found = model.generate(**sources(1), custom_generate=partial(generate, terms=[[[(40,)]]]), **options)
    # The one with the term comes first.
    assert found[:, 1].tolist() == [40, 50, 50]


def test_there_may_be_more_translations_than_beams():
    """Those that have ended, so that one without copies is among them."""
    model = ending("marian")
    banks = TermBanks.of([[[(40,)]]], default_bank_width(2))
    [found] = translate(model, sources(1), settings(model), [LONGEST], banks)
    translations = {tuple(row) for row in found.sequences.tolist()}
    assert len(translations) >= 5
    assert all(40 in tokens for tokens in translations)


def test_behind_its_end_a_translation_is_filled_up_as_by_generate():
    """With ends, where the padding is token 0."""
    model = ending("recurrent/capsule")
    end = model.generation_config.eos_token_id
    assert model.generation_config.pad_token_id == 0
    options = {"num_beams": 4, "num_return_sequences": 3, "max_new_tokens": LONGEST}
    plain = model.generate(**sources(4), **options)
    call = partial(generate, terms=[[[(token,)]] for token in (40, 41, 42, 43)])
    with_terms = model.generate(**sources(4), custom_generate=call, **options)
    for sequences in (plain, with_terms):
        has_filling = sequences.eq(end).cumsum(1) > 1
        assert has_filling.any()
        assert not (sequences[:, 1:] == 0).any()


def test_no_room_for_a_term_is_no_error():
    model = ending("marian")
    call = partial(generate, terms=[[[tuple(range(40, 50))]]])
    found = model.generate(**sources(1), custom_generate=call, num_beams=4, max_new_tokens=3)
    assert found.shape[1] <= 4


def test_a_hypothesis_that_nothing_may_follow_ends_there():
    """The second token can only be the end, which comes too early for the term."""
    model = ending("marian")
    end = model.generation_config.eos_token_id
    size = model.get_output_embeddings().weight.shape[0]
    others = [token for token in range(size) if token != end]
    processor = SuppressTokensAtBeginLogitsProcessor(others, begin_index=2)
    constraints = Constraints([processor], size, torch.device("cpu"))
    source = sources(1)
    banks = TermBanks.of([[[(40, 50)]]], 3)
    of_search = settings(model, constraints=constraints, length_penalty=2.0)
    [found] = translate(model, source, of_search, [LONGEST], banks)
    start = model.generation_config.decoder_start_token_id
    expected = log_probabilities_of(model, source, 0)([start])
    assert len(found.sequences) == 3
    for sequence, score in zip(found.sequences.tolist(), found.scores.tolist()):
        assert [sequence[0], *sequence[2:]] == [start, end]
        assert score == pytest.approx(expected[sequence[1]] / 2**2, abs=1e-4)


def test_a_model_that_the_engine_does_not_know_is_named():
    size = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    model = BartForConditionalGeneration(BartConfig(vocab_size=30, **size, **heads)).eval()
    source = torch.tensor([[5, 6, 2]])
    with pytest.raises(UserError, match="does not know the model BartForConditionalGeneration"):
        model.generate(source, force_words_ids=[[7]], num_beams=2, max_new_tokens=3, custom_generate=generate)


@pytest.mark.parametrize(
    ("terms", "options", "message"),
    [
        ([[]], {}, "There are 2 sentences, but terms of 1"),
        ([[[()]], []], {}, "has no tokens"),
        ([[], []], {"do_sample": True}, "Only the engine writes terms"),
        (
            [[], []],
            {"logits_processor": LogitsProcessorList([ShortlistLogitsProcessor(range(99))])},
            "may lack the words of a term",
        ),
        (None, {"constraints": [object()], "num_beams": 2}, "does not know constraints. Give force_words_ids"),
    ],
)
def test_refusals(terms, options, message):
    model = ending("marian")
    with pytest.raises(UserError, match=message):
        model.generate(**sources(2), custom_generate=partial(generate, terms=terms), max_new_tokens=3, **options)
