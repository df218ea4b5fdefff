"""MkDocs hooks: pages of the commands from their parsers, pages of the benchmarks, equations as MathML."""

import html
import importlib
import os
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from hf_capsule_mt_command import GROUPS, summary

# As GitHub writes them too: a block ```math and, in a line, $`...`$.
_EQUATIONS = re.compile(r"^```math\n(.+?)^```$|\$`(.+?)`\$", re.MULTILINE | re.DOTALL)
_REPOSITORY = Path(__file__).parents[1]
_OF_STUDIES, _STUDIES = "ablations/README.md", "benchmarks/studies.md"
_BENCHMARKS = ("*.md", "*.png", _OF_STUDIES)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put a page for every command into the navigation."""
    groups = [{group: [f"commands/{name}.md" for name in names]} for group, names in GROUPS.items()]
    for entry in config.nav:
        if "Commands" in entry:
            entry["Commands"] = ["commands/index.md", *groups]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are no files of this folder."""
    files.append(File.generated(config, "commands/index.md", content=_index()))
    for names in GROUPS.values():
        for name in names:
            files.append(File.generated(config, f"commands/{name}.md", content=_command(name)))
    for pattern in _BENCHMARKS:
        for path in sorted((_REPOSITORY / "benchmarks").glob(pattern)):
            uri = path.relative_to(_REPOSITORY).as_posix().replace(f"benchmarks/{_OF_STUDIES}", _STUDIES)
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Have links lead where pages are here, and take the equations out, so that Markdown leaves them alone."""
    markdown = _links(markdown, page.file.src_uri)
    page.equations = []

    def keep(match: re.Match) -> str:
        block, inline = match.groups()
        page.equations.append(convert(block or inline, display="block" if block else "inline"))
        return f"EQUATION{len(page.equations) - 1}END"

    return _EQUATIONS.sub(keep, markdown)


def on_page_content(content: str, page: Any, **kwargs: Any) -> str:
    """Put the equations back, and set names that docstrings have in brackets, [`Name`], as code alone."""
    content = re.sub(r"EQUATION(\d+)END", lambda match: page.equations[int(match[1])], content)
    return re.sub(r"\[(<code>[^<]*</code>)\]", r"\1", content)


def _links(markdown: str, page: str) -> str:
    """Change links, which are right in the repository: there the benchmarks are beside `docs`, here they are inside."""
    if page == _STUDIES:
        return markdown.replace("](../", "](")
    markdown = re.sub(r"\]\(\.\./((?:\.\./)*benchmarks/)", r"](\1", markdown)
    return markdown.replace(f"benchmarks/{_OF_STUDIES}", _STUDIES)


def _index() -> str:
    lines = ["# Commands", "", "`hf-capsule-mt COMMAND --help` prints what these pages have."]
    for group, names in GROUPS.items():
        lines += ["", f"## {group}", "", *(f"* [`{name}`]({name}.md): {summary(name)}" for name in names)]
    return "\n".join(lines)


def _command(name: str) -> str:
    """A page with what `--help` prints of a command."""
    parser = importlib.import_module(f"hf_capsule_mt.cli.{name}").build_parser()
    parser.prog, os.environ["COLUMNS"] = f"hf-capsule-mt {name}", "110"
    title, text = f"# {name}\n\n{summary(name)}\n\n", html.escape(parser.format_help(), quote=False)
    return f"{title}<pre><code>{text}</code></pre>\n"
