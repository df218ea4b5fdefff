"""Names of repositories and revisions are checked before anything is sent."""

import pytest

from hf_capsule_mt.hub.names import check_repo_id, check_revision


@pytest.mark.parametrize("repo_id", ["user/name", "user-1/My_model.v2", "t5-small"])
def test_repositories(repo_id):
    check_repo_id(repo_id)


@pytest.mark.parametrize("repo_id", ["", "a/b/c", "user/..", "user/a b", "user/name.git", "../name", "/name"])
def test_what_is_no_repository(repo_id):
    with pytest.raises(ValueError, match="not the name of a repository"):
        check_repo_id(repo_id)


@pytest.mark.parametrize("revision", ["main", "v1.0", "refs/pr/3", "3f786850e387550fdab836ed7e6dc881de23001b", "a@b"])
def test_revisions(revision):
    check_revision(revision)


@pytest.mark.parametrize(
    "revision",
    ["", "-x", "a b", "a..b", "a~1", "a^", "a:b", "a?", "a*", "a[", "a\\b", "/a", "a/", "a//b", "a.", "a.lock", "a/.b"]
    + ["@", "a@{1", "a\nb", "a.lock/b"],
)
def test_what_is_no_revision(revision):
    with pytest.raises(ValueError, match="revision"):
        check_revision(revision)
