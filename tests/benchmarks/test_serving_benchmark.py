"""The measurement of servers: what clients read, and the table."""

from pathlib import Path

import pytest
from running_server import running
from sentencepiece import SentencePieceProcessor
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from transformers import AutoTokenizer

from benchmarks.serving.base_model import pieces_of, sentencepiece_model
from benchmarks.serving.compare import Turn, table
from benchmarks.serving.processes import Client, in_threads, percentile


async def upper(request):
    fields = await request.json()
    return JSONResponse({"translatedText": fields["q"].upper()}, status_code=200 if fields["q"] else 400)


def test_clients_read_their_answers():
    with running(Starlette(routes=[Route("/translate", upper, methods=["POST"])])) as port:
        found = {}

        def work(number):
            client = Client(f"127.0.0.1:{port}")
            found[number] = [client.translate(f"a{number}"), client.translate("")]
            client.close()

        in_threads(8, work)
    assert found == {n: [(200, {"translatedText": f"A{n}"}), (400, {"translatedText": ""})] for n in range(8)}


def test_what_a_thread_raises():
    with pytest.raises(ZeroDivisionError):
        in_threads(3, lambda number: 1 / number)


def test_the_table_has_medians():
    turns = [Turn(10 * n, 2.0, 1.0 * n, p50=0.01 * n, p95=0.02 * n, p99=0.03 * n) for n in (1, 2, 6)]
    row = "| serve float32 | 8 | 10.0 | 20 | 40 | 60 | 10.0 |"
    assert table({"serve float32": {8: turns}}).splitlines()[-1] == row
    assert [percentile(range(100), share) for share in (0.5, 0.99, 1)] == [50, 99, 99]


def test_the_stand_in_of_opus_mt_has_the_words_of_the_small_model():
    tokenizer = AutoTokenizer.from_pretrained(Path(__file__).parents[2] / "checkpoints/tatoeba-en-de-transformer")
    pieces = pieces_of(tokenizer, len(tokenizer) + 2)
    processor = SentencePieceProcessor(model_proto=sentencepiece_model(pieces))
    for text in ("Tom's brother can't swim.", "Wir müssen 12 Brötchen kaufen!", '"Why?", I asked.'):
        *expected, _ = tokenizer(text)["input_ids"]
        assert [pieces.index(piece) for piece in processor.encode(text, out_type=str)] == expected
        assert processor.decode_pieces([pieces[token_id] for token_id in expected]) == text
