"""MkDocs hooks: pages of the commands from their parsers, pages of the benchmarks, equations as MathML."""

import argparse
import html
import importlib
import os
import re
from itertools import groupby
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from hf_capsule_mt.cli.parser import value_name
from hf_capsule_mt_command import GROUPS, summary

# As GitHub writes them too: a block ```math and, in a line, $`...`$.
_EQUATIONS = re.compile(r"^```math\n(.+?)^```$|\$`(.+?)`\$", re.MULTILINE | re.DOTALL)
# What may be the path of a file, up to a part of it.
_LINK = re.compile(r"\]\(([^\s)#:]+)")
_REPOSITORY = Path(__file__).parents[1]


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
    for pattern in ("**/*.md", "**/*.png"):
        for path in sorted((_REPOSITORY / "benchmarks").glob(pattern)):
            uri = path.relative_to(_REPOSITORY).as_posix()
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Have links lead where pages are here, and take the equations out, so that Markdown leaves them alone."""
    markdown = _links(markdown, page.file.src_uri, kwargs["config"].repo_url)
    page.equations = []
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]  # Its section has no other page.

    def keep(match: re.Match) -> str:
        block, inline = match.groups()
        page.equations.append(convert(block or inline, display="block" if block else "inline"))
        # A wide equation scrolls in a box of its own.
        if block:
            page.equations[-1] = f'<span class="equation">{page.equations[-1]}</span>'
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
    return Path(page if page.startswith("benchmarks/") else f"docs/{page}")


def _page(path: str) -> str | None:
    """What a file of the repository is in the site; None if it is not there."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    is_shown = path.startswith("benchmarks/") and path.endswith((".md", ".png"))
    return path if is_shown else None


def _index() -> str:
    lines = ["# Commands", "", "`hf-capsule-mt COMMAND --help` prints what these pages have."]
    for group, names in GROUPS.items():
        lines += ["", f"## {group}", "", *(f"* [`{name}`]({name}.md): {summary(name)}" for name in names)]
    return "\n".join(lines)


def _command(name: str) -> str:
    """A page with the description of a command, and its options by groups."""
    module = importlib.import_module(f"hf_capsule_mt.cli.{name}")
    parser = module.build_parser()
    shown = getattr(importlib.import_module(f"hf_capsule_mt.cli.options.{name}_options"), "SHOWN", ())
    parser.prog = f"hf-capsule-mt {name}"
    notes = _notes(parser)
    first, _, rest = parser.description.strip().partition("\n\n")
    lines = [f"# {name}", "", first, "", *_described(rest)]
    for group in parser._action_groups:
        options = {action.dest: action for action in reversed(group._group_actions) if _is_shown(action)}
        options = dict(reversed(options.items()))
        if not options:
            continue
        title = group.title[0].upper() + group.title[1:]
        # An option may have the name of its group, and an id of a page is there once.
        anchor = group.title.lower().replace(" ", "-") + "-options"
        lines += ["", f"## {title} {{: #{anchor} }}", "", '<dl class="options">']
        # What people use stands first.
        for each in sorted(options, key=lambda each: shown.index(each) if each in shown else len(shown)):
            lines.append(_option(parser, options[each], notes.get(each)))
        lines += ["</dl>"]
    return "\n".join(lines) + "\n"


def _notes(parser: argparse.ArgumentParser) -> dict[str, str]:
    """What is said of options that must be given."""
    notes = {action.dest: "required" for action in parser._actions if action.required}
    for group in parser._mutually_exclusive_groups:
        if group.required:
            names = [action.option_strings[0] for action in group._group_actions]
            for action in group._group_actions:
                others = [name for name in names if name not in action.option_strings]
                notes[action.dest] = f"this or {' or '.join(others)} is required"
    return notes


def _described(text: str) -> list[str]:
    """The description as Markdown: indented examples are blocks of a shell, and names of options become code."""
    lines = []
    for is_example, block in groupby(text.splitlines(), key=lambda line: line.startswith("    ")):
        if is_example:
            lines += ["```bash", *(line[4:] for line in block), "```"]
        else:
            lines += [_code(line.replace("*", r"\*")) for line in block]
    return lines


def _code(text: str) -> str:
    return re.sub(r"(?<![\w`-])(--\w+(?: (?:last\b|auto\b|\d[\d.e-]*\d|\d))?)", r"`\1`", text)


def _is_shown(action: argparse.Action) -> bool:
    return action.help != argparse.SUPPRESS and not {"-h", "--help", "--help_all"} & {*action.option_strings}


def _option(parser: argparse.ArgumentParser, action: argparse.Action, note: str | None) -> str:
    """An entry of a list: name, values and meaning of an option, without a default that is none."""
    [name, *_] = action.option_strings or [action.dest]
    values = ""
    if action.nargs != 0 and action.const is not True:
        values = f" <span>{html.escape(_values(action))}</span>"
    if note is not None:
        values += f" <em>{note}</em>"
        action.required = False  # The note says so, and help would say it once more.
    if not action.default:
        action.default = argparse.SUPPRESS
    text = html.escape(" ".join(parser._get_formatter()._expand_help(action).split()), quote=False)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", _code(text))
    if action.choices and action.metavar:
        text += f" All: {', '.join(f'<code>{choice}</code>' for choice in action.choices)}."
    return f'<dt id="{action.dest}"><code>{name}</code>{values}</dt><dd>{text}</dd>'


def _values(action: argparse.Action) -> str:
    """What stands for the values of an option."""
    if action.choices and not action.metavar:
        values = " | ".join(map(str, action.choices))
    elif isinstance(action.metavar, tuple):
        values = " ".join(action.metavar)
    else:
        values = action.metavar or value_name(action)
    return f"{values} ..." if action.nargs in ("+", "*") else values
