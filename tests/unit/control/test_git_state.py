"""The commit of a folder of code, as git itself tells it."""

import subprocess

import pytest

from drumline.control.submission.run_folder import read_head


def git(folder, *words):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    done = subprocess.run(("git", *identity, *words), cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "train.py").write_text("pass")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "x")
    return folder


def test_the_commit_and_the_branch_are_those_of_git(repository):
    head = {"azureml.git.commit": git(repository, "rev-parse", "HEAD"), "azureml.git.branch": "main"}
    assert read_head(str(repository)) == head
    assert read_head(str(repository / "src")) == head
    git(repository, "pack-refs", "--all")
    assert read_head(str(repository)) == head


def test_a_worktree_and_a_detached_head_are_read(repository, tmp_path):
    commit = git(repository, "rev-parse", "HEAD")
    git(repository, "worktree", "add", "-qb", "other", str(tmp_path / "tree"))
    assert read_head(str(tmp_path / "tree")) == {"azureml.git.commit": commit, "azureml.git.branch": "other"}
    git(repository, "checkout", "-q", "--detach")
    assert read_head(str(repository)) == {"azureml.git.commit": commit}


@pytest.mark.parametrize(
    "head", ["", "ref: refs/heads/none", "ref: ../../secret", "ref: refs/../../x", "zzz"]
)
def test_a_damaged_repository_is_none(tmp_path, head):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(head)
    assert read_head(str(tmp_path)) == {}
