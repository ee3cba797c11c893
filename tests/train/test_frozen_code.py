"""A frozen job runs the code of its submission, whatever becomes of the files afterwards."""

import sys
from pathlib import Path

import pytest

from laxity import names
from laxity.flow.declaration import Declaration
from laxity.job.qos import QoSError
from laxity.job.spec import TrainingSpec
from laxity.worker.code import code_copy
from laxity.worker.code.code_copy import copy_code
from tests.support.machine import Machine

WORKER = """
import sys, time
from pathlib import Path
from laxity.worker.code.code_copy import import_from_copy
from laxity.worker.code.entrypoint import load_function
while not Path("edited").exists():
    time.sleep(0.01)
print(load_function(import_from_copy(sys.argv[1]))(), Path.cwd())
"""
TRAIN = """
from pathlib import Path
from parts import rates
def train():
    return rates.RATE, (Path(__file__).parent / "parts/lr.txt").read_text()
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "home")


def make_project(folder: Path) -> Path:
    (folder / "parts").mkdir(parents=True)
    (folder / "parts/__init__.py").touch()
    (folder / "parts/rates.py").write_text("RATE = 'first'\n")
    (folder / "parts/lr.txt").write_text("first")
    (folder / "project.py").write_text(TRAIN)
    return folder


def edit(project: Path) -> None:
    (project / "parts/rates.py").write_text("RATE = 'second'\n")
    (project / "parts/lr.txt").write_text("second")
    (project / "edited").touch()


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["{project}/project.py:train", "project:train"])
@pytest.mark.parametrize(("freeze", "trained"), [("true", "first"), ("false", "second")])
def test_only_frozen_jobs_run_the_code_of_their_submission(
    tmp_path: Path, machine: Machine, entry: str, freeze: str, trained: str
) -> None:
    project = make_project(tmp_path / "project")
    place = entry.format(project=project)
    container = {
        "command": [sys.executable, "-c", WORKER, place],
        "workingDir": str(project),
        "env": [{"name": "PYTHONPATH", "value": str(project)}],
    }
    annotations = {names.FREEZE: freeze, names.ENTRY: place}

    job_id = machine.run("job", "", container=container, annotations=annotations)
    edit(project)

    machine.complete(job_id)
    assert machine.log(job_id).split(" /")[0] == f"('{trained}', '{trained}')"
    assert machine.log(job_id).rstrip().endswith(str(project))
    machine.api.close()


def test_code_and_small_files_beside_it_are_copied_and_all_else_is_linked(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    for folder in ("data", "venv", ".git", "elsewhere"):
        (project / folder).mkdir()
        (project / folder / "config").write_text("x")
    (project / "venv/pyvenv.cfg").touch()
    (project / "venv/installed.py").touch()
    (project / "linked").symlink_to(project / "parts")
    (project / "weights.bin").write_bytes(bytes(code_copy.SMALL_BYTES + 1))

    copy_code([project, project / "parts"], tmp_path / "copy")

    copied = tmp_path / "copy" / project.relative_to("/")
    links = sorted(path.name for path in copied.iterdir() if path.is_symlink())
    assert links == [".git", "data", "elsewhere", "linked", "venv", "weights.bin"]
    assert (copied / "parts/lr.txt").read_text() == "first"
    assert not (copied / "parts").is_symlink()
    assert (copied / "data/config").read_text() == "x"


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        pytest.param("MOST_FILES", "more than 1 files", id="files"),
        pytest.param("MOST_BYTES", "MiB of code", id="bytes"),
    ],
)
def test_a_folder_that_holds_too_much_is_refused_and_leaves_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, words: str
) -> None:
    monkeypatch.setattr(code_copy, limit, 1)

    with pytest.raises(QoSError, match=words):
        copy_code([make_project(tmp_path / "project")], tmp_path / "copy")

    assert not (tmp_path / "copy").exists()


@pytest.mark.slow
def test_a_working_directory_of_another_machine_is_refused(
    tmp_path: Path, machine: Machine
) -> None:
    container = {"workingDir": str(tmp_path / "absent")}

    with pytest.raises(QoSError, match="is no working directory on this machine"):
        machine.run("job", "", container=container, annotations={names.FREEZE: "true"})

    machine.api.close()


def test_a_missing_copy_fails_the_worker_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(names.ENV_CODE, str(tmp_path / "absent"))

    with pytest.raises(FileNotFoundError, match="submit it again"):
        code_copy.import_from_copy("project:train")


def test_a_declaration_carries_freeze_into_the_manifest() -> None:
    spec = Declaration.of("nightly", {"freeze": True}).spec(entry="m:f", parameters={})

    assert TrainingSpec.from_manifest(spec.to_manifest()).freeze
    with pytest.raises(QoSError, match="freeze"):
        Declaration.of("nightly", {"freeze": "yes"})
