"""The site, which looks at nothing outside. A warning, such as of a link that leads nowhere, is an error."""

import re
import tomllib
from pathlib import Path

import pytest

import hf_capsule_mt_command

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


def pages_of(navigation):
    """The pages that a part of the navigation has, as mkdocs.yml writes it."""
    if isinstance(navigation, str):
        return [navigation]
    parts = navigation.values() if isinstance(navigation, dict) else navigation
    return [page for part in parts for page in pages_of(part)]


def options_of(site, command):
    """What the page of a command says of the values of each option, without marks of HTML."""
    page = (site / "commands" / command / "index.html").read_text(encoding="utf-8")
    titles = re.findall(r'<dt id="\w+">(.*?)</dt>', page)
    texts = [re.sub(r"<.*?>", "", title) for title in titles]
    return dict(text.partition(" ")[::2] for text in texts)


def test_the_site_is_built_without_a_warning(site):
    assert (site / "index.html").is_file()


def test_the_first_page_leads_to_every_page():
    from mkdocs.config import load_config

    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    links = {link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text)}
    config = load_config(str(ROOT / "mkdocs.yml"))
    for page in pages_of(config.nav):
        if page == "index.md":
            continue
        if page.startswith("commands/"):
            link = config.site_url + page.removesuffix("index.md")
        elif page.startswith("benchmarks/"):
            link = f"../{page}"
        else:
            link = page
        assert link in links


def test_the_first_page_names_every_extra():
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = re.findall(r"^\| `(\w+)` \| ", text, flags=re.MULTILINE)
    assert sorted(named) == sorted(extras.keys() - {"all", "docs", "test"})


def test_pages_of_commands_name_values_and_what_is_required(site):
    options = options_of(site, "translate")
    assert next(iter(options)) == "--input_file"
    assert options["--input_file"] == "FILE ..."
    assert options["--output_dir"] == "FOLDER"
    assert options["--model"] == "MODEL required"
    assert options["--num_beams"] == "N"
    assert options["--glossary_languages"] == "SOURCE TARGET"
    assert options["--engine"] == "fast | transformers"
    assert options["--tags"] == ""
    assert options_of(site, "shortlist")["--script"] == "SCRIPT this or --input_file is required"
    train = options_of(site, "train")
    assert train["--method"] == "METHOD"
    assert "head-em-effective" in (site / "commands/train/index.html").read_text()
    for command in hf_capsule_mt_command.COMMANDS:
        ids = re.findall(r' id="([^"]+)"', (site / "commands" / command / "index.html").read_text(encoding="utf-8"))
        assert len({*ids}) == len(ids), command
        assert not [option for option, values in options_of(site, command).items() if "VALUE" in values.split()]


def test_examples_of_commands_are_of_a_shell(site):
    """The style sheet wraps their long lines."""
    page = (site / "commands/translate/index.html").read_text(encoding="utf-8")
    assert page.count('class="language-bash highlight"') == page.count('class="language-bash') == 6
    assert ".language-bash pre > code { white-space: pre-wrap;" in (site / "style.css").read_text()
