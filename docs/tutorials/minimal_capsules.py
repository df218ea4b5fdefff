"""A translation model whose layers vote, in one file: EM routing of layers (Dou et al. 2019, arXiv:1902.05770).

    python docs/tutorials/minimal_capsules.py

It trains a small English-German Transformer on a built-in corpus and translates sentences that it has not seen. It
needs PyTorch and nothing else. The model is the one that this package calls `em-routing`, and computes the same
numbers. Read it from top to bottom: routing, the Transformer around it, then data, training and decoding.
"""

import gzip
import math
import random
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass
class Config:
    """The sizes of the model."""

    vocabulary: int
    width: int = 128  # d, the length of every hidden state
    layers: int = 3  # L, in the encoder and in the decoder
    heads: int = 4
    hidden: int = 256  # the hidden layer of the feed-forward networks
    capsules: int = 128  # N, the output capsules. Each has d / N numbers, here one, as in the paper
    iterations: int = 3  # T, the rounds of routing
    dropout: float = 0.1
    positions: int = 64  # the longest sentence, in tokens
    label_smoothing: float = 0.1


# The first three token ids.
PADDING, UNKNOWN, END = 0, 1, 2
SMALL = 1e-8


# ----------------------------------------------------------------------------------------------------------------------
# Routing.
#
# There are L input capsules, one for each layer, and N output capsules. Layer l votes for what output capsule n should
# be. If the votes of several layers for a capsule agree, these layers are assigned to it, and it becomes their mean.
# EM routing finds the assignment as one fits a mixture of Gaussians: output capsules are the Gaussians, votes the data.


def em_routing(votes: Tensor, active: Tensor, beta_a: Tensor, beta_u: Tensor, iterations: int) -> Tensor:
    """Return the output capsules, `[..., N, D]` (Algorithm 2).

    `votes` is `[..., L, N, D]`. `active`, `[..., L, 1]`, is the probability that an input capsule is there at all. The
    costs `beta_a` and `beta_u`, `[N]`, are learned. All leading dimensions, such as sentences and words, are apart.
    """
    # At first every layer is assigned to all output capsules equally: c = 1 / N.
    assignment = torch.full_like(votes[..., 0], 1 / votes.shape[-2])
    # If all votes for a capsule are equal, their variance is 0, and its logarithm is infinite. So a bit is added.
    extra = 0.01 * votes.square().mean((-1, -2, -3)) + SMALL
    extra = extra[..., None, None]
    for iteration in range(1, iterations + 1):
        # M-step: fit the Gaussians. Mean and variance of the votes, weighted by r = c * A (Eq. 11 and 12).
        weight = assignment * active  # [..., L, N]
        total = weight.sum(-2)  # [..., N]
        share = (weight / (total + SMALL).unsqueeze(-2)).unsqueeze(-1)  # [..., L, N, 1]
        mean = (share * votes).sum(-3)  # [..., N, D]
        deviation = votes - mean.unsqueeze(-3)
        variance = (share * deviation.square()).sum(-3) + extra

        # A capsule costs more, the more its votes disagree (Eq. 13). A cheap capsule is more probably there (Eq. 14).
        # The factor in front rises with the iterations. It is that of Hinton et al. 2018.
        cost = (0.5 * variance.log() + 0.5 * (1 + math.log(2 * math.pi))).sum(-1) * total
        inverse_temperature = 0.01 * (1 - 0.95**iteration)
        capsule_logit = inverse_temperature * (beta_a - beta_u * total - cost)
        if iteration == iterations:
            break

        # E-step: assign each layer to the capsules whose Gaussians expect its vote (Eq. 15 and 16). The constant of
        # the Gaussian density is left out, because the softmax would remove it.
        density = -0.5 * (deviation.square() / variance.unsqueeze(-3) + variance.unsqueeze(-3).log()).sum(-1)
        assignment = (F.logsigmoid(capsule_logit).unsqueeze(-2) + density).softmax(-1)
    return capsule_logit.sigmoid().unsqueeze(-1) * mean


