"""The page of the demo, in Gradio: a sentence, and a panel for each of two checkpoints."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr
from huggingface_hub.errors import StrictDataclassError
from PIL import Image
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.configuration.description import describe_architecture
from hf_capsule_mt.data.encoding import source_limit, tokenize_lines
from hf_capsule_mt.data.languages import ONE_PAIR, KnownLanguages
from hf_capsule_mt.errors import UserError, sentence_of
from hf_capsule_mt.loading import count_parameters
from hf_capsule_mt.translation.text.segments import texts_with_codes

from .routing_figures import follows_step, look_for, sentence_pictures
from .sentence import SentenceRouting, read_sentence

Load = Callable[[str], tuple[PreTrainedModel, PreTrainedTokenizerBase]]
"""From a checkpoint's folder or name to its model and tokenizer."""
Reply = Callable[[str | None, str | None], "Answer"]
"""From a model's name and a sentence to the answer."""
LONGEST_INPUT = 1000
"""Characters. Some models have no limit of their own, and a page must answer in time."""
TITLE = "Capsule-routing translation"
_INTRODUCTION = f"""# {TITLE}
Type a sentence or click an example. You see its translation, and where routing sends layers, heads and words."""
_NO_PICTURE = "This model has no routing, so there is no picture of it."
# Seconds after which pictures are deleted and answers are forgotten.
_KEPT = 3600
# Answers that are remembered at a time: the routing of a long sentence takes tens of megabytes.
_VISITORS = 20
_MOST_WAITING = 20
_LONGEST_REQUEST = 100_000  # bytes
# What the page asks for. Gradio has more: some routes take files, and run ffmpeg on them outside the queue.
_ROUTES = re.compile(
    r"/(config|theme\.css|manifest\.json|favicon\.ico|robots\.txt|(assets|static|svelte)/.*"
    r"|gradio_api/(info|app_id|startup-events|reset|cancel|heartbeat/.*|queue/(join|data|status)|file=.*))?/?"
)


def build_page(
    models: Sequence[str],
    load: Load,
    examples: Sequence[str],
    *,
    fixed: bool = False,
    languages: tuple[str | None, str | None] = (None, None),
) -> gr.Blocks:
    """Build the page. It opens with the translation of an example by the first two models.

    Args:
        models: folders or names of checkpoints to choose from.
        load: loads a model and its tokenizer.
        examples: sentences to click. The page opens with the first one.
        fixed: whether visitors can only choose these models.
        languages: source and target language, for models that have several.
    """
    reply = partial(answer, load, languages=languages)
    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(_KEPT, _KEPT)) as page:
        gr.Markdown(_INTRODUCTION)
        sentence = gr.Textbox(
            examples[0], label="Sentence", autofocus=True, max_length=LONGEST_INPUT, elem_id="sentence"
        )
        samples = [[example] for example in examples]
        dataset = gr.Dataset(label="Examples", components=[sentence], samples=samples, elem_id="examples")

        with gr.Row():
            button = gr.Button("Translate", variant="primary", scale=3, elem_id="translate")
            compare = gr.Checkbox(len(models) > 1, label="Two checkpoints side by side", elem_id="compare")

        triggers = [button.click, sentence.submit]
        if models:
            # Otherwise the page has nothing to translate with until a checkpoint is chosen.
            triggers.append(page.load)
        clicked = dataset.click(lambda sample: sample[0], dataset, sentence, show_progress="hidden")
        listeners = (partial(gr.on, triggers), clicked.then)

        with gr.Row(equal_height=False):
            with gr.Column():
                _add_checkpoint(0, models, reply, listeners, sentence, gr.State(True), fixed)
            with gr.Column(visible=len(models) > 1) as second_column:
                _add_checkpoint(1, models, reply, listeners, sentence, compare, fixed)
        compare.input(lambda visible: gr.update(visible=visible), compare, second_column, show_progress="hidden")

    # Gradio's direct routes would go past the queue.
    return page.queue(max_size=_MOST_WAITING, api_open=False, default_concurrency_limit=1)


def _add_checkpoint(
    number: int,
    models: Sequence[str],
    reply: Reply,
    listeners: Sequence[Callable[..., Any]],
    sentence: gr.Textbox,
    shown: gr.components.Component,
    fixed: bool,
) -> None:
    """Add the choice of a checkpoint, 0 or 1, and the panel of its answer.

    Args:
        number: 0 for the left column, 1 for the right one.
        models: as in [`build_page`].
        reply: answers with a model's name and a sentence.
        listeners: functions that let an event translate.
        sentence: is translated.
        shown: whether the column is shown, so that nothing is translated for one that is not.
        fixed: as in [`build_page`].
    """
    chosen = None
    if models:
        chosen = models[min(number, len(models) - 1)]

    name = gr.Dropdown(
        list(models),
        value=chosen,
        label="Checkpoint" if number == 0 else "Second checkpoint",
        info=None if fixed else "a folder, or a name on the Hub: choose one, or type it and press Tab",
        allow_custom_value=not fixed,
        elem_id=f"checkpoint-{number + 1}",
    )
    _connect(reply, listeners, [name, sentence, shown], _panel(number))


