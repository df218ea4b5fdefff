"""The papers behind a model, by the fields of its configuration."""

from dataclasses import dataclass
from pathlib import Path

import yaml
from transformers import PreTrainedConfig


@dataclass(frozen=True)
class Paper:
    """A publication to name and to cite."""

    key: str
    """BibTeX key."""
    title: str
    authors: str
    """As BibTeX takes them."""
    booktitle: str
    year: int
    arxiv: str
    """Number of the preprint."""

    @property
    def name(self) -> str:
        """Name in a text: `Dou et al. 2019`."""
        return f"{self.authors.partition(',')[0]} et al. {self.year}"

    @property
    def url(self) -> str:
        """Address of the preprint."""
        return f"https://arxiv.org/abs/{self.arxiv}"

    @property
    def bibtex(self) -> str:
        """Entry of a bibliography."""
        fields = {"title": f"{{{self.title}}}", "author": self.authors, "booktitle": self.booktitle, "year": self.year}
        lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
        return "\n".join([f"@inproceedings{{{self.key},", *lines, "}"])


def papers_of(config: PreTrainedConfig) -> list[Paper]:
    """Return the papers whose methods a model with this configuration uses, the oldest method first."""
    used = {
        "bahdanau2015neural": config.model_type == "rnmt",
        "vaswani2017attention": config.model_type == "capsule_aggregated_marian",
        "dou2019dynamic": getattr(config, "layer_aggregation", None) is not None,
        "li2019information": getattr(config, "head_aggregation", None) is not None,
        "zheng2019dynamic": getattr(config, "guided_routing", None) is not None,
        "wang2019towards": getattr(config, "sentence_aggregation", None) is not None,
    }
    known = yaml.safe_load(Path(__file__).with_name("papers.yaml").read_text(encoding="utf-8"))
    return [Paper(key, **fields) for key, fields in known.items() if used[key]]