class PerLayer(nn.Module):
    """A linear map for each layer: `[..., L, inputs]` to `[..., L, outputs]`."""

    def __init__(self, layers: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(layers, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(layers, outputs))

    def forward(self, states: Tensor) -> Tensor:
        """Map the states of each layer by the matrix of the layer."""
        return torch.einsum("...li,lio->...lo", states, self.weight) + self.bias


class LayerAggregation(nn.Module):
    """What replaces the top layer: the capsules for which all layers voted, one after the other."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        # F of Eq. 8: the input capsule of each layer is computed from all layers.
        self.inputs = nn.Linear(config.layers * config.width, config.layers * config.width)
        # W of Eq. 7, the votes, and of Eq. 10, the activation.
        self.votes = PerLayer(config.layers, config.width, config.width)
        self.active = PerLayer(config.layers, config.width, 1)
        self.beta_a = nn.Parameter(torch.zeros(config.capsules))
        self.beta_u = nn.Parameter(torch.zeros(config.capsules))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, layers: list[Tensor]) -> Tensor:
        """Aggregate the outputs of the layers, each `[batch, words, d]`, to `[batch, words, d]`."""
        concatenated = torch.cat(layers, dim=-1)
        capsules = self.inputs(concatenated).unflatten(-1, (self.config.layers, self.config.width))
        votes = self.votes(capsules).unflatten(-1, (self.config.capsules, -1))
        active = self.active(capsules).sigmoid()
        routed = em_routing(votes, active, self.beta_a, self.beta_u, self.config.iterations)
        return self.norm(routed.flatten(-2))


# ----------------------------------------------------------------------------------------------------------------------
# The Transformer (Vaswani et al. 2017). Nothing here is new, except that encoder and decoder end with an aggregation.


class Attention(nn.Module):
    """Attention with several heads."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.query = nn.Linear(config.width, config.width)
        self.key = nn.Linear(config.width, config.width)
        self.value = nn.Linear(config.width, config.width)
        self.output = nn.Linear(config.width, config.width)

    def forward(self, states: Tensor, source: Tensor, visible: Tensor) -> Tensor:
        """Let `states` read `source`, where `visible` is True."""
        query = self._split(self.query(states))
        key = self._split(self.key(source))
        value = self._split(self.value(source))
        read = F.scaled_dot_product_attention(query, key, value, attn_mask=visible)
        return self.output(read.transpose(1, 2).flatten(-2))

    def _split(self, states: Tensor) -> Tensor:
        # [batch, words, d] to [batch, heads, words, d / heads]
        return states.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Layer(nn.Module):
    """A layer of the encoder, or with `reads_source` of the decoder. The norm follows each sum (post-norm)."""

    def __init__(self, config: Config, reads_source: bool) -> None:
        super().__init__()
        self.self_attention = Attention(config)
        self.self_norm = nn.LayerNorm(config.width)
        if reads_source:
            self.source_attention = Attention(config)
            self.source_norm = nn.LayerNorm(config.width)
        self.expand = nn.Linear(config.width, config.hidden)
        self.contract = nn.Linear(config.hidden, config.width)
        self.feed_norm = nn.LayerNorm(config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, states: Tensor, visible: Tensor, source: Tensor | None = None, source_visible: Tensor | None = None
    ) -> Tensor:
        """Read the own side where `visible` is True, and in the decoder also the source."""
        read = self.self_attention(states, states, visible)
        states = self.self_norm(states + self.dropout(read))
        if source is not None:
            read = self.source_attention(states, source, source_visible)
            states = self.source_norm(states + self.dropout(read))
        new = self.contract(self.expand(states).relu())
        return self.feed_norm(states + self.dropout(new))


def sinusoids(positions: int, width: int) -> Tensor:
    """Return the vectors of the positions: first the sines, then the cosines."""
    frequencies = 10000 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(positions).unsqueeze(-1) * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1).float()


class Translator(nn.Module):
    """Encoder and decoder, with one embedding for the source, the target and the output."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width, PADDING)
        self.register_buffer("positions", sinusoids(config.positions, config.width), persistent=False)
        self.encoder = nn.ModuleList(Layer(config, reads_source=False) for _ in range(config.layers))
        self.decoder = nn.ModuleList(Layer(config, reads_source=True) for _ in range(config.layers))
        self.encoder_aggregation = LayerAggregation(config)
        self.decoder_aggregation = LayerAggregation(config)
        self.dropout = nn.Dropout(config.dropout)
        # All matrices start with the same deviation, and embeddings with 1 after multiplication by sqrt(d).
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.5 * config.width**-0.5)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        nn.init.normal_(self.embedding.weight, std=config.width**-0.5)
        nn.init.zeros_(self.embedding.weight.data[PADDING])

    def embed(self, tokens: Tensor) -> Tensor:
        """Turn token ids `[batch, words]` into vectors `[batch, words, d]`."""
        vectors = self.embedding(tokens) * math.sqrt(self.config.width)
        return self.dropout(vectors + self.positions[: tokens.shape[1]])

    def encode(self, source: Tensor) -> Tensor:
        """Read the source."""
        visible = (source != PADDING)[:, None, None, :]
        states = self.embed(source)
        layers = []
        for layer in self.encoder:
            states = layer(states, visible)
            layers.append(states)
        # A normal Transformer would return layers[-1].
        return self.encoder_aggregation(layers)

    def decode(self, target: Tensor, encoded: Tensor, source: Tensor) -> Tensor:
        """Return the scores of all tokens for the next place, behind every token of the target."""
        length = target.shape[1]
        # A word may look at itself and at those before it.
        visible = torch.ones(length, length, dtype=torch.bool, device=target.device).tril()
        source_visible = (source != PADDING)[:, None, None, :]
        states = self.embed(target)
        layers = []
        for layer in self.decoder:
            states = layer(states, visible, encoded, source_visible)
            layers.append(states)
        return self.decoder_aggregation(layers) @ self.embedding.weight.t()

    def forward(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores and the loss, given token ids of both sides that end with `END`."""
        # The decoder reads the target one place later. Before the first word it reads padding.
        begun = F.pad(target, (1, -1), value=PADDING)
        scores = self.decode(begun, self.encode(source), source)
        loss = F.cross_entropy(
            scores.flatten(0, 1),
            target.flatten(),
            ignore_index=PADDING,
            label_smoothing=self.config.label_smoothing,
        )
        return scores, loss

    @torch.no_grad()
    def translate(self, source: Tensor) -> Tensor:
        """Write the most probable word again and again, until all sentences have ended (greedy decoding)."""
        encoded = self.encode(source)
        target = torch.full((len(source), 1), PADDING)
        ended = torch.zeros(len(source), dtype=torch.bool)
        while not ended.all() and target.shape[1] < self.config.positions:
            # To keep it short, everything is computed again for every word. Real decoders store keys and values.
            scores = self.decode(target, encoded, source)[:, -1]
            word = scores.argmax(-1).masked_fill(ended, PADDING)
            target = torch.cat([target, word.unsqueeze(-1)], dim=-1)
            ended = ended | (word == END)
        return target[:, 1:]


