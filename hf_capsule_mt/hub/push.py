"""Send a checkpoint to the Hub: loaded as a check, with its source and its card, in one commit."""

import shutil
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory

import transformers
from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi, ModelInfo
from transformers import PreTrainedModel
from transformers.utils import logging

from hf_capsule_mt import modeling
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.loading import load_config, load_model, load_tokenizer

from .card_details import PLACEHOLDER

logger = logging.get_logger(__name__)

CARD = "README.md"
_WEIGHT_FILES = (
    "*.safetensors",
    "*.safetensors.index.json",
    "pytorch_model*.bin",
    "pytorch_model*.bin.index.json",
    "adapter_model.*",
)
_SETTING_FILES = ("*.py", "generation_config.json", "adapter_config.json")
_TOKENIZER_FILES = (
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer*",
    "vocab.*",
    "merges.txt",
    "*.spm",
    "*.model",
)
_REPLACED = (*_WEIGHT_FILES, *_SETTING_FILES, *_TOKENIZER_FILES)
"""Files of an earlier model at the top of a repository, which would contradict the new one."""


def push_checkpoint(
    folder: str | Path,
    repo_id: str,
    *,
    private: bool = False,
    revision: str | None = None,
    commit_message: str | None = None,
    api: HfApi | None = None,
) -> CommitInfo:
    """Load a checkpoint, save it with its source, tokenizer and card, and send all of it in one commit.

    Weights, tokenizers and Python files of an earlier model, at the top of the repository, are deleted by the same
    commit. Other files stay.

    Args:
        folder: the checkpoint. Its card is the `README.md` in it, in which `USER/NAME` becomes `repo_id`.
        repo_id: the repository, made if it does not exist.
        private: whether a new repository is private. An existing public one is then refused.
        revision: the branch, made if it does not exist. Default: main.
        commit_message: default: "Upload", and the class of the model.
        api: a client of the Hub. Default: one with the user's token.

    Returns:
        What the Hub says about the commit.

    Raises:
        UserError: if weights are missing or damaged, or the Hub refuses the card.
        OSError: if a file is missing, or the Hub refuses.
    """
    api = api or HfApi(library_name="hf-capsule-mt")
    with TemporaryDirectory() as temporary:
        files = Path(temporary)
        model = _save(Path(folder), files, repo_id)

        api.create_repo(repo_id, private=private or None, exist_ok=True)
        if private and not api.model_info(repo_id).private:
            raise UserError(f"{repo_id} exists and is public. Change that in its settings, or name another.")
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)

        before = api.model_info(repo_id, revision=revision)
        return api.create_commit(
            repo_id,
            _changes(files, before),
            commit_message=commit_message or f"Upload {type(model).__name__}",
            revision=revision,
            # The Hub refuses if somebody else has changed the branch in the meantime.
            parent_commit=before.sha,
        )


def _changes(files: Path, repository: ModelInfo) -> list[CommitOperationAdd | CommitOperationDelete]:
    """Return the additions and deletions that make a repository that of the new model."""
    changes: list[CommitOperationAdd | CommitOperationDelete] = []
    sent = sorted(file.name for file in files.iterdir())
    for name in sent:
        changes.append(CommitOperationAdd(path_in_repo=name, path_or_fileobj=files / name))

    # `upload_folder(delete_patterns=...)` would also delete what matches in folders of the repository.
    others = {file.rfilename for file in repository.siblings or []} - set(sent)
    deleted = sorted(name for name in others if _is_of_earlier_model(name))
    if deleted:
        logger.warning(f"Files of an earlier model are deleted from {repository.id}: {', '.join(deleted)}")
    for name in deleted:
        changes.append(CommitOperationDelete(path_in_repo=name))
    return changes


def _is_of_earlier_model(name: str) -> bool:
    """Return whether a file of a repository would contradict a new model at its top."""
    return "/" not in name and any(fnmatch(name, pattern) for pattern in _REPLACED)


def files_to_push(folder: Path) -> list[str]:
    """Return the names of the files that [`push_checkpoint`] sends. A broken checkpoint raises the same errors."""
    with TemporaryDirectory() as temporary:
        _save(folder, Path(temporary), PLACEHOLDER)
        return sorted(file.name for file in Path(temporary).iterdir())


def _save(folder: Path, target: Path, repo_id: str) -> PreTrainedModel:
    """Write the files to send: the weights as they are, and the configuration, source and tokenizer saved again."""
    model = load_model(folder, _model_class(folder))
    model.save_pretrained(target)
    _copy_weights(folder, target)
    load_tokenizer(folder).save_pretrained(target)
    if (folder / CARD).is_file():
        card = (folder / CARD).read_text(encoding="utf-8")
        (target / CARD).write_text(card.replace(PLACEHOLDER, repo_id), encoding="utf-8")
    else:
        logger.warning(f"{folder} has no model card, {CARD}")
    return model


def _model_class(folder: Path) -> type[PreTrainedModel]:
    """Return the class that a checkpoint names, which may be a classifier. Old checkpoints of Marian name none."""
    architectures = load_config(folder).architectures or ["MarianMTModel"]
    name = architectures[0]
    return getattr(modeling, name, None) or getattr(transformers, name)


def _copy_weights(folder: Path, target: Path) -> None:
    """Replace weights that were saved again, which may have another dtype, by those of the checkpoint."""
    weights = list(folder.glob("model*.safetensors*"))
    if not weights:
        return
    for file in target.glob("*.safetensors*"):
        file.unlink()
    for file in weights:
        shutil.copyfile(file, target / file.name)
