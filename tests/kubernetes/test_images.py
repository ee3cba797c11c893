"""The Dockerfiles of the service and of a training image, as far as that can be told without Docker.

No registry is in reach here; the GitHub workflow builds both images and starts them.
"""

import os
import re
import shlex
import shutil
import sys
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.processes import run_command

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "k8s" / "images"
NAMES = ("service", "train")
AN_INSTANT = 1_767_225_600
FIVE = {"laxity", "laxity_profiler", "laxity_scheduler", "laxity_lab", "laxity_k8s"}


@dataclass(frozen=True)
class Step:
    """One instruction of a Dockerfile, its arguments filled in."""

    word: str
    rest: str


def steps(name: str) -> list[Step]:
    """All instructions, continued lines joined; ARGs with a default are filled in."""
    text = (IMAGES / f"{name}.Dockerfile").read_text()
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    given: dict[str, str] = {}
    found = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "ARG":
            key, _, value = rest.partition("=")
            given[key] = value.strip('"')
        filled = re.sub(r"\$\{(\w+)\}", lambda match: given.get(match[1], match[0]), rest)
        found.append(Step(word, filled))
    return found


def of(name: str, word: str) -> list[str]:
    return [step.rest for step in steps(name) if step.word == word]


def copied(name: str) -> list[str]:
    """What is copied from the build's context."""
    rows = [row.split() for row in of(name, "COPY") if "--from=" not in row]
    return [source for row in rows for source in row[:-1]]


def context(name: str, folder: Path) -> Path:
    """What `docker build` sends and the Dockerfile copies."""
    for source in copied(name):
        target = folder / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, target)
    return folder


def installs(name: str) -> list[list[str]]:
    """The words after `pip install` of each RUN."""
    found = [row.partition("pip install ")[2] for row in of(name, "RUN")]
    return [shlex.split(words) for words in found if words]


@pytest.mark.parametrize("name", NAMES)
def test_an_image_has_a_pinned_base_and_runs_as_nobody_in_particular(name: str) -> None:
    bases = [row.split()[0] for row in of(name, "FROM")]
    assert all(re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+", base) for base in bases), bases
    users = [int(row.split(":")[0]) for row in of(name, "USER")]
    assert users == [10001]
    after = [step.word for step in steps(name)]
    assert "RUN" not in after[after.index("USER") :], "nothing is installed as that user"


@pytest.mark.parametrize("name", NAMES)
def test_what_an_image_copies_is_there_and_is_sent_to_the_build(name: str) -> None:
    ignored = (IMAGES / f"{name}.Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in ignored, "everything else stays out"
    assert {f"!{source}" for source in copied(name)} <= set(ignored)
    assert all((ROOT / source).exists() for source in copied(name))


@pytest.mark.parametrize("name", NAMES)
def test_an_image_installs_the_locked_versions_with_no_more_than_it_needs(name: str) -> None:
    (words,) = installs(name)
    assert words[words.index("--constraint") + 1] == "constraints.txt"
    assert words[-1] == {"service": ".[service,kubernetes,compiled]", "train": "."}[name]


def test_the_deployment_runs_the_image_as_the_dockerfile_means_it() -> None:
    import yaml

    manifest = ROOT / "k8s" / "manifests" / "base" / "deployment.yaml"
    deployment, *_ = yaml.safe_load_all(manifest.read_text())
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == int(of("service", "USER")[0].split(":")[0])
    told = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    assert f"LAXITY_HOME={told['LAXITY_HOME']}" in of("service", "ENV")[0]
    assert of("service", "ENTRYPOINT") == ['["laxity"]']
    assert pod["containers"][0]["args"][0] == "serve"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_what_is_copied_is_enough_to_build_all_five_packages(name: str, tmp_path: Path) -> None:
    made = context(name, tmp_path / "context")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
        "--wheel-dir", str(tmp_path), str(made))  # fmt: skip
    (wheel,) = tmp_path.glob("laxity-*.whl")
    inside = {path.split("/")[0] for path in zipfile.ZipFile(wheel).namelist()}
    assert inside >= FIVE


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.soak
def test_the_install_commands_work_in_a_fresh_venv(name: str, tmp_path: Path) -> None:
    """Each RUN that installs, with the image's venv in a folder; then the command answers."""
    made = context(name, tmp_path / "context")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    for words in installs(name):
        run(str(python), "-m", "pip", "install", "--quiet", *words, cwd=made)
    laxity = str(tmp_path / "venv" / "bin" / "laxity")
    assert run(laxity, "--version").startswith("laxity ")
    module = {"service": "laxity_scheduler.process.serve", "train": "laxity.worker.training"}[name]
    run(str(python), "-c", f"import {module}")
    assert "training" in run(laxity, "--help")
    run(str(python), "-m", "pip", "check")


@pytest.mark.soak
def test_machine_code_that_the_image_keeps_is_used_though_layers_keep_whole_seconds(
    tmp_path: Path,
) -> None:
    """As the image's step makes it, and as a layer of an image keeps it."""
    built, layer = tmp_path / "built", tmp_path / "layer"
    for package in ("laxity_scheduler", "laxity_lab"):
        shutil.copytree(ROOT / "scheduler" / package, built / package)
    for page in built.rglob("*.py"):
        os.utime(page, (AN_INSTANT, AN_INSTANT))
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "numba"), "NUMBA_CPU_NAME": "generic"}
    warm = (sys.executable, "-m", "laxity_lab.warm")
    run(*warm, cwd=built, **cache)
    shutil.copytree(built, layer)
    for page in layer.rglob("*.py"):
        os.utime(page, (int(page.stat().st_mtime),) * 2)
    shutil.rmtree(built)
    layer.rename(built)
    told = run(*warm, cwd=built, NUMBA_DEBUG_CACHE="1", **cache)
    assert "data loaded" in told
    assert "data saved" not in told


def run(*command: str, cwd: Path | None = None, **more: str) -> str:
    env = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"} | more
    done = run_command(*command, env=env, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
