"""What the server answers, as OpenAPI for programs and as a page for people."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, Template

from hf_capsule_mt.language_tags import name_of_language
from hf_capsule_mt.version import __version__

from ..models import ServedModel

_FOLDER = Path(__file__).parent


@cache
def description() -> dict[str, Any]:
    """Return the description of all routes in OpenAPI 3.0."""
    described = yaml.safe_load((_FOLDER / "api_description.yaml").read_text(encoding="utf-8"))
    described["info"]["version"] = __version__
    return described


def docs_page(models: Sequence[ServedModel]) -> str:
    """Return a page about the routes, which loads nothing from elsewhere."""
    pairs = [f"{name_of_language(model.source)} to {name_of_language(model.target)}" for model in models]
    return _docs_template().render(api=description(), pairs=pairs, example=models[0])


@cache
def _docs_template() -> Template:
    # Names of languages come from the command line, so they are escaped.
    return Environment(autoescape=True).from_string((_FOLDER / "docs_page.html").read_text(encoding="utf-8"))
