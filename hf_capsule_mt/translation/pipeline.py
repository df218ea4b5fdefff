"""`pipeline("translation")` with the decoder engine, documents, tags, and parts that are kept."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from regex import Pattern
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, PreTrainedTokenizerBase
from transformers.pipelines.base import ChunkPipeline
from transformers.utils import logging

from hf_capsule_mt.data.languages import OF_FUNCTIONS, Direction
from hf_capsule_mt.data.shortlists import read_shortlist
from hf_capsule_mt.decoding import ShortlistLogitsProcessor
from hf_capsule_mt.decoding.precision import dtype_to_load, engine_dtype, fit_weights, name_of
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.loading import LoadReport, check_loaded, commit_of, load_model, load_tokenizer

from .alignment.forced import start_token
from .alignment.links import NOT_ALIGNABLE
from .generation.settings import ENGINES
from .portable_pipeline import flat_results, languages_of_task, list_or_generator, sorted_options
from .preparation import PreparedText, TextOptions, TooLong, TooLongError
from .terms.glossary import Glossary
from .text.segments import language_code
from .text.words import keep_pattern, with_addresses
from .text_translator import TextTranslator
from .translation import Translation, with_alternatives

logger = logging.get_logger(__name__)

_OF_ANSWERS = ("return_scores", "return_alignments", "clean_up_tokenization_spaces")
"""Options of both `_forward` and `postprocess`."""
_OF_PREPROCESS = ("src_lang", "tgt_lang", "truncation", "documents", "tags", "keep", "translate_addresses", "glossary")
_MORE_THAN_TOKENS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
"""Options of `generate()` that ask for what a pipeline does not return."""
_SENTENCE_END = re.compile(r"""(?<![.!?…])[.!?…]++["'”»)]*+(?:\s|\Z)|[。！？]""")
"""The end of a sentence in most scripts. An abbreviation looks the same."""
load_reports: WeakKeyDictionary[PreTrainedModel, LoadReport] = WeakKeyDictionary()
"""Reports of models that were loaded for a pipeline, until it takes them."""


