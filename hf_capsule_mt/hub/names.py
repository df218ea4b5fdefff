"""Names of repositories and of their revisions, checked before anything is sent."""

import re

from huggingface_hub.utils import HFValidationError, validate_repo_id

PLACEHOLDER = "USER/NAME"
"""The repository that a card names until it is pushed to one."""

# What git allows of a branch, a tag or a commit: git help check-ref-format.
_REVISION = re.compile(r"(?!/|-|@$)(?!.*(?:\.\.|//|@\{|/\.|\.lock(?:/|$)))[^\x00-\x20~^:?*\[\\\x7f]+(?<![/.])")


def check_repo_id(repo_id: str) -> None:
    """Raise ValueError unless `repo_id` can be the name of a repository: `user/name`, or `name` of an old one."""
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"{repo_id!r} is not the name of a repository on the Hub: {error}") from error


def check_revision(revision: str) -> None:
    """Raise ValueError unless `revision` can be a branch, a tag or a commit."""
    if not _REVISION.fullmatch(revision):
        raise ValueError(
            f"revision {revision!r} cannot be one; give the name of a branch or a tag, or the hash of a commit"
        )
