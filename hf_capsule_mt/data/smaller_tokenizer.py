"""Drops tokens from the files of a tokenizer. A text whose tokens all stay is cut as before.

In a vocabulary by SentencePiece's unigrams (Kudo 2018) the most likely way to cut a text stays the most likely one if
others are gone. With BPE (Sennrich et al. 2016) every token needs those that it is joined from, see [`joined_parts`].
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from transformers import (
    M2M100Tokenizer,
    MarianTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from hf_capsule_mt.data.tokenizer import save_tokenizer, vocabulary_of
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import read_json, write_json

_TOKENIZER_JSON = "tokenizer.json"
_CONFIG = "tokenizer_config.json"
_NORMAL = 1
"""The type of SentencePiece's pieces that stand for text."""
_BPE = 2
"""The type of SentencePiece's models that join letters."""
_LISTS_OF_TOKENS = ("extra_special_tokens", "additional_special_tokens")
"""Fields of tokenizer_config.json. Transformers adds tokens that stand there to the vocabulary."""

Rank = Callable[[str, str], float | None]
"""Says how early two neighbours are joined, the least number first. None: never."""


def joined_parts(token: str, rank: Rank) -> set[str]:
    """Return the tokens that BPE joins on its way to a token.

    If they stay, BPE still finds the token wherever it did: it joins the same neighbours in the same order. Rules that
    are gone were not the first to apply there.

    Args:
        token: of a vocabulary.
        rank: when two neighbours are joined.

    Returns:
        The token's letters and what is joined from them. Nothing if its letters are never joined to the token.
    """
    symbols = list(token)
    parts = set(symbols)
    while len(symbols) > 1:
        ranks = [rank(left, right) for left, right in pairwise(symbols)]
        known_ranks = [number for number in ranks if number is not None]
        if not known_ranks:
            return set()
        place = ranks.index(min(known_ranks))
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
        parts.add(symbols[place])
    return parts


class TokenizerJson:
    """The file tokenizer.json of a tokenizer of the library `tokenizers`.

    Args:
        path: the file.

    Raises:
        UserError: if it cuts texts in a way in which no token can be dropped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._settings = read_json(path)
        self._model = self._settings["model"]
        kind = self._model.get("type")
        has_marks = self._model.get("continuing_subword_prefix") or self._model.get("end_of_word_suffix")
        if kind not in ("BPE", "Unigram", "WordLevel") or has_marks:
            raise UserError(
                f"The tokenizer cuts words by {kind}{' with marks' if has_marks else ''}. Only BPE without marks, "
                "Unigram and WordLevel can be made smaller."
            )

    @cached_property
    def _merges(self) -> list[tuple[str, str]]:
        """The pairs that BPE joins, the first first."""
        return [tuple(pair) for pair in self._model.get("merges", [])]

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], int]:
        return {pair: number for number, pair in enumerate(self._merges)}

    @property
    def least_likely(self) -> str | None:
        """The token by whose score unknown letters are scored, if there is one."""
        if self._model["type"] != "Unigram":
            return None
        token, _ = min(self._model["vocab"], key=lambda entry: entry[1])
        return token

    def parts_of(self, token: str) -> set[str]:
        """Return the tokens without which a token would not be found."""
        if self._model["type"] != "BPE":
            return set()
        return joined_parts(token, lambda left, right: self._ranks.get((left, right)))

    def keep(self, new_ids: Mapping[int, int]) -> None:
        """Drop the other tokens, and write the file.

        Args:
            new_ids: the new id of each token that stays, by the old one, in the same order.
        """
        model = self._model
        vocabulary = model["vocab"]
        if model["type"] == "Unigram":
            model["vocab"] = [entry for token_id, entry in enumerate(vocabulary) if token_id in new_ids]
            model["unk_id"] = new_ids.get(model["unk_id"])
        else:
            model["vocab"] = {token: new_ids[old] for token, old in vocabulary.items() if old in new_ids}

        if model["type"] == "BPE":
            # The library refuses a pair of which a token is missing.
            known = model["vocab"].keys()
            model["merges"] = [pair for pair in self._merges if known >= {*pair, "".join(pair)}]

        added = self._settings["added_tokens"]
        self._settings["added_tokens"] = [
            {**token, "id": new_ids[token["id"]]} for token in added if token["id"] in new_ids
        ]
        self._settings["post_processor"] = _with_new_ids(self._settings["post_processor"], new_ids)
        write_json(self._path, self._settings)


def _with_new_ids(processor: Any, new_ids: Mapping[int, int]) -> Any:
    """Return the part of tokenizer.json that puts special tokens around a text, with other ids."""
    if processor is None:
        return None
    processor = dict(processor)

    if processor["type"] == "Sequence":
        processor["processors"] = [_with_new_ids(each, new_ids) for each in processor["processors"]]
    for name, token in processor.get("special_tokens", {}).items():
        processor["special_tokens"][name] = {**token, "ids": [new_ids[old] for old in token["ids"]]}
    for name in ("sep", "cls"):
        if name in processor:
            token, old = processor[name]
            processor[name] = [token, new_ids[old]]

    return processor


class SentencePieceModel:
    """A file of SentencePiece, whose pieces are looked up in another file.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        # It needs protobuf, which comes with tensorboard.
        from sentencepiece import sentencepiece_model_pb2

        self._path = path
        self._model = sentencepiece_model_pb2.ModelProto()
        self._model.ParseFromString(path.read_bytes())

    @cached_property
    def _scores(self) -> dict[str, float]:
        """The scores of the pieces that stand for text."""
        return {piece.piece: piece.score for piece in self._model.pieces if piece.type == _NORMAL}

    @property
    def _is_bpe(self) -> bool:
        return self._model.trainer_spec.model_type == _BPE

    @property
    def least_likely(self) -> str | None:
        """The piece by whose score unknown letters are scored."""
        return min(self._scores, key=self._scores.__getitem__, default=None)

    def parts_of(self, token: str) -> set[str]:
        """Return the pieces without which a piece would not be found."""
        if not self._is_bpe or token not in self._scores:
            return set()
        return joined_parts(token, self._rank)

    def _rank(self, left: str, right: str) -> float | None:
        score = self._scores.get(left + right)
        return None if score is None else -score

    def keep(self, tokens: Iterable[str], dropped: Iterable[str]) -> None:
        """Drop pieces, and write the file.

        Pieces without a token stay: texts with them would be cut in another way, and are unknown in any case.

        Args:
            tokens: those that stay.
            dropped: the other tokens.
        """
        gone = set(dropped) - set(tokens)
        pieces = [piece for piece in self._model.pieces if piece.type != _NORMAL or piece.piece not in gone]
        del self._model.pieces[:]
        self._model.pieces.extend(pieces)
        self._model.trainer_spec.vocab_size = len(pieces)
        self._path.write_bytes(self._model.SerializeToString())


