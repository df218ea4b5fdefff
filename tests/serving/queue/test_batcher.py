"""The batcher: fair turns, batches within their budget, waiting, cancelling, and what fails."""

import random
from concurrent.futures import CancelledError
from contextlib import contextmanager
from threading import Event

import pytest
from tiny_marian import tiny_model, tiny_tokenizer
from translated_lines import translate_lines

from hf_capsule_mt.data.languages import Direction
from hf_capsule_mt.long_work import GivenUpError, next_step
from hf_capsule_mt.serving.queue import batcher as batcher_module
from hf_capsule_mt.serving.queue.batcher import Batcher, BatchSpeed
from hf_capsule_mt.serving.queue.waiting import Lane
from hf_capsule_mt.serving.refusals import BusyError, FailedSentenceError, StoppedError
from hf_capsule_mt.translation.generation.decoder import Decoded
from hf_capsule_mt.translation.preparation import Sentence
from hf_capsule_mt.translation.text.segments import Segment
from hf_capsule_mt.translation.text_translator import TextTranslator

TIMEOUT = 60
"""Seconds after which a test fails instead of waiting for ever."""
LONG = 65
"""The fewest tokens of a sentence that gives way to others."""


def sentence(name, length=5, first_token=None):
    return Sentence(Segment("", name, ""), [7] * length, direction=Direction(first_token=first_token))


def sentences(name, count, length=5):
    return [sentence(f"{name}{number}", length) for number in range(count)]


class Engine:
    """Decodes a sentence to its name in capitals. Each batch waits until the test lets it go."""

    def __init__(self):
        self.batches = []
        self.started = Event()
        self.may_go = Event()
        self.may_go.set()
        self.broken = set()

    def decode(self, batch):
        names = [each.segment.text for each in batch]
        self.batches.append(names)
        self.started.set()
        assert self.may_go.wait(TIMEOUT)
        for name in names:
            if name in self.broken:
                raise RuntimeError(f"{name} is broken")
        return [(Decoded([], text=name.upper()),) for name in names]

    def hold(self):
        """Let the next batches wait."""
        self.started.clear()
        self.may_go.clear()

    def wait_for_batch(self):
        """Wait until a batch is being decoded."""
        assert self.started.wait(TIMEOUT)