class TranslationPipeline(ChunkPipeline):
    """Translates texts with any encoder-decoder.

    `pipeline("translation", model=...)` makes one. `pipeline("translation_xx_to_yy", ...)` also names the languages.

    Example:

        translator = pipeline("translation", model="Helsinki-NLP/opus-mt-en-de")
        translator("A dog runs.")                    # [{"translation_text": "Ein Hund läuft."}]
        translator(["A dog runs.", "It is late."], num_beams=5, batch_size=2)
        for result in tqdm(translator(data["en"])):  # a generator, or a column of a stream: translated as they come
            ...

    The decoder engine of this package gives the same tokens as `generate()`, which decodes where the engine cannot. On
    a CPU, weights that were saved in 16 bits are used in 32 bits, unless `dtype` says otherwise. A text without letters
    is its own translation.

    The arguments below can be given when the pipeline is made or when it is called. All others go to `generate()`.
    Without a limit to the length, a translation has at most twice as many tokens as its source and 20 more.

    Args:
        dtype: "int8" or "bfloat16" is the precision of the engine. When the pipeline is made, it may be any other that
            weights can have.
        src_lang: code of the source language, for tokenizers that take one (mBART, M2M-100, NLLB).
        tgt_lang: code of the target language, for the same tokenizers. For multilingual OPUS-MT it is the `pt` of
            `>>pt<<`. A text may also begin with `>>pt<<`.
        truncation: whether a text that is too long for the model is cut. By default it is refused.
        documents: whether texts are documents of any length. Their sentences are translated one by one, and paragraphs
            are kept. Give the language, such as "en", or True where `src_lang` names it. Needs the library sentencex.
        tags: whether texts have tags of XML or HTML. The model does not see them, and its cross-attention says where
            they go in the translation. Tags of blocks, such as `<p>`, end a sentence.
        keep: a regular expression for parts that are not translated, such as numbers or placeholders.
        translate_addresses: whether addresses in documents and in texts with tags are translated like words. By
            default they stay, except with `return_alignments`.
        vocabulary: file of the words that translations may have, by the command `shortlist`.
        glossary: terms that translations must have: a file (.tsv, .csv or .tbx), or a [`Glossary`].
        return_scores: whether results have a `score`, see [`Translation`].
        return_alignments: whether results have a `word_alignment` and a `character_alignment`: which words of the text
            and of the translation belong together, see [`WordLink`].
        return_tensors: whether results have `translation_token_ids` instead of `translation_text`.
        clean_up_tokenization_spaces: as in a tokenizer's `decode()`.
        batch_size: sentences translated together, by default 1.
        num_workers: has no effect. Texts are prepared in the process that translates them.
        engine: "fast" (the default), or "transformers", which leaves all to `generate()`.
    """

    _load_processor = _load_image_processor = _load_feature_extractor = False
    _load_tokenizer = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        dtype = kwargs.get("dtype")
        engine = kwargs.get("engine")
        report = load_reports.pop(self.model, None)
        # The model of a user stays as it is.
        if report is not None:
            # `model_kwargs` may name it too.
            dtype = report.dtype
            if report.unfit is not None:
                check_loaded(self.model, report.unfit, **report.where)
            fit_weights(self.model, self.device, dtype, engine)
        self._dtype = engine_dtype(self.model, self.device, dtype, engine)
        # The prefix and generation settings that models such as T5 have for each task.
        settings_of_tasks = getattr(self.model.config, "task_specific_params", None) or {}
        known_tasks = sorted(task for task in settings_of_tasks if task.startswith("translation"))
        if known_tasks and self.task not in known_tasks:
            logger.warning(f"Texts have no prefix. To add it, name the task, as in pipeline({known_tasks[0]!r}).")
        settings = settings_of_tasks.get(self.task, {})
        self._task_settings = _of_generation_config(settings)
        self._texts = TextTranslator(self.model, self.tokenizer, settings.get("prefix", ""))

    @property
    def texts(self) -> TextTranslator:
        """What prepares texts and joins their translations."""
        texts = self._texts
        # Whoever gives the pipeline another model wants that to translate.
        if texts.model is not self.model or texts.tokenizer is not self.tokenizer:
            self._texts = TextTranslator(self.model, self.tokenizer, texts.reader.prefix)
        return self._texts

    # Transformers calls the next method when the pipeline is made and at each call of it, and then `get_iterator`.

    def _sanitize_parameters(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        if options.get("engine") not in (None, *ENGINES):
            raise UserError(f"engine must be one of {', '.join(ENGINES)}")
        options = self._with_files_read(options)
        for name in _MORE_THAN_TOKENS:
            if options.get(name):
                logger.warning_once(f"A pipeline returns texts, so {name} has no effect. Call generate() for it.")
        answers = _taken_out(options, _OF_ANSWERS)
        as_objects = _taken_out(options, ("return_objects",))
        _check_alignable({**options, **answers})
        if answers.get("return_alignments"):
            # Words are not aligned with kept parts.
            options["translate_addresses"] = True
        of_preprocess, of_forward, of_postprocess = sorted_options(options, _OF_PREPROCESS)
        return of_preprocess, {**of_forward, **answers}, {**of_postprocess, **answers, **as_objects}

    def _with_files_read(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return options with a compiled `keep`, and with what is in the files of `glossary` and `vocabulary`."""
        options = dict(options)
        if "dtype" in options:
            options["dtype"] = name_of(options["dtype"])
        keep = options.get("keep")
        if keep is not None:
            if not isinstance(keep, str | Pattern):
                raise UserError(f"keep is {keep!r:.80}. Give one regular expression, such as keep='one|another'.")
            options["keep"] = keep_pattern(keep)
        glossary = options.get("glossary")
        if isinstance(glossary, str | Path):
            source, target = languages_of_task(self.task)
            languages = options.get("src_lang") or source, options.get("tgt_lang") or target
            options["glossary"] = Glossary.read(glossary, *languages)
        vocabulary = options.pop("vocabulary", None)
        if vocabulary is not None:
            shortlist = ShortlistLogitsProcessor(read_shortlist(Path(vocabulary), self.tokenizer))
            options["logits_processor"] = LogitsProcessorList([*(options.get("logits_processor") or ()), shortlist])
        return options

    def __call__(self, inputs: str | Iterable[str], **kwargs: Any) -> Any:
        """Translate a text, a list of texts, or an iterable of texts, which is read as it is translated.

        Returns:
            A list of one dictionary for a text, a list of dictionaries for a list, and an iterator over the results of
            each text for an iterable. Where `generate()` returns several sequences, each text has a list of them.
        """
        inputs = list_or_generator(inputs)
        results = []
        if inputs != []:
            results = super().__call__(inputs, **kwargs)
        return flat_results(inputs, results)

    def translate(self, texts: str | Sequence[str], **options: Any) -> Translation | list[Translation]:
        """Translate a text, or each of a list of texts, and return what a program reads easily.

        Example:

            translation = translator.translate("A dog runs.", num_beams=4, num_return_sequences=2)
            print(translation.text, translation.score, translation.alternatives[0].text)

        Args:
            texts: a text, or several.
            **options: those of a call. `return_scores` is True by default.

        Returns:
            A [`Translation`] for each text. Where several are asked for, the best has the others as alternatives.
        """
        is_one = isinstance(texts, str)
        inputs = [texts]
        if not is_one:
            inputs = list(texts)
        options = {"return_scores": True, **options, "return_objects": True}
        results = []
        if inputs:
            results = super().__call__(inputs, **options)
        translations = [with_alternatives(ranked) for ranked in results]
        if is_one:
            return translations[0]
        return translations

    def get_iterator(
        self,
        inputs: Iterable[str],
        num_workers: int,
        batch_size: int,
        preprocess_params: dict[str, Any],
        forward_params: dict[str, Any],
        postprocess_params: dict[str, Any],
    ) -> Iterator[Any]:
        """Yield the results of each text. The sentences of several texts share a batch.

        Transformers does it with a DataLoader, which takes longer than the tokenizer of a short sentence.

        Args:
            inputs: the texts. They are read as they are translated.
            num_workers: has no effect. Texts are prepared in this process.
            batch_size: sentences translated together.
            preprocess_params: options of [`preprocess`].
            forward_params: options of [`_forward`].
            postprocess_params: options of [`postprocess`].

        Raises:
            UserError: if there is no such `batch_size`, or texts with tags are to be aligned, and as [`preprocess`]
                and [`postprocess`] do.
        """
        if batch_size < 1:
            raise UserError(f"batch_size is {batch_size}. Give 1 or more.")
        # Some of these options may be those of the pipeline, others those of the call.
        _check_alignable({**preprocess_params, **forward_params})
        sentences = self._sentences(inputs, preprocess_params)
        of_text = []
        while batch := list(islice(sentences, batch_size)):
            outputs = self.forward({"sentences": [item["sentence"] for item in batch]}, **forward_params)
            for item, ranked in zip(batch, outputs["decoded"], strict=True):
                of_text.append({**item, "decoded": ranked, "count": outputs["count"]})
                if item["is_last"]:
                    yield self.postprocess(of_text, **postprocess_params)
                    of_text = []

    def _sentences(self, texts: Iterable[str], options: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the sentences of texts one after the other."""
        for text in texts:
            yield from self.preprocess(text, **options)

    def preprocess(
        self,
        text: str,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        truncation: bool = False,
        documents: bool | str = False,
        tags: bool = False,
        keep: Pattern | None = None,
        translate_addresses: bool = False,
        glossary: Glossary | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield the sentences of a text: one, or those of a document, or of a text with tags.

        Args:
            text: the text.
            src_lang: code of the source language, by default that in the name of the task, or the tokenizer's.
            tgt_lang: code of the target language, with the same defaults.
            truncation: whether a sentence that is too long is cut.
            documents: whether the text has several sentences, or the language in which it has them.
            tags: whether the text has tags.
            keep: finds parts that are not translated.
            translate_addresses: whether addresses in a document, or in a text with tags, are translated like words.
            glossary: terms that the translation must have.

        Raises:
            UserError: if there is no such language, a tag is wrong, or a sentence is too long.
        """
        reader = self.texts.reader
        direction = self.direction(src_lang, tgt_lang)
        source = direction.source or src_lang or languages_of_task(self.task)[0]
        language = language_code(source) if documents is True else documents or None
        if (documents or tags) and not translate_addresses:
            keep = with_addresses(keep)
        options = TextOptions(language, tags, keep, glossary)
        too_long = TooLong.CUT if truncation else TooLong.REFUSE
        try:
            prepared = reader.prepare(text, options, direction=direction, too_long=too_long)
        except TooLongError as error:
            raise UserError(
                f"A text has over {error.limit} tokens, and the model reads {error.limit}. Give documents, such as "
                "documents='en', to translate its sentences one by one, or truncation=True to cut it."
            ) from error
        self._warn_of_missing_codes(prepared)
        for number, sentence in enumerate(prepared.sentences, 1):
            yield {"sentence": sentence, "text": prepared.text, "is_last": number == len(prepared.sentences)}

    def direction(self, source: str | None, target: str | None) -> Direction:
        """Return the languages of texts: those given, those in the name of the task, or the tokenizer's.

        Raises:
            UserError: if there is no such language, or the tokenizer needs one that is missing.
        """
        languages = self.texts.reader.languages
        source_of_task, target_of_task = languages_of_task(self.task)
        if languages.are_arguments:
            pair = source or source_of_task, target or target_of_task
            return languages.direction(*pair, OF_FUNCTIONS, needs_source=False)
        # The name of a task may have a language without a code. Only what the user asks for must be there.
        if target is None and target_of_task in languages.codes.languages:
            target = target_of_task
        # Models of one source language need not be told it. It may say whose sentences are found.
        return languages.direction(None, target, OF_FUNCTIONS)

    def _warn_of_missing_codes(self, prepared: PreparedText) -> None:
        codes = self.texts.reader.codes
        segments = [sentence.segment for sentence in prepared.sentences]
        if codes and any(segment.text and not segment.code for segment in segments):
            logger.warning_once(f"{codes.missing()}, or give tgt_lang={codes.languages[0]!r}.")

    def _forward(
        self,
        model_inputs: dict[str, Any],
        return_scores: bool = False,
        return_alignments: bool = False,
        clean_up_tokenization_spaces: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        if "generation_config" not in options:
            options = {**self._task_settings, **options}
        options["engine"] = options.get("engine") or "fast"
        options["dtype"] = "float32" if options["engine"] == "transformers" else options.get("dtype", self._dtype)
        options["forces_end"] = True
        sentences = model_inputs["sentences"]
        count = options.pop("num_return_sequences", None) or self.texts.decoder(**options).count
        decoded = self.texts.decode(
            sentences,
            num_return_sequences=count,
            return_scores=return_scores,
            return_alignments=return_alignments,
            clean_up_tokenization_spaces=clean_up_tokenization_spaces,
            **options,
        )
        for sentence, ranked in zip(sentences, decoded, strict=True):
            if ranked:
                _warn_of_lost_sentences(sentence.segment.text, ranked[0].text)
        return {"decoded": decoded, "count": count}

    def postprocess(
        self,
        outputs: Sequence[dict[str, Any]],
        return_tensors: bool = False,
        clean_up_tokenization_spaces: bool = False,
        return_scores: bool = False,
        return_alignments: bool = False,
        return_objects: bool = False,
    ) -> list[dict[str, Any]] | list[Translation]:
        """Return the translations of one text, with the tags of its sentences, and the parts that are kept.

        Args:
            outputs: of its sentences.
            return_tensors: whether token ids are returned.
            clean_up_tokenization_spaces: as in a tokenizer's `decode()`.
            return_scores: whether translations have a score.
            return_alignments: whether words are aligned.
            return_objects: whether each is a [`Translation`], not a dictionary.

        Raises:
            UserError: if there are several sentences, or alignments, and token ids are asked for.
        """
        if return_tensors:
            return self._token_ids(outputs, return_scores, return_alignments)
        prepared = PreparedText([output["sentence"] for output in outputs], outputs[0]["text"])
        best = self.texts.join(
            prepared,
            [output["decoded"] for output in outputs],
            has_links=return_alignments,
            clean_up_tokenization_spaces=clean_up_tokenization_spaces,
        )
        # All translations of a copy are the same.
        results = [replace(best.number(number), alternatives=()) for number in range(outputs[0]["count"])]
        if return_objects:
            return results
        return [result.fields(return_scores) for result in results]

    def _token_ids(
        self, outputs: Sequence[dict[str, Any]], return_scores: bool, return_alignments: bool
    ) -> list[dict[str, Any]]:
        """Return the translations of one text as token ids with the start token, padded to one length."""
        if len(outputs) > 1:
            raise UserError("A text in several parts has a translation as text. Leave out return_tensors.")
        if return_alignments:
            raise UserError("Alignments are between texts. Leave out return_tensors or return_alignments.")
        ranked = outputs[0]["decoded"]
        if not ranked:
            nothing = {"translation_token_ids": torch.empty(0, dtype=torch.long)}
            if return_scores:
                nothing["score"] = None
            return [nothing] * outputs[0]["count"]
        start = start_token(self.model)
        rows = [torch.tensor([start, *one.ids]) for one in ranked]
        # As generate() fills up the translations of one text.
        ends = self.model.generation_config.eos_token_id
        padding = self.model.generation_config.pad_token_id or (ends[0] if isinstance(ends, list) else ends)
        padded = pad_sequence(rows, batch_first=True, padding_value=padding)
        results = [{"translation_token_ids": token_ids} for token_ids in padded]
        if return_scores:
            for result, one in zip(results, ranked, strict=True):
                result["score"] = one.score
        return results


def pipeline(
    model: str | Path | PreTrainedModel,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    task: str = "translation",
    revision: str | None = None,
    device: int | str | torch.device | None = None,
    dtype: str | torch.dtype = "auto",
    **options: Any,
) -> TranslationPipeline:
    """Make a pipeline without Transformers' own function, which no longer knows the task.

    Example:

        translator = hf_capsule_mt.pipeline("Helsinki-NLP/opus-mt-en-de")
        translator("A dog runs.")  # [{"translation_text": "Ein Hund läuft."}]

    Args:
        model: folder of a checkpoint, name on the Hub, or a model. No code of a checkpoint runs.
        tokenizer: the model's, by default that of the checkpoint. A model needs it.
        task: "translation", or "translation_xx_to_yy" to name the languages.
        revision: branch, tag or commit of a model on the Hub.
        device: by default a GPU if there is one.
        dtype: precision. By default the checkpoint's, and on a CPU float32. "int8" and "bfloat16" are the engine's.
        **options: arguments of [`TranslationPipeline`], and of `generate()`.

    Raises:
        OSError: if there is no such checkpoint.
        UserError: if the checkpoint is damaged, a model has no tokenizer, or int8 is asked of what it is not for.
    """
    if isinstance(model, PreTrainedModel):
        if tokenizer is None:
            raise UserError("A model has no tokenizer. Give tokenizer=, or the name of a checkpoint.")
    else:
        commit = commit_of(model, revision)
        tokenizer = tokenizer or load_tokenizer(model, commit)
        model = load_model(model, revision=commit, dtype=dtype_to_load(dtype, options.get("engine")))
        load_reports[model] = LoadReport(dtype)
    return TranslationPipeline(model=model, tokenizer=tokenizer, task=task, device=device, dtype=dtype, **options)


def _warn_of_lost_sentences(source: str, translation: str) -> None:
    """Warn if a source has several sentences, and its translation fewer. Models for sentences leave out the others."""
    sentences = len(_SENTENCE_END.findall(source))
    if sentences > 1 and len(_SENTENCE_END.findall(translation)) < sentences:
        logger.warning_once(
            "A text has several sentences, and its translation has fewer. Most models translate only one at a time. "
            "Give the language of documents, such as documents='en'."
        )


def _check_alignable(options: dict[str, Any]) -> None:
    """Raise a UserError if options ask for an alignment of texts with tags."""
    if options.get("return_alignments") and (options.get("tags") or options.get("keep") is not None):
        raise UserError(NOT_ALIGNABLE)


def _taken_out(options: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Take options with these names out of others, and return them."""
    return {name: options.pop(name) for name in names if name in options}


def _of_generation_config(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a task that are fields of a generation config, and plain values.

    Other arguments of `generate()` and dictionaries could load and run code.
    """
    names = {name for name in vars(GenerationConfig()) if not name.startswith("_")}
    fields = {}
    for name, value in settings.items():
        if name in names and not isinstance(value, dict):
            fields[name] = value
    return fields