class VocabularyFiles:
    """The files of one vocabulary: a tokenizer.json, or a JSON file of tokens with its files of SentencePiece.

    Args:
        token_ids: the ids by token.
        tokenizer_json: the first kind, or None.
        list_file: the JSON file of the second kind, or None.
        sentencepieces: the files that cut texts for it.
    """

    def __init__(
        self,
        token_ids: dict[str, int],
        tokenizer_json: TokenizerJson | None = None,
        list_file: Path | None = None,
        sentencepieces: Sequence[SentencePieceModel] = (),
    ) -> None:
        self.token_ids = token_ids
        self._tokenizer_json = tokenizer_json
        self._list_file = list_file
        self._sentencepieces = sentencepieces
        self._tokens = {token_id: token for token, token_id in token_ids.items()}

    @property
    def _cutters(self) -> list[TokenizerJson | SentencePieceModel]:
        if self._tokenizer_json is not None:
            return [self._tokenizer_json]
        return list(self._sentencepieces)

    @property
    def always(self) -> list[int]:
        """Tokens on whose scores depends how unknown letters are cut off."""
        tokens = [cutter.least_likely for cutter in self._cutters]
        return [self.token_ids[token] for token in tokens if token in self.token_ids]

    def parts_of(self, token_id: int) -> list[int]:
        """Return the tokens without which a token would not be found in texts."""
        token = self._tokens.get(token_id)
        if token is None:
            # Models can have rows that no token stands for.
            return []
        parts: set[str] = set()
        for cutter in self._cutters:
            parts |= cutter.parts_of(token)
        return sorted(self.token_ids[part] for part in parts if part in self.token_ids)

    def keep(self, new_ids: Mapping[int, int]) -> None:
        """Drop the other tokens from the files.

        Args:
            new_ids: the new id of each token that stays, by the old one.
        """
        if self._tokenizer_json is not None:
            self._tokenizer_json.keep(new_ids)
            return
        entries = read_json(self._list_file)
        write_json(self._list_file, {token: new_ids[old] for token, old in entries.items() if old in new_ids})
        kept = [token for token, old in entries.items() if old in new_ids]
        for sentencepiece in self._sentencepieces:
            sentencepiece.keep(kept, entries)


