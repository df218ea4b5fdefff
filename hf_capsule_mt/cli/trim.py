"""The command `trim`. Its options stand in options/trim_options.py."""

from collections.abc import Sequence

from hf_capsule_mt.hub.trimming import HeldOutWords, Trimmed, WordChoice, trim_checkpoint

from .common import check_new_folder, check_text_file, import_code, report_user_errors
from .options.trim_options import build_parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Write the smaller model, and say how large it is and what it covers."""
    args = build_parser().parse_args(argv)
    import_code(args.imports)
    check_new_folder(args.output_dir)
    for path in args.input_file:
        check_text_file("--input_file", path)

    choice = WordChoice(args.languages, args.input_file, args.vocabulary, args.words, args.min_count)
    trimmed = trim_checkpoint(args.model, args.output_dir, choice, args.revision or "main")

    print(f"{args.output_dir}:")
    print(_sizes(trimmed))
    print(_held_out(trimmed.held_out))
    if trimmed.fixed_languages:
        print(
            f"The model keeps the names of all its {trimmed.fixed_languages} languages, which Transformers numbers. "
            f"Use it for {', '.join(args.languages)} only."
        )


def _sizes(trimmed: Trimmed) -> str:
    """Return a table of the sizes before and after."""
    before = trimmed.before
    after = trimmed.after
    rows = [_row("words", before.words, after.words)]
    if before.target_words != before.words:
        rows.append(_row("words to write", before.target_words, after.target_words))
    rows.append(_row("parameters", before.parameters, after.parameters))
    rows.append(_row("megabytes", before.num_bytes / 1e6, after.num_bytes / 1e6, decimals=1))
    return "\n".join(rows)


def _row(name: str, old: float, new: float, decimals: int = 0) -> str:
    """Return a line with a number before and after, and the share that is left."""
    share = new / old
    before = f"{old:,.{decimals}f}"
    after = f"{new:,.{decimals}f}"
    return f"{name:<14} {before:>15} -> {after:>13}  {share:.0%}"


def _held_out(held_out: HeldOutWords) -> str:
    """Return what is known of the held-out lines, as text."""
    if not held_out.tokens:
        return "No line was held out. Give a text of at least ten lines to measure the coverage."
    before = held_out.known / held_out.tokens
    after = held_out.kept / held_out.tokens
    coverage = f"{'coverage':<14} {before:>15.2%} -> {after:>13.2%}  of the words of held-out lines"
    lines = f"Of {held_out.lines:,} held-out lines, {held_out.changed:,} are cut into other words,"
    return f"{coverage}\n{lines} and {held_out.unreadable:,} have letters that the model cannot read any more."
