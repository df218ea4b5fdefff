"""The command `train_tokenizer`. Its options stand in options/train_tokenizer_options.py."""

from collections.abc import Sequence

from hf_capsule_mt.data.arrow_cache import Sentences, read_corpora
from hf_capsule_mt.data.corpus_files import Columns
from hf_capsule_mt.data.tokenizer import save_tokenizer, train_joint_bpe
from hf_capsule_mt.errors import UserError

from .common import check_output_folder, report_user_errors
from .options.train_tokenizer_options import build_parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Read the text, learn the tokenizer, and save it."""
    args = build_parser().parse_args(argv)
    check_output_folder(args.output_dir)
    if not args.overwrite_output_dir and args.output_dir.is_dir() and any(args.output_dir.iterdir()):
        raise UserError(f"--output_dir {args.output_dir} is not empty. Choose another, or add --overwrite_output_dir.")

    columns = Columns(args.source_lang, args.target_lang, args.source_column, args.target_column)
    texts = read_corpora(args.train_file, columns, args.dataset_name, args.dataset_config_name)
    for text in texts:
        print(text.report)

    tokenizer = train_joint_bpe(Sentences(texts, args.max_sentences), args.vocab_size)
    save_tokenizer(tokenizer, args.output_dir)
    print(f"{len(tokenizer)} tokens saved in {args.output_dir}")
