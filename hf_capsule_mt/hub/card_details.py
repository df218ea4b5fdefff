"""What a user says for a model card. These are options of a command, so nothing is imported from Transformers."""

from dataclasses import dataclass, field
from typing import Any

PLACEHOLDER = "USER/NAME"
"""The repository that a card names until it is pushed to one."""


def _option(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class CardDetails:
    """What no record says. `weights` names the weights of the run, if they are not its last."""

    repo_id: str = PLACEHOLDER
    weights: str | None = None
    source_lang: str | None = _option(
        default=None, help="ISO 639 code of the source (default: as the data or its file says)."
    )
    target_lang: str | None = _option(
        default=None, help="ISO 639 code of the target (default: as the data or its file says)."
    )
    license: str | None = _option(
        default=None, help="Licence of the model, as the Hub names it: apache-2.0, cc-by-4.0, other, ..."
    )
    license_name: str | None = _option(
        default=None, help="Name of a licence that the Hub does not know, with --license other."
    )
    data_name: str | None = _option(default=None, help="Name of the training data (default: its data set or files).")
    data_license: str | None = _option(default=None, help="Licence of the training data.")
    example: str = _option(default="A dog runs.", help="Sentence to translate in the card's example.")
    translation: str | None = _option(default=None, help="Translation of --example by the model.")
    note: str | None = _option(default=None, help="Paragraph on what a user should know.")