class Door:
    """ASGI middleware that answers only what the page asks for, and no long requests."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request that is refused, and pass on all others."""
        answering = self._app
        if scope["type"] == "http":
            answering = _refusal(scope) or self._app
        await answering(scope, receive, send)


def _refusal(scope: Any) -> PlainTextResponse | None:
    """Return the answer to a request that the page does not make, None to all others."""
    # In another application the path has the place of the page in front.
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    if not _ROUTES.fullmatch(path):
        return PlainTextResponse("The page has no such address.", 403)
    # A POST must say its length, others have none.
    default = b"" if scope["method"] == "POST" else b"0"
    length = dict(scope["headers"]).get(b"content-length", default)
    if not length.isdigit() or int(length) > _LONGEST_REQUEST:
        return PlainTextResponse(f"A request has at most {_LONGEST_REQUEST} bytes.", 413)
    return None


def launch_page(
    page: gr.Blocks,
    host: str | None = None,
    port: int | None = None,
    prevent_thread_lock: bool = False,
    **options: Any,
) -> None:
    """Serve the page, only to this address and with nothing from elsewhere, until interrupted.

    Args:
        page: is served.
        host: default: the environment variable GRADIO_SERVER_NAME, or 127.0.0.1.
        port: default: the environment variable GRADIO_SERVER_PORT, or the first free port from 7860 on.
        prevent_thread_lock: return, and serve until the process ends.
        **options: others of `gr.Blocks.launch`.
    """
    page.launch(
        server_name=host,
        server_port=port,
        share=False,
        # Gradio would advise to share the page with everybody.
        quiet=True,
        prevent_thread_lock=True,
        state_session_capacity=_VISITORS,
        **_serving_options(),
        **options,
    )

    print(f"Running on {page.local_url}", flush=True)
    if not prevent_thread_lock:
        page.block_thread()


def mount_page(app: Starlette, page: gr.Blocks, path: str) -> None:
    """Let another application serve the page, with nothing from elsewhere.

    Args:
        app: serves the page, and runs what it needs.
        page: is served.
        path: where, such as "/demo".
    """
    page.state_session_capacity = _VISITORS
    gr.mount_gradio_app(app, page, path, **_serving_options())


def _serving_options() -> dict[str, Any]:
    """Return what a page is served with, alone or by another application."""
    theme = gr.themes.Default(primary_hue="blue").set(block_info_text_color="*neutral_600")
    return {
        "ssr_mode": False,
        "run_history": False,
        "footer_links": [],
        "show_error": True,
        "theme": theme,
        "css_paths": Path(__file__).with_name("demo_page.css"),
        "max_file_size": 1,
        "app_kwargs": {"middleware": [Middleware(Door)]},
    }


def _panel(number: int) -> dict[str, gr.components.Component]:
    """Make the components that show a checkpoint's answer, by name, from top to bottom."""

    def hidden(part: str) -> dict[str, Any]:
        return {"elem_id": f"{part}-{number + 1}", "visible": False}

    style = {"interactive": False, "buttons": ["copy"], "elem_classes": "translation"}
    pictured = {"show_label": False, "format": "png", "buttons": ["download", "fullscreen"], "elem_classes": "picture"}
    return {
        "problem": gr.HTML(**hidden("problem")),
        "translation": gr.Textbox(label="Translation", elem_id=f"translation-{number + 1}", **style),
        "title": gr.Radio(label="Picture", **hidden("title")),
        "reading": gr.Markdown(elem_classes="small", **hidden("reading")),
        "step": gr.Slider(1, 2, step=1, label="Step: the word that is written", **hidden("step")),
        "picture": gr.Image(**pictured, **hidden("picture")),
        "architecture": gr.Markdown(elem_classes="small", **hidden("architecture")),
        "routing": gr.State(time_to_live=_KEPT),
    }


def _connect(
    reply: Reply, listeners: Sequence[Callable[..., Any]], inputs: list[Any], panel: dict[str, gr.components.Component]
) -> None:
    """Let events fill the panel, and the panel's own controls draw another picture."""
    drawing = {
        "fn": _draw,
        "inputs": [panel[name] for name in ("routing", "title", "step")],
        "outputs": [panel[name] for name in ("reading", "step", "picture")],
        "show_progress": "minimal",
        "show_progress_on": panel["picture"],
    }

    def respond(name: str | None, sentence: str, shown: bool, title: str | None) -> list[Any]:
        """Return what fills the panel, unless another panel is shown.

        Args:
            name: of the model.
            sentence: the source.
            shown: whether the panel is shown.
            title: of the picture that is shown.
        """
        if not shown:
            return [gr.skip()] * len(panel)
        return _respond(reply, name, sentence, title)

    # One panel at a time, because they share the processor.
    asking = {"inputs": [*inputs, panel["title"]], "outputs": list(panel.values()), "concurrency_id": "model"}
    for listen in listeners:
        listen(fn=respond, **asking).then(**drawing)
    gr.on([panel["title"].input, panel["step"].input], **drawing, trigger_mode="always_last")


