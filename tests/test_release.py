"""What a release is made from: the version in one place, the workflows, and the Dockerfile."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from hf_capsule_mt import __version__
from hf_capsule_mt.cli import serve
from hf_capsule_mt.decoding.proof import NEWEST_TRANSFORMERS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def workflow(name):
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())


def instructions():
    """Yield the instructions of the Dockerfile, each as its name and what follows."""
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        if line and not line.startswith("#"):
            yield line.split(maxsplit=1)


def test_no_other_file_names_the_version():
    for name in ("pyproject.toml", "CITATION.cff", "README.md"):
        assert __version__ not in (ROOT / name).read_text(), name


def test_the_changelog_begins_with_the_version():
    first = re.search("^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert re.fullmatch(rf"{re.escape(__version__)}(, \d{{4}}-\d\d-\d\d| \(unreleased\))", first[1])


def test_pages_name_the_versions_of_transformers_that_tests_have_seen():
    """Where the tests run with a newer one that passes, write it into the constant and these pages."""
    [needed] = [each for each in PROJECT["dependencies"] if each.startswith("transformers")]
    oldest = re.search(r">=([\d.]+)", needed)[1]
    for page in ("README.md", "docs/index.md"):
        assert f"Tests run with {oldest} and {NEWEST_TRANSFORMERS}." in (ROOT / page).read_text(), page
    assert f"tested up to Transformers {NEWEST_TRANSFORMERS}." in (ROOT / "docs" / "decoding.md").read_text()


def test_the_space_needs_the_same_transformers():
    [needed] = [each for each in PROJECT["dependencies"] if each.startswith("transformers")]
    assert needed in (ROOT / "space" / "requirements.txt").read_text().splitlines()


def test_the_oldest_and_the_newest_python_are_tested():
    known = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if " :: 3." in name]
    assert workflow("test")["jobs"]["test"]["strategy"]["matrix"]["python"] == [known[0], known[-1]]
    assert PROJECT["requires-python"] == f">={known[0]}"


@pytest.mark.parametrize(
    ("tag", "heading", "passes"),
    [
        (f"v{__version__}", f"## {__version__}, 2026-12-01", True),
        ("v0.0.1", f"## {__version__}, 2026-12-01", False),
        (f"v{__version__}", f"## {__version__} (unreleased)", False),
    ],
)
def test_only_the_tag_of_a_finished_version_is_built(tag, heading, passes, tmp_path):
    steps = workflow("release")["jobs"]["build"]["steps"]
    [check] = [step["run"] for step in steps if "GITHUB_REF_NAME" in step.get("run", "")]
    (tmp_path / "python").symlink_to(sys.executable)
    for name in ("hf_capsule_mt_command.py", "hf_capsule_mt"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n")
    environment = {**os.environ, "GITHUB_REF_NAME": tag, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    # As the runner does.
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", check]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode == 0) == passes, ended.stderr


def test_only_tested_archives_are_published_without_a_password():
    jobs = workflow("release")["jobs"]
    assert jobs["test"]["uses"] == "./.github/workflows/test.yml"
    assert set(jobs["publish"]["needs"]) == {"test", "build"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["steps"][-1].keys() == {"uses"}


def test_what_the_dockerfile_copies_is_there():
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = []
    for name, words in instructions():
        if name == "COPY":
            copied += words.split()[:-1]
    assert sorted(copied) == sorted(allowed)
    assert all((ROOT / name).exists() for name in copied)


def test_the_container_starts_the_server():
    texts = dict(instructions())
    command, name, *options = [*json.loads(texts["ENTRYPOINT"]), *json.loads(texts["CMD"])]
    assert command in PROJECT["scripts"]
    assert name == "serve"
    args = serve.build_parser().parse_args(options)
    folders = [words.split()[-1] for name, words in instructions() if name == "COPY"]
    assert args.models == [f"en-de={folders[-1]}"]
    assert args.port == int(texts["EXPOSE"])
    assert str(args.api_keys) == "/keys.txt"


def test_the_container_installs_an_extra_that_exists():
    [extra] = re.findall(r'"/package\[(\w+)\]"', (ROOT / "Dockerfile").read_text())
    assert extra in PROJECT["optional-dependencies"]


def test_what_the_page_mounts_is_where_the_container_reads():
    page = (ROOT / "docs" / "serving.md").read_text()
    [line] = [line for line in page.splitlines() if line.startswith("docker run")]
    words = shlex.split(line)
    assert words[words.index("-v") + 1].split(":")[1] == json.loads(dict(instructions())["CMD"])[-1]
    assert words[words.index("-p") + 1].endswith(f":{dict(instructions())['EXPOSE']}")
