"""Send a checkpoint of this package to the Hub: checked, with its source and its card, in one commit."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError, HTTPError, OfflineModeIsEnabled
from transformers import PreTrainedModel
from transformers.utils import logging

from hf_capsule_mt import modeling
from hf_capsule_mt.checkpoints import WEIGHTS, check_folder, load_config, load_tokenizer, load_weights, tensor_files
from hf_capsule_mt.configuration.portable import PortableConfig
from hf_capsule_mt.modeling.checkpoint_files import WEIGHTS_INDEX
from hf_capsule_mt.modeling.weight_hashes import WEIGHTS_HASHES, write_hashes
from hf_capsule_mt.saving import explained_saving
from hf_capsule_mt.weights import check_hashes

from .names import PLACEHOLDER, check_repo_id, check_revision

logger = logging.get_logger(__name__)

CARD = "README.md"
_FORBIDDEN = "the token may not write there; take one with write access, and a name of your own or of your organisation"
# What an earlier model may have left in a repository and what would contradict, or be taken for, a part of the new one.
_REPLACED = (
    "*.safetensors",
    "*.safetensors.index.json",
    "pytorch_model*.bin",
    "pytorch_model*.bin.index.json",
    "configuration_*.py",
    "modeling_*.py",
    "decoding_*.py",
    "generation_config.json",
    "adapter_config.json",
    "adapter_model.*",
    # Of tokenizers: in these Transformers 5 reads what contradicts the newer files.
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer*",
    "vocab.*",
    "merges.txt",
    "*.spm",
    "*.model",
)


@dataclass(frozen=True)
class Pushed:
    """Result of a push."""

    url: str
    """Address of the commit."""
    commit: str
    """Its hash, to pin as `revision`."""
    kept: list[str]
    """Other files of the repository, left as they were."""
    deleted: list[str]
    """Files of an earlier model, which the commit deletes."""


def push_checkpoint(
    folder: str | Path,
    repo_id: str,
    *,
    private: bool = False,
    revision: str | None = None,
    commit_message: str | None = None,
    api: HfApi | None = None,
) -> Pushed:
    """Load a checkpoint, save it with its source, tokenizer and card, and send all of it in one commit.

    The repository and the branch are made if they do not exist. Until the commit, which comes last, no file changes;
    what was sent before an interruption need not be sent again. Files of an earlier model are deleted, others stay.

    Args:
        folder: the checkpoint, with its tokenizer. Its `README.md` is the model card, in which `USER/NAME` becomes
            `repo_id`.
        repo_id: `user/name`.
        private: whether a new repository is private. An existing public one is then refused.
        revision: the branch to commit to, made from the main branch if it does not exist; default: the main branch.
        commit_message: default: "Upload" and the class of the model.
        api: the client; default: one with the token of `hf auth login` or `HF_TOKEN`.

    Raises:
        ValueError: if a name is impossible, the folder holds no checkpoint of this package, weights are missing or
            superfluous, not finite or not those that were saved, or the Hub refuses the card.
        OSError: if a file is missing or damaged, or the Hub cannot be reached or refuses.
    """
    check_repo_id(repo_id)
    if "/" not in repo_id:
        raise ValueError(f"{repo_id!r} does not say whose the repository is; write user/name")
    if revision is not None:
        check_revision(revision)
    api = api or HfApi(library_name="hf-capsule-mt")
    with TemporaryDirectory() as temporary:
        model = _export(Path(folder), Path(temporary), repo_id)
        with _explained(repo_id):
            return _commit(
                api, Path(temporary), repo_id, private, revision, commit_message or f"Upload {type(model).__name__}"
            )


def _export(folder: Path, target: Path, repo_id: str) -> PreTrainedModel:
    """Write what is to be sent: the model, saved anew, its tokenizer and its card."""
    check_folder(folder)
    card = _card(folder, repo_id)
    # Checkpoints of other packages have no hashes.
    if (folder / WEIGHTS_HASHES).is_file():
        check_hashes(folder)
    model = load_weights(_model_class(folder), folder, dtype="auto")
    with explained_saving(target, "make room, or set TMPDIR to a folder that has some"):
        model.save_pretrained(target)
        _put_back_weights(folder, target)
        load_tokenizer(folder).save_pretrained(target)
    if card is None:
        logger.warning(f"{folder} has no model card, {CARD}; hf-capsule-mt write_model_card writes one")
    else:
        (target / CARD).write_text(card, encoding="utf-8")
    return model


def _card(folder: Path, repo_id: str) -> str | None:
    """Return the model card in a folder, with the name of the repository; None if there is none.

    Raises:
        ValueError: if it is not UTF-8.
    """
    file = folder / CARD
    if not file.is_file():
        return None
    try:
        card = file.read_text(encoding="utf-8").replace(PLACEHOLDER, repo_id)
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8: {error}; convert it, for example by iconv") from error
    # Not within a longer name.
    if re.search(rf"(?<![\w.-]){re.escape(repo_id)}(?![\w-]|\.\w)", card) is None:
        logger.warning(
            f"{file} does not name {repo_id}, so its examples load another model; hf-capsule-mt "
            f"write_model_card --repo_id {repo_id} writes one"
        )
    return card


def _put_back_weights(folder: Path, target: Path) -> None:
    """Replace the weights in `target` by the files of `folder`: saved anew, they may have another dtype."""
    for file in target.glob("*.safetensors*"):
        file.unlink()
    files = {*tensor_files(folder).values()}
    if folder / WEIGHTS not in files:
        # With all weights in one file an index is of no use.
        files.add(folder / WEIGHTS_INDEX)
    for file in files:
        shutil.copyfile(file, target / file.name)
    write_hashes(target)


def _model_class(folder: Path) -> type[PreTrainedModel]:
    config = load_config(folder)
    if not isinstance(config, PortableConfig):
        raise ValueError(
            f"{folder} holds a model of type {config.model_type!r}, which is not of this package; push it with the "
            "push_to_hub method of its model"
        )
    names = [name for name in config.architectures or [] if hasattr(modeling, name)]
    if not names:
        raise ValueError(
            f"architectures is {config.architectures} in {folder}/config.json; no class here has that name"
        )
    return getattr(modeling, names[0])


def _commit(api: HfApi, folder: Path, repo_id: str, private: bool, revision: str | None, commit_message: str) -> Pushed:
    api.create_repo(repo_id, private=private or None, exist_ok=True)
    if private and not api.model_info(repo_id).private:
        raise ValueError(
            f"private is asked for, but {repo_id} exists and is public; change that in its settings, or name another"
        )
    if revision is not None:
        api.create_branch(repo_id, branch=revision, exist_ok=True)
    before = api.model_info(repo_id, revision=revision)
    present = [file.rfilename for file in before.siblings or []]
    sent = sorted(file.name for file in folder.iterdir())
    at_the_top = [name for name in present if "/" not in name and name not in sent]
    deleted = [name for name in at_the_top if any(fnmatch(name, old) for old in _REPLACED)]
    made = api.create_commit(
        repo_id,
        [
            *(CommitOperationAdd(path_in_repo=name, path_or_fileobj=folder / name) for name in sent),
            *(CommitOperationDelete(path_in_repo=name) for name in deleted),
        ],
        commit_message=commit_message,
        revision=revision,
        # What is deleted was decided on this commit.
        parent_commit=before.sha,
    )
    kept = [name for name in present if name not in {*sent, *deleted}]
    return Pushed(str(made.commit_url), made.oid, kept, deleted)


@contextmanager
def _explained(repo_id: str) -> Iterator[None]:
    """Turn what can go wrong between here and the Hub into one line that names the remedy."""
    try:
        yield
    except OfflineModeIsEnabled:
        raise
    except PermissionError as error:
        raise OSError(f"the Hub refuses to take {repo_id}: {_FORBIDDEN} ({error})") from error
    # An upload that fails after all retries is a RuntimeError, one through Xet an OSError.
    except (HTTPError, OSError, RuntimeError) as error:
        if isinstance(error, HfHubHTTPError) and error.response.status_code < 500:
            raise OSError(f"the Hub refuses to take {repo_id}: {_remedy(error)}") from error
        cause = error.__cause__ or error
        raise OSError(
            f"the connection to the Hub failed ({type(cause).__name__}: {cause}), so {repo_id} may lack its commit; "
            "give the command again: it goes on where it stopped, or finds nothing to change"
        ) from error


def _remedy(error: HfHubHTTPError) -> str:
    status = error.response.status_code
    if status == 401:
        return "no token, or one that it does not know; log in with `hf auth login`, or set HF_TOKEN"
    if status == 403:
        return _FORBIDDEN
    if status == 412:
        return "somebody else changed the repository at the same time; give the command again"
    return error.server_message or str(error)