class Clock:
    """Stands still until it is moved on."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


def texts_of(future):
    return [ranked[0].text for ranked in future.result(TIMEOUT)]


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
def make(engine):
    """Makes a batcher, whose first batch, of the sentence "first", is held until the test lets the engine go."""
    made = []

    def make_batcher(**options):
        batcher = Batcher({"m": engine.decode, "n": engine.decode}, **options)
        made.append(batcher)
        batcher.__enter__()
        engine.hold()
        batcher.submit("m", [sentence("first")])
        engine.wait_for_batch()
        return batcher

    yield make_batcher
    engine.may_go.set()
    for batcher in made:
        batcher.close()


def test_translations_come_in_the_order_of_the_sentences(make, engine):
    batcher = make(max_tokens_per_batch=12)
    lengths = [3, 9, 1, 5, 2]
    future = batcher.submit("m", [sentence(f"s{length}", length) for length in lengths])
    nothing = batcher.submit("m", [])
    engine.may_go.set()
    assert texts_of(future) == [f"S{length}" for length in lengths]
    assert texts_of(nothing) == []


def test_what_waits_is_decoded_together(make, engine):
    batcher = make()
    futures = [batcher.submit("m", [sentence(name)]) for name in "abc"]
    engine.may_go.set()
    assert [texts_of(future) for future in futures] == [["A"], ["B"], ["C"]]
    assert engine.batches == [["first"], ["a", "b", "c"]]


def test_nothing_waits_for_a_batch_to_fill(engine):
    with Batcher({"m": engine.decode}) as batcher:
        assert texts_of(batcher.submit("m", [sentence("a")])) == ["A"]
        assert texts_of(batcher.submit("m", [sentence("b")])) == ["B"]
    assert engine.batches == [["a"], ["b"]]


@pytest.mark.parametrize("seed", range(3))
def test_batches_keep_their_budget(make, engine, seed):
    generator = random.Random(seed)
    batcher = make(max_tokens_per_batch=40, max_sentences_per_batch=6)
    lengths = {}
    futures = []
    for request in range(12):
        of_request = []
        for number in range(generator.randint(1, 9)):
            name = f"{request}.{number}"
            # The last does not fit by itself.
            lengths[name] = generator.choice([1, 2, 3, 5, 8, 13, 50])
            of_request.append(sentence(name, lengths[name]))
        futures.append((of_request, batcher.submit("m", of_request)))
    engine.may_go.set()
    for of_request, future in futures:
        assert texts_of(future) == [each.segment.text for each in of_request]
    decoded = engine.batches[1:]
    assert sorted(name for batch in decoded for name in batch) == sorted(lengths)
    for batch in decoded:
        longest = max(lengths[name] for name in batch)
        assert len(batch) <= 6
        assert len(batch) == 1 or longest * len(batch) <= 40
    # Sentences of different requests share batches.
    assert len(decoded) < len(lengths) / 2


def test_neighbours_by_length_share_a_batch(make, engine):
    batcher = make(max_tokens_per_batch=40)
    lengths = [20, 2, 19, 3, 2, 18]
    batcher.submit("m", [sentence(f"s{number}", length) for number, length in enumerate(lengths)])
    engine.may_go.set()
    batcher.close()
    assert engine.batches[1:] == [["s2", "s0"], ["s1", "s4", "s3"], ["s5"]]


def test_a_document_does_not_hold_up_others(make, engine):
    """Each request has its turn, whatever came before it."""
    batcher = make(max_tokens_per_batch=10)
    document = batcher.submit("m", sentences("d", 40))
    small = [batcher.submit("m", [sentence(name)]) for name in "abcdef"]
    engine.may_go.set()
    for future in small:
        future.result(TIMEOUT)
    assert len(texts_of(document)) == 40
    last = max(number for number, batch in enumerate(engine.batches) if {*batch} & {*"abcdef"})
    # Six batches of two sentences, one for each turn, and one for that of the document.
    assert last <= 7


def test_a_longer_sentence_has_its_turn_too(make, engine):
    """It is far from the sentences that come again and again."""
    batcher = make(max_tokens_per_batch=20)
    documents = [batcher.submit("m", sentences(name, 30, 2)) for name in "abc"]
    alone = batcher.submit("m", [sentence("long", 19)])
    engine.may_go.set()
    assert texts_of(alone) == ["LONG"]
    assert engine.batches.index(["long"]) <= 4
    for document in documents:
        document.result(TIMEOUT)


def test_those_who_come_later_do_not_keep_a_request_waiting(engine):
    """With every batch more come than it holds."""
    late = []

    def decode(batch):
        if len(late) < 60:
            late.extend(batcher.submit("m", [sentence("late", 1)]) for _ in range(3))
        return engine.decode(batch)

    with Batcher({"m": decode}, max_tokens_per_batch=50, max_sentences_per_batch=2) as batcher:
        # It has its first turn at once. Its longer sentence fits in no batch with another one.
        early = batcher.submit("m", [sentence("short", 1), sentence("long", 40)])
        assert texts_of(early) == ["SHORT", "LONG"]
    assert engine.batches.index(["long"]) < 10


class Steps:
    """Decodes long sentences in steps, until the test lets them end. Short ones are for the engine."""

    def __init__(self, engine):
        self.engine = engine
        self.started = Event()
        self.may_end = Event()
        self.is_given_up = Event()

    def decode(self, batch):
        if len(batch[0].token_ids) < LONG:
            return self.engine.decode(batch)
        self.started.set()
        try:
            while not self.may_end.wait(0.001):
                next_step()
        except GivenUpError:
            self.is_given_up.set()
            raise
        return self.engine.decode(batch)

    @contextmanager
    def batcher(self, decode=None):
        """Yield a batcher. Its long sentences end with the test, also if the test fails."""
        with Batcher({"m": decode or self.decode}) as batcher:
            try:
                yield batcher
            finally:
                self.may_end.set()


@pytest.fixture
def steps(engine):
    return Steps(engine)


def test_short_sentences_do_not_wait_for_a_long_one(engine, steps):
    """It is decoded already when they come."""
    with steps.batcher() as batcher:
        long = batcher.submit("m", [sentence("long", LONG)])
        assert steps.started.wait(TIMEOUT)
        short = [batcher.submit("m", [sentence(name)]) for name in "ab"]
        mixed = batcher.submit("m", [sentence("c"), sentence("longer", LONG + 1)])

        assert [texts_of(future) for future in short] == [["A"], ["B"]]
        assert not long.done()
        steps.may_end.set()
        assert texts_of(long) == ["LONG"]
        assert texts_of(mixed) == ["C", "LONGER"]


def test_short_sentences_share_no_batch_with_a_long_one(make, engine):
    batcher = make()
    futures = [batcher.submit("m", [sentence(name, length)]) for name, length in [("a", 5), ("long", LONG), ("b", 9)]]
    engine.may_go.set()
    assert [texts_of(future) for future in futures] == [["A"], ["LONG"], ["B"]]
    assert engine.batches[1:] == [["a", "b"], ["long"]]


def test_a_long_sentence_has_half_of_the_time(engine, monkeypatch):
    """Short sentences come without end, and a batch of them takes as long as four steps."""
    clock = Clock()
    monkeypatch.setattr(batcher_module, "time", clock)
    events = []
    seconds = {}

    def decode(batch):
        if len(batch[0].token_ids) < LONG:
            clock.now += 4.0
            events.append("short")
            batcher.submit("m", [sentence("short")])
            return engine.decode(batch)
        batcher.submit("m", [sentence("short")])
        for _ in range(12):
            next_step()
            clock.now += 1.0
            events.append("step")
        return engine.decode(batch)

    def note(batch, started, of_batch):
        seconds.setdefault(batch[0].sentence.segment.text, of_batch)

    batcher = Batcher({"m": decode}, on_batch=note)
    with batcher:
        assert texts_of(batcher.submit("m", [sentence("long", LONG)])) == ["LONG"]
        batcher._decoders["m"] = engine.decode
    assert events[:15] == 3 * ["short", "step", "step", "step", "step"]
    # What others took is not counted.
    assert seconds == {"short": 4.0, "long": 12.0}


def test_a_search_that_nobody_waits_for_is_given_up(engine, steps):
    with steps.batcher() as batcher:
        long = batcher.submit("m", [sentence("long", LONG)])
        assert steps.started.wait(TIMEOUT)
        next_long = batcher.submit("m", [sentence("next", LONG)])
        assert long.cancel()
        assert steps.is_given_up.wait(TIMEOUT)
        steps.may_end.set()
        assert texts_of(next_long) == ["NEXT"]


def test_a_thread_that_dies_between_the_steps_of_a_long_sentence(engine, steps):
    """Its request is in no queue then, and gets its answer too."""

    def decode(batch):
        if len(batch[0].token_ids) < LONG:
            raise SystemExit
        return steps.decode(batch)

    with steps.batcher(decode) as batcher:
        long = batcher.submit("m", [sentence("long", LONG)])
        assert steps.started.wait(TIMEOUT)
        short = batcher.submit("m", [sentence("short")])
        for future in (long, short):
            with pytest.raises(StoppedError, match="engine has stopped"):
                future.result(TIMEOUT)


@pytest.mark.parametrize("engine_of_model", ["fast", "transformers"])
def test_the_words_of_a_search_that_gives_way(engine_of_model):
    """Short sentences wait when the search of the long one begins."""
    translator = TextTranslator(tiny_model(max_position_embeddings=256), tiny_tokenizer(model_max_length=128))
    [long] = translator.reader.prepare("a b c d e f g h " * 8 + "a").sentences
    short = [translator.reader.prepare(text).sentences[0] for text in ("d e", "a b c")]
    answered = []

    def decode(batch):
        if batch == [long]:
            for one in short:
                batcher.submit("m", [one]).add_done_callback(lambda future: answered.append(texts_of(future)))
        return translator.decode(batch, engine=engine_of_model, num_beams=2)

    with Batcher({"m": decode}) as batcher:
        future = batcher.submit("m", [long])
        future.add_done_callback(lambda future: answered.append(texts_of(future)))
        future.result(TIMEOUT)
    alone = [translator.decode([one], engine=engine_of_model, num_beams=2)[0][0].text for one in (*short, long)]
    assert answered == [[text] for text in alone]


def test_a_batch_has_one_model_and_one_target_language(make, engine):
    batcher = make()
    kinds = [("m", None), ("n", None), ("m", 4), ("m", 5), ("n", 4)]
    for number in range(10):
        model, first_token = kinds[number % 5]
        batcher.submit(model, [sentence(f"{number % 5}", first_token=first_token)])
    engine.may_go.set()
    batcher.close()
    assert sorted(engine.batches[1:]) == [[str(number)] * 2 for number in range(5)]


def test_a_request_that_is_cancelled_is_not_decoded(make, engine):
    batcher = make(max_tokens_per_batch=10)
    cancelled = batcher.submit("m", sentences("c", 9))
    other = batcher.submit("m", [sentence("a")])
    assert batcher.waiting_sentences() == 10
    assert cancelled.cancel()
    assert batcher.waiting_sentences() == 1
    engine.may_go.set()
    assert texts_of(other) == ["A"]
    batcher.close()
    assert engine.batches == [["first"], ["a"]]


def test_a_request_that_is_cancelled_while_it_is_decoded(make, engine):
    batcher = make(max_tokens_per_batch=10)
    engine.may_go.set()
    batcher.submit("m", [sentence("b")]).result(TIMEOUT)
    engine.hold()
    cancelled = batcher.submit("m", sentences("c", 9))
    engine.wait_for_batch()
    assert cancelled.cancel()
    engine.may_go.set()
    assert texts_of(batcher.submit("m", [sentence("a")])) == ["A"]
    with pytest.raises(CancelledError):
        cancelled.result(TIMEOUT)
    assert engine.batches == [["first"], ["b"], ["c0", "c1"], ["a"]]


def test_a_sentence_that_fails_concerns_only_its_request(make, engine, caplog):
    batcher = make()
    engine.broken = {"b1"}
    futures = {name: batcher.submit("m", sentences(name, 3)) for name in "abc"}
    engine.may_go.set()
    for name in "ac":
        assert texts_of(futures[name]) == [f"{name.upper()}{number}" for number in range(3)]
    with pytest.raises(FailedSentenceError, match="cannot be translated") as failure:
        futures["b"].result(TIMEOUT)
    assert str(failure.value.__cause__) == "b1 is broken"
    assert "b1 is broken" in caplog.text
    assert texts_of(batcher.submit("m", [sentence("d")])) == ["D"]


def test_the_rest_of_a_request_that_failed_is_not_decoded(make, engine):
    batcher = make(max_tokens_per_batch=10)
    engine.broken = {"b0"}
    failed = batcher.submit("m", sentences("b", 20))
    engine.may_go.set()
    with pytest.raises(FailedSentenceError):
        failed.result(TIMEOUT)
    batcher.close()
    assert engine.batches == [["first"], ["b0", "b1"], ["b0"], ["b1"]]


def test_a_dead_thread_fails_who_waits_and_takes_nobody(make, engine):
    """Not only an Exception, which a sentence may raise."""
    batcher = make(max_tokens_per_batch=10)
    futures = [batcher.submit("m", sentences(name, 9)) for name in "ab"]
    assert batcher.is_alive

    def die(batch):
        raise SystemExit

    batcher._decoders["m"] = die
    engine.may_go.set()
    for future in futures:
        with pytest.raises(StoppedError, match="engine has stopped"):
            future.result(TIMEOUT)
    batcher._thread.join(TIMEOUT)
    assert not batcher.is_alive
    for call in (lambda: batcher.submit("m", [sentence("c")]), lambda: batcher.admitted(1).__enter__()):
        with pytest.raises(StoppedError, match="takes no more requests"):
            call()


def test_closing_answers_who_waits(make, engine):
    batcher = make(max_tokens_per_batch=10)
    future = batcher.submit("m", sentences("a", 9))
    engine.may_go.set()
    batcher.close()
    assert future.done()
    assert len(texts_of(future)) == 9
    with pytest.raises(StoppedError, match="takes no more requests"):
        batcher.submit("m", [sentence("b")])


def test_the_wait_is_predicted(make):
    batcher = make(max_tokens_per_batch=100, max_wait=3)
    batcher._batch_ends[Lane.SHORT] = 0
    assert batcher.predicted_wait(50) == 0
    # A batch takes a second, and 100 tokens another.
    for tokens in (50, 100, 50, 100):
        batcher._speeds[Lane.SHORT].add(tokens, 1 + tokens / 100)
    batcher.submit("m", sentences("document", 100, 10))
    # Of the document as much is decoded before as the request has itself.
    assert batcher.predicted_wait(10) == pytest.approx(1.1)
    assert batcher.predicted_wait(200) == pytest.approx(4)
    assert batcher.predicted_wait(5000) == pytest.approx(20)
    with batcher.admitted(100):
        pass
    with pytest.raises(BusyError, match="Try again in 4 seconds") as busy, batcher.admitted(200):
        pass
    assert busy.value.seconds == pytest.approx(4)


def test_nobody_waits_for_a_batch_that_ended_early(engine, monkeypatch):
    """After five batches of one sentence, 64 together are thought to take longer than they do."""
    clock = Clock()
    monkeypatch.setattr(batcher_module, "time", clock)
    predicted = []

    def decode(batch):
        if len(batch) > 1:
            predicted.append(batcher.predicted_wait(16))
        clock.now += 1.0
        return engine.decode(batch)

    with Batcher({"m": decode}, max_wait=8) as batcher:
        for name in "abcde":
            batcher.submit("m", [sentence(name, 16)]).result(TIMEOUT)
        batcher.submit("m", sentences("s", 64, 16)).result(TIMEOUT)
        assert predicted == [pytest.approx(16)]
        assert batcher.predicted_wait(16) == 0
        with batcher.admitted(16):
            assert texts_of(batcher.submit("m", [sentence("f")])) == ["F"]


def test_a_request_waits_for_those_that_were_admitted_before(make):
    """Their sentences are not there yet."""
    batcher = make(max_tokens_per_batch=100, max_wait=3)
    batcher._batch_ends[Lane.SHORT] = 0
    # A batch takes a second, and 100 tokens another.
    for tokens in (50, 100, 50, 100):
        batcher._speeds[Lane.SHORT].add(tokens, 1 + tokens / 100)
    with batcher.admitted(100):
        assert batcher.predicted_wait(100) == pytest.approx(2)
        with batcher.admitted(100):
            assert batcher.predicted_wait(100) == pytest.approx(4)
            with pytest.raises(BusyError), batcher.admitted(100):
                pass
        # It is not counted twice when its sentences are there.
        batcher.submit("m", sentences("a", 10, 10))
    assert batcher.predicted_wait(100) == pytest.approx(2)


def test_a_long_sentence_waits_for_other_long_ones(make):
    """Short ones need not, so they are not refused."""
    batcher = make(max_tokens_per_batch=100, max_wait=3)
    batcher._batch_ends[Lane.SHORT] = 0
    batcher._speeds[Lane.SHORT].add(100, 0.1)
    batcher._speeds[Lane.LONG].add(100, 2.0)
    batcher.submit("m", sentences("a", 2, 100))
    with batcher.admitted(200):
        batcher.check_wait(sentences("b", 40))
        batcher.check_wait([sentence("c", 100)])
        with pytest.raises(BusyError, match="Try again in 4 seconds"):
            batcher.check_wait(sentences("d", 2, 100))


def test_too_many_tokens_are_refused_at_once(make):
    """Before any batch says how long they take."""
    batcher = make(max_waiting_tokens=100)
    batcher.submit("m", sentences("a", 10, 10))
    with batcher.admitted(1):
        pass
    waiting = batcher.submit("m", [sentence("b", 1)])
    with pytest.raises(BusyError), batcher.admitted(1):
        pass
    waiting.cancel()
    with batcher.admitted(1), pytest.raises(BusyError), batcher.admitted(1):
        pass


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        pytest.param([], 0, id="none"),
        pytest.param([(100, 2.0)], 2.0, id="full"),
        pytest.param([(100, 2.0), (100, 4.0)], 3.0, id="alike"),
        pytest.param([(10, 1.5), (20, 2.0), (60, 4.0)], 3.5, id="line"),
        pytest.param([(10, 2.0), (60, 1.0)], 1.5, id="more tokens took less time"),
        pytest.param([(10, 0.1), (90, 3.9)], 2.0, id="constant below zero"),
    ],
)
def test_the_time_of_a_batch(batches, expected):
    speed = BatchSpeed(100)
    for batch in batches:
        speed.add(*batch)
    assert speed.seconds(50, 1) == pytest.approx(expected)


SMALL_BATCHES = {
    "alike": 50 * [(5, 1.0)],
    "as long as their steps": 25 * [(5, 1.0), (10, 2.0)],
    "noise": [*(45 * [(5, 1.0)]), *(5 * [(6, 3.0)])],
    "one or two sentences": 25 * [(5, 1.0), (10, 1.1)],
    "one": [(5, 1.0)],
}


@pytest.mark.parametrize("kind", SMALL_BATCHES)
def test_small_batches_take_their_time_for_steps(kind):
    """A full batch has 200 times as many tokens. It takes longer, but not that much."""
    speed = BatchSpeed(1024)
    for batch in SMALL_BATCHES[kind]:
        speed.add(*batch)
    assert 0.9 < speed.seconds(5, 1) < 2
    assert 2 < speed.seconds(32 * 5, 1) < 6
    assert 10 < speed.seconds(1024, 1) < 30


def test_a_large_batch_says_how_long_it_takes():
    speed = BatchSpeed(1024)
    for _ in range(49):
        speed.add(5, 1.0)
    speed.add(1000, 3.0)
    assert speed.seconds(5, 1) == pytest.approx(1, rel=0.1)
    assert speed.seconds(1000, 1) == pytest.approx(3, rel=0.1)


def test_many_clients_after_a_quiet_time(make):
    """Each sends a short sentence, and they share a batch. A queue of documents is refused as before."""
    batcher = make(max_wait=8)
    batcher._batch_ends[Lane.SHORT] = 0
    for _ in range(50):
        batcher._speeds[Lane.SHORT].add(5, 1.0)
    for name in range(32):
        with batcher.admitted(5):
            batcher.submit("m", [sentence(f"{name}")])
    assert 2 < batcher.predicted_wait(5) < 6

    batcher.submit("m", sentences("document", 500, 20))
    with batcher.admitted(5):
        pass
    with pytest.raises(BusyError), batcher.admitted(10_000):
        pass


def test_the_wait_for_many_short_sentences(make):
    """A batch has as many as it may, though it might have more tokens."""
    batcher = make(max_tokens_per_batch=1000, max_sentences_per_batch=10)
    batcher._batch_ends[Lane.SHORT] = 0
    batcher._speeds[Lane.SHORT].add(1000, 1.0)
    batcher.submit("m", sentences("document", 35, 2))
    assert batcher.predicted_wait(70) == pytest.approx(4)
    # A request of five sentences waits for five of the document.
    assert batcher.predicted_wait(10) == pytest.approx(1)
    for number in range(15):
        batcher.submit("m", [sentence(f"{number}", 2)])
    assert batcher.predicted_wait(1) == pytest.approx(2)


def test_only_the_last_batches_count():
    speed = BatchSpeed(10)
    for _ in range(50):
        speed.add(10, 99.0)
    for _ in range(50):
        speed.add(10, 1.0)
    assert speed.seconds(10, 1) == pytest.approx(1.0)


def test_batches_are_told(make, engine):
    told = []
    batcher = make(on_batch=lambda *batch: told.append(batch))
    batcher.submit("m", [sentence("a", 4), sentence("b", 6)])
    engine.may_go.set()
    batcher.close()
    batch, started, seconds = told[1]
    assert [place.length for place in batch] == [4, 6]
    assert started >= batch[0].request.arrival
    assert seconds >= 0


def test_the_words_are_those_of_translate_lines():
    """Sentences of many texts are decoded together by a real model."""
    model, tokenizer = tiny_model(), tiny_tokenizer()
    translator = TextTranslator(model, tokenizer)
    lines = ["a b c", "d", "e f g h i j", "k l", "m n o p q r s t", "a b c"] * 5
    with Batcher({"m": translator.decode}, max_tokens_per_batch=64) as batcher:
        futures = []
        for line in lines:
            prepared = translator.reader.prepare(line)
            futures.append((prepared, batcher.submit("m", prepared.sentences)))
        found = [translator.join(prepared, future.result(TIMEOUT)).text for prepared, future in futures]
    assert found == translate_lines(model, tokenizer, lines)


def test_alternatives_are_only_for_those_who_ask():
    """One batch for both, so that nobody waits for another one."""
    translator = TextTranslator(tiny_model(), tiny_tokenizer())
    started = Event()
    held = Event()
    asked = []

    def decode(sentences, **options):
        asked.append(options)
        started.set()
        assert held.wait(60)
        return translator.decode(sentences, num_beams=4, **options)

    sentences = [translator.reader.prepare(text).sentences[0] for text in ("a b c", "d e f", "g h i")]
    with Batcher({"m": decode}) as batcher:
        batcher.submit("m", sentences[:1])
        assert started.wait(60)
        wants_none = batcher.submit("m", sentences[1:2])
        wants_two = batcher.submit("m", sentences[2:], alternatives=2)
        held.set()
        [none] = wants_none.result(60)
        [two] = wants_two.result(60)
    assert (len(none), len(two)) == (1, 3)
    alone = translator.decode(sentences[2:], num_beams=4, num_return_sequences=3)[0]
    assert [each.text for each in two] == [each.text for each in alone]
    assert asked == [{}, {"num_return_sequences": [1, 3]}]