# ----------------------------------------------------------------------------------------------------------------------
# Data: a built-in corpus of 8,600 sentences, and a vocabulary of whole words. Real systems cut words into parts.

CORPUS = Path(__file__).parents[2] / "hf_capsule_mt" / "quickstart" / "corpus.tsv.gz"


def read_pairs() -> list[tuple[str, str]]:
    """Return the pairs of English and German sentences."""
    with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:
        return [tuple(line.rstrip("\n").split("\t")) for line in lines]


def split(text: str) -> list[str]:
    """Split a sentence into words and punctuation."""
    return re.findall(r"\w+|[^\w\s]", text)


class Vocabulary:
    """The words of the training data, in both languages, and their numbers."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        words = {word for pair in pairs for text in pair for word in split(text)}
        self.words = ["<pad>", "<unk>", "</s>", *sorted(words)]
        self.ids = {word: number for number, word in enumerate(self.words)}

    def encode(self, texts: list[str]) -> Tensor:
        """Return token ids `[texts, longest]`."""
        rows = [torch.tensor([self.ids.get(word, UNKNOWN) for word in split(text)] + [END]) for text in texts]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING)

    def decode(self, tokens: Tensor) -> str:
        """Return the text of a row of token ids."""
        text = " ".join(self.words[token] for token in tokens.tolist() if token not in (PADDING, END))
        return re.sub(r" (?=[.,?!])", "", text)


# ----------------------------------------------------------------------------------------------------------------------
# Training and translating.


def train(
    model: Translator, pairs: list[tuple[str, str]], vocabulary: Vocabulary, updates: int, batch_size: int = 64
) -> list[float]:
    """Train the model, and return the loss of every update."""
    warmup = 1 + updates // 4

    def factor(update: int) -> float:
        # The learning rate rises at first, or a post-norm Transformer would diverge. Then it falls to 0.
        return min((update + 1) / warmup, (updates - update) / (updates - warmup + 1))

    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-9)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    model.train()
    losses = []
    for update in range(updates):
        batch = random.sample(pairs, batch_size)
        source = vocabulary.encode([english for english, _ in batch])
        target = vocabulary.encode([german for _, german in batch])
        _, loss = model(source, target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if update % 25 == 0 or update + 1 == updates:
            print(f"update {update:4}  loss {losses[-1]:.2f}", flush=True)
    return losses


def main(updates: int = 200) -> None:
    """Train, and show translations of sentences that are not in the training data."""
    random.seed(1)
    torch.manual_seed(1)
    pairs = read_pairs()
    training, test = pairs[:8000], pairs[8200:]
    vocabulary = Vocabulary(training)
    model = Translator(Config(vocabulary=len(vocabulary.words)))
    print(f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters")
    train(model, training, vocabulary, updates)

    model.eval()
    translations = model.translate(vocabulary.encode([english for english, _ in test]))
    right = 0
    for number, (english, german) in enumerate(test):
        translation = vocabulary.decode(translations[number])
        right += translation == german
        if number < 5:
            print(f"\n{english}\n-> {translation}\n   ({german})")
    print(f"\n{right} of {len(test)} translations are exactly those of the corpus.")


if __name__ == "__main__":
    main()
