"""Servers to compare with `serve`. All have its port and its protocol.

    python -m benchmarks.serving.baselines pipeline checkpoints/tatoeba-en-de-transformer

`pipeline` calls the pipeline `translation` for one text at a time, behind a lock. `ctranslate2` calls CTranslate2 for
each request, in as many threads as requests. `ctranslate2-batched` has CTranslate2 behind the queue of `serve`.
"""

import argparse
import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, pipeline

from benchmarks.common.ctranslate2_models import ctranslate2_translator, for_ctranslate2
from hf_capsule_mt.serving.app import build_app
from hf_capsule_mt.serving.models import ServedModel
from hf_capsule_mt.serving.settings import ServerSettings
from hf_capsule_mt.translation.generation.decoder import Decoded
from hf_capsule_mt.translation.preparation import Sentence
from hf_capsule_mt.translation.text_translator import TextTranslator

MOST_THREADS = 64
Translate = Callable[[str], str]


def translate_by_pipeline(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Translate:
    """Return what translates with the pipeline, which is that of this package, one text at a time."""
    translate = pipeline("translation", model=model, tokenizer=tokenizer, device="cpu")
    lock = threading.Lock()

    def run(text: str) -> str:
        with lock:
            return translate(text)[0]["translation_text"]

    return run


class CTranslate2:
    """CTranslate2 in int8, with the beams of the model."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        plain = for_ctranslate2(model)
        if plain is None:
            raise ValueError("CTranslate2 does not have this model, or is not installed.")
        self._translator = ctranslate2_translator(plain, "int8")
        self._tokenizer = tokenizer
        self._longest = plain.config.max_position_embeddings - 1
        self._num_beams = model.generation_config.num_beams or 1

    def translate(self, text: str) -> str:
        """Translate a text. Threads may call it at the same time."""
        return self.texts([self._tokenizer(text)["input_ids"]])[0]

    def decode(self, sentences: Sequence[Sentence]) -> list[tuple[Decoded]]:
        """Translate a batch, as the queue of `serve` asks for it."""
        return [(Decoded([], text=text),) for text in self.texts([sentence.token_ids for sentence in sentences])]

    def texts(self, sources: Sequence[Sequence[int]]) -> list[str]:
        """Return the translations of token ids."""
        results: Sequence[Any] = self._translator.translate_batch(
            [[str(token_id) for token_id in source] for source in sources],
            beam_size=self._num_beams,
            max_batch_size=len(sources),
            max_decoding_length=self._longest,
        )
        token_ids = [[int(word) for word in result.hypotheses[0]] for result in results]
        return self._tokenizer.batch_decode(token_ids, skip_special_tokens=True)


def plain_app(translate: Translate) -> Starlette:
    """Return an application that translates each request by itself."""
    threads = ThreadPoolExecutor(MOST_THREADS)

    async def respond(request: Request) -> JSONResponse:
        fields = await request.json()
        text = await asyncio.get_running_loop().run_in_executor(threads, translate, fields["q"])
        return JSONResponse({"translatedText": text})

    return Starlette(routes=[Route("/translate", respond, methods=["POST"])])


def app_of(kind: str, folder: str) -> Starlette:
    """Return the application of a baseline."""
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if kind == "pipeline":
        return plain_app(translate_by_pipeline(model, tokenizer))
    fast = CTranslate2(model, tokenizer)
    if kind == "ctranslate2":
        return plain_app(fast.translate)
    translator = TextTranslator(model, tokenizer)
    return build_app([ServedModel("en", "de", translator, fast.decode, "en")], ServerSettings(max_wait=1000))


def main() -> None:
    """Serve a baseline until a signal ends it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("pipeline", "ctranslate2", "ctranslate2-batched"))
    parser.add_argument("model", help="a checkpoint")
    args = parser.parse_args()
    app = app_of(args.kind, args.model)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"Serving on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    main()