class Answer(NamedTuple):
    """The routing and translation of a sentence, a description of the model, and what the visitor should change."""

    routing: SentenceRouting | None = None
    architecture: str = ""
    problem: str = ""


def answer(
    load: Load,
    name: str | None,
    sentence: str | None,
    languages: tuple[str | None, str | None] = (None, None),
) -> Answer:
    """Translate a sentence. A mistake of the visitor becomes the answer's problem.

    Args:
        load: loads a model and its tokenizer.
        name: that of the model.
        sentence: what is translated.
        languages: source and target language. Models of one pair are not told them.
    """
    try:
        text = " ".join((sentence or "").split())
        name = (name or "").strip()
        if not text or not name:
            raise UserError("Type a sentence, and choose a checkpoint: its folder, or its name on the Hub.")
        if len(text) > LONGEST_INPUT:
            raise UserError(f"The text has more than {LONGEST_INPUT} characters. Shorten it.")
        _check_characters(text)

        model, tokenizer = load(name)
        _check_length(model, tokenizer, text)

        known = KnownLanguages(tokenizer)
        source, target = languages
        direction = ONE_PAIR
        if known.are_arguments:
            direction = known.direction(source, target)
        elif known.codes:
            direction = known.direction(None, target)

        problem = ""
        [text] = texts_with_codes(known.codes, [text], direction.code)
        if known.codes.are_missing([text]):
            problem = f"The model was not told which language to write: {known.codes.missing()}."

        architecture = f"{describe_architecture(model.config)} {count_parameters(model):,} parameters."
        return Answer(read_sentence(model, tokenizer, text, direction), architecture, problem)
    except (ValueError, OSError, StrictDataclassError) as error:
        # A checkpoint that a visitor names may be broken in many ways, which only its loaders know.
        return Answer(problem=sentence_of(error))


def _check_characters(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        # A browser can send half of a pair of UTF-16, which no tokenizer reads.
        number = ord(text[error.start])
        raise UserError(f"The text has U+{number:04X}, which is only half of a character. Remove it.") from error


def _check_length(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    limit = source_limit(model.config, tokenizer)
    [token_ids] = tokenize_lines(tokenizer, [text])
    if len(token_ids) > limit:
        raise UserError(f"The sentence has {len(token_ids)} tokens, and this model reads at most {limit}. Shorten it.")


def _respond(reply: Reply, name: str | None, sentence: str, title: str | None) -> list[Any]:
    """Return the updates of a panel's components, without the picture."""
    answered = reply(name, sentence)
    routing = answered.routing

    problem = f'<div class="problem" role="alert">{escape(answered.problem)}</div>'
    translation = ""
    titles: list[str] = []
    steps = 0
    if routing is not None:
        translation = routing.translation
        steps = len(routing.target_words)
        # There are none without routing, or if the model wrote nothing.
        titles = list(sentence_pictures(routing, 0)) if steps else []

    # The picture that was chosen before, if the new model has it.
    chosen = title if title in titles else next(iter(titles), None)

    # Not as components: one that is made while another page is being built would join that page.
    return [
        gr.update(value=problem, visible=bool(answered.problem)),
        translation,
        gr.update(choices=titles, value=chosen, visible=len(titles) > 1),
        gr.update(value=_NO_PICTURE, visible=routing is not None and not titles),
        gr.update(maximum=max(2, steps), value=1, visible=False),
        gr.update(value=None, visible=False),
        gr.update(value=answered.architecture, visible=routing is not None),
        routing,
    ]


def _draw(routing: SentenceRouting | None, title: str | None, step: float | None) -> list[Any]:
    """Return the new words on the picture, slider and picture."""
    nothing = [gr.skip()] * 3
    if routing is None or step is None or not routing.target_words:
        return nothing

    # The slider may still be where the sentence before had more words.
    step = max(1, min(int(step), len(routing.target_words)))
    draw = sentence_pictures(routing, step - 1).get(title)
    if draw is None:
        return nothing

    stream = BytesIO()
    draw().savefig(stream, format="png", dpi=150, bbox_inches="tight")
    return [
        gr.update(value=look_for(title), visible=True),
        gr.update(visible=follows_step(title) and len(routing.target_words) > 1),
        gr.update(value=Image.open(stream), alt_text=title, visible=True),
    ]
