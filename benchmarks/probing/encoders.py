"""The encoders that probing classifiers read: new ones, trained with the classifier, and those of trained models."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    default_data_collator,
)
from transformers.models.bart.modeling_bart import BartClassificationHead

from benchmarks.probing.classifiers import Classifier
from benchmarks.probing.tasks import ProbingData, labels_of
from hf_capsule_mt.configuration import CapsNMTConfig, preset_config
from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.encoding import encode_lines, source_limit
from hf_capsule_mt.files import hash_file
from hf_capsule_mt.modeling.word_masks import mean_over_words
from hf_capsule_mt.translation.generation.decoder import evaluating, pad_rows

# The rows of Table 1 and the systems they stand for.
AGGREGATIONS = {"base": "transformer", "simple": "head-simple-routing", "em": "head-em-routing"}
ENCODER_LAYERS = 3
TOKENS_PER_BATCH = 8192
_SPECIAL_TOKENS = ["<pad>", "<unk>", "</s>"]  # with the ids of the presets


@dataclass(frozen=True)
class NewEncoder:
    """An encoder of three layers that is trained with its classifier, as in the paper.

    Its heads are aggregated as `AGGREGATIONS` has it, and it knows the most frequent words of the training split.
    """

    aggregation: str
    size: str = "base"
    vocab_size: int = 32000

    @property
    def settings(self) -> dict[str, Any]:
        """Return what the record says of the encoder."""
        return asdict(self)

    def classifier(self, data: ProbingData) -> Classifier:
        """Return a classifier of sentences."""
        tokenizer = train_word_tokenizer(_sentences(data["tr"]), self.vocab_size)
        token_ids = [tokenizer(_sentences(split), verbose=False)["input_ids"] for split in data.values()]
        splits = _splits(data, "input_ids", token_ids)
        config = preset_config(
            AGGREGATIONS[self.aggregation],
            self.size,
            encoder_layers=ENCODER_LAYERS,
            vocab_size=len(tokenizer),
            max_position_embeddings=max(len(item["input_ids"]) for split in splits for item in split),
            num_labels=len(labels_of(data)),
        )
        # Training and saving write more into it, and a resumed run may do less of them.
        fields = config.to_diff_dict()
        model = AutoModelForSequenceClassification.from_config(config)
        return Classifier(model, splits, DataCollatorWithPadding(tokenizer), fields)


class TrainedEncoder:
    """The encoder of a trained translation model, which stays as it is.

    The classifier, with one hidden layer, reads the mean of the encoder's states over a sentence's tokens; of CapsNMT,
    the sentence's state, which is all that its decoder reads; of its hybrid with RNMT, the tokens' states alone. In the
    training split each dimension has mean 0 and deviation 1: models differ in scale, and it says nothing of what they
    know.
    """

    def __init__(self, row: str, folder: str | Path, device: str | torch.device = "cpu") -> None:
        """Load the model in float32."""
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).to(device)
        self.settings = {"model": row, "model_sha256": _hashes(Path(folder))}
        # What was read last: the seeds of a task come one after the other.
        self._data: ProbingData | None = None
        self._examples: list[list[dict[str, Any]]] = []

    def classifier(self, data: ProbingData) -> Classifier:
        """Return a classifier of sentences."""
        if self._data is not data:
            self._examples = self._splits(data)
            self._data = data
        first = self._examples[0][0]
        model = _VectorClassifier(len(first["vectors"]), len(labels_of(data)))
        return Classifier(model, self._examples, default_data_collator, self.model.config.to_diff_dict())

    def _splits(self, data: ProbingData) -> list[list[dict[str, Any]]]:
        vectors = [sentence_vectors(self.model, self.tokenizer, _sentences(split)) for split in data.values()]
        training = vectors[0]
        mean = training.mean(0)
        deviation = training.std(0, correction=0).clamp(min=1e-6)
        return _splits(data, "vectors", [(of_split - mean) / deviation for of_split in vectors])


def _hashes(folder: Path) -> dict[str, str]:
    """Return the hashes of a model's files, by name."""
    files = [file for ending in ("*.safetensors", "*.json", "*.spm") for file in folder.glob(ending)]
    # These say how the model was trained, and change without it.
    records = ("record.json", "state.json", "average.json")
    return {file.name: hash_file(file) for file in sorted(files) if not file.name.endswith(records)}


class _VectorClassifier(nn.Module):
    """A classifier with one hidden layer, like that of the paper's encoders, but without dropout."""

    def __init__(self, width: int, num_labels: int) -> None:
        super().__init__()
        self.head = BartClassificationHead(width, width, num_labels, pooler_dropout=0.0)

    def forward(self, vectors: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the loss and the logits `[batch, labels]` of vectors `[batch, width]`."""
        logits = self.head(vectors)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


@torch.no_grad()
def sentence_vectors(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str]) -> Tensor:
    """Return what the encoder of a translation model makes of sentences, `[sentences, d]`; see [`TrainedEncoder`].

    A sentence that is longer than the model's limit is cut, with a warning.
    """
    encoded = encode_lines(tokenizer, sentences, source_limit(model.config, tokenizer))
    lengths = [len(ids) for ids in encoded]
    vectors = torch.zeros(len(sentences), model.config.d_model)
    with evaluating(model):
        for batch in batch_by_tokens(lengths, max(TOKENS_PER_BATCH, *lengths)):
            token_ids = [encoded[index] for index in batch]
            input_ids, mask = pad_rows(token_ids, model.config.pad_token_id, model.device)
            outputs = model.get_encoder()(input_ids, attention_mask=mask.long())
            if isinstance(model.config, CapsNMTConfig):
                of_sentences = outputs.sentence_state
            else:
                of_sentences = mean_over_words(outputs.last_hidden_state, mask)
            vectors[batch] = of_sentences.float().cpu()
    return vectors


def train_word_tokenizer(sentences: Sequence[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens are the words between spaces, the most frequent in `sentences`; others are `<unk>`."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=_SPECIAL_TOKENS, show_progress=False)
    tokenizer.train_from_iterator(sentences, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", eos_token="</s>")


def _splits(data: ProbingData, name: str, values: Sequence[Sequence[Any]]) -> list[list[dict[str, Any]]]:
    """Return the examples of every split: the values of its sentences by this name, and the labels' numbers."""
    numbers = {label: number for number, label in enumerate(labels_of(data))}
    splits = []
    for of_split, split in zip(values, data.values(), strict=True):
        examples = []
        for value, (label, _) in zip(of_split, split, strict=True):
            examples.append({name: value, "labels": numbers[label]})
        splits.append(examples)
    return splits


def _sentences(split: Sequence[tuple[str, str]]) -> list[str]:
    return [sentence for _, sentence in split]