class TokenizerFiles:
    """A tokenizer that is saved in a folder, to drop tokens from it.

    Args:
        tokenizer: the whole one.
        folder: where its files are written.

    Raises:
        UserError: if it is of a kind from which no tokens can be dropped.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
        self._folder = folder
        self._tokenizer = tokenizer
        save_tokenizer(tokenizer, folder)
        self.has_two_vocabularies = bool(getattr(tokenizer, "separate_vocabs", False))
        self._by_side = self._open()

    def _open(self) -> dict[str, VocabularyFiles]:
        folder = self._folder
        tokenizer = self._tokenizer
        source_ids = vocabulary_of(tokenizer)

        if isinstance(tokenizer, PreTrainedTokenizerFast):
            whole = VocabularyFiles(source_ids, TokenizerJson(folder / _TOKENIZER_JSON))
            return {"text": whole, "text_target": whole}

        if isinstance(tokenizer, M2M100Tokenizer):
            pieces = [SentencePieceModel(folder / tokenizer.vocab_files_names["spm_file"])]
            whole = VocabularyFiles(source_ids, list_file=folder / "vocab.json", sentencepieces=pieces)
            return {"text": whole, "text_target": whole}

        if not isinstance(tokenizer, MarianTokenizer):
            raise UserError(f"Tokens cannot be dropped from a {type(tokenizer).__name__}.")
        source = SentencePieceModel(folder / "source.spm")
        target = SentencePieceModel(folder / "target.spm")

        if not self.has_two_vocabularies:
            pieces = [source, target]
            whole = VocabularyFiles(source_ids, list_file=folder / "vocab.json", sentencepieces=pieces)
            return {"text": whole, "text_target": whole}

        target_ids = vocabulary_of(tokenizer, "text_target")
        return {
            "text": VocabularyFiles(source_ids, list_file=folder / "vocab.json", sentencepieces=[source]),
            "text_target": VocabularyFiles(target_ids, list_file=folder / "target_vocab.json", sentencepieces=[target]),
        }

    def of_side(self, side: str) -> VocabularyFiles:
        """Return the vocabulary of sources for "text", or of translations for "text_target". Most have one for both."""
        return self._by_side[side]

    @property
    def sides(self) -> list[str]:
        """One side for each vocabulary."""
        return ["text", "text_target"] if self.has_two_vocabularies else ["text"]

    @property
    def numbers_languages(self) -> bool:
        """Whether the class has a fixed list of languages, and gives each of them a token when it is loaded."""
        return isinstance(self._tokenizer, M2M100Tokenizer)

    def new_ids(self, kept: Iterable[int], side: str) -> dict[int, int]:
        """Return the new ids of tokens by their old ones, in the same order.

        With two vocabularies the special tokens come first, so that they have the same ids in both.
        """
        ordered = sorted(kept)
        if self.has_two_vocabularies:
            token_ids = self.of_side(side).token_ids
            special = [token_ids[token] for token in self._tokenizer.all_special_tokens if token in token_ids]
            first = list(dict.fromkeys(special))
            ordered = [*first, *(token_id for token_id in ordered if token_id not in first)]
        return {old: new for new, old in enumerate(ordered)}

    def keep(self, new_ids: Mapping[str, Mapping[int, int]]) -> None:
        """Drop the other tokens from all files.

        Args:
            new_ids: by side, as of [`new_ids`].
        """
        for side in self.sides:
            self.of_side(side).keep(new_ids[side])
        source_ids = new_ids["text"]
        self._correct_config(source_ids)
        path = self._folder / "added_tokens.json"
        if path.exists():
            added = read_json(path)
            kept = {token: source_ids[old] for token, old in added.items() if old in source_ids}
            write_json(path, kept)

    def _correct_config(self, new_ids: Mapping[int, int]) -> None:
        """Give tokens in tokenizer_config.json their new ids, and drop the others."""
        path = self._folder / _CONFIG
        config = read_json(path)
        token_ids = self.of_side("text").token_ids

        for name in _LISTS_OF_TOKENS:
            if name in config:
                config[name] = [token for token in config[name] if token_ids.get(_text_of(token)) in new_ids]

        if "added_tokens_decoder" in config:
            added = config["added_tokens_decoder"]
            kept = {int(old): token for old, token in added.items() if int(old) in new_ids}
            config["added_tokens_decoder"] = {str(new_ids[old]): token for old, token in kept.items()}

        if "num_madeup_words" in config:
            # M2M-100 has rows that no token stands for. CTranslate2 counts them.
            config["num_madeup_words"] = 0
        write_json(path, config)


def _text_of(token: str | dict[str, Any]) -> str:
    """Return the text of a token in tokenizer_config.json."""
    return token["content"] if isinstance(token, dict) else token
