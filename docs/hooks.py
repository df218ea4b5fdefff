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
# What may be the path of a file, up to a part of it.
_LINK = re.compile(r"\]\(([^\s)#:]+)")
_REPOSITORY = Path(__file__).parents[1]
_OF_STUDIES, _STUDIES = "studies/README.md", "benchmarks/studies.md"
_BENCHMARKS = ("*.md", "*.png", _OF_STUDIES)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put a page for every command into the navigation."""
    groups = [{group: [f"commands/{name}.md" for name in names]} for group, names in GROUPS.items()]
    [reference] = [entry["Reference"] for entry in config.nav if "Reference" in entry]
    for entry in reference:
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
    markdown = _links(markdown, page.file.src_uri, kwargs["config"].repo_url)
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


def _links(markdown: str, page: str, repository: str) -> str:
    """Change the links of a file of the repository to where the same files are in the site, or on GitHub if not there.

    Args:
        markdown: of the file.
        page: what the file is in the site.
        repository: its address, which says where what is not in the site can be read.
    """
    folder = _path(page).parent

    def changed(match: re.Match) -> str:
        path = os.path.normpath(folder / match[1])
        if not (_REPOSITORY / path).exists():
            return match[0]
        target = _page(path)
        if target is None:
            return f"]({repository}/blob/main/{path}"
        return f"]({os.path.relpath(target, os.path.dirname(page))}"

    return _LINK.sub(changed, markdown)


def _path(page: str) -> Path:
    """Where the file of a page is in the repository."""
    path = page.replace(_STUDIES, f"benchmarks/{_OF_STUDIES}")
    return Path(path if path.startswith("benchmarks/") else f"docs/{path}")


def _page(path: str) -> str | None:
    """What a file of the repository is in the site; None if it is not there."""
    if path == f"benchmarks/{_OF_STUDIES}":
        return _STUDIES
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if any(Path(path).match(f"benchmarks/{pattern}") for pattern in _BENCHMARKS) else None


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
