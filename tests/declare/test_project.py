"""A worker gets the project of its submitter: import path, working directory, environment."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from laxity.flow.project import is_secret, project_of, with_project, worker_variables
from laxity.job.pod_template import pod_template
from laxity.job.qos import QoSError
from tests.support import acme
from tests.support.processes import run_command

SAY = "import json; print(json.dumps([found.entry, found.workdir, dict(found.env)]))"
DECLARED = (
    f"from laxity.flow.project import project_of; found = project_of(train.fn.__wrapped__); {SAY}"
)
BY_PREFECT = f"""
from prefect.flows import load_flow_from_entrypoint
from laxity.flow.project import project_of
flow = load_flow_from_entrypoint("ENTRY", use_placeholder_flow=False)
found = project_of(flow.fn.__wrapped__); {SAY}
"""
BY_LAXITY = f"""
from laxity.cli.function_source import load_declared
from laxity.flow.project import project_of
found = project_of(load_declared("ENTRY")[0]); {SAY}
"""
OUTSIDE = {name: value for name, value in os.environ.items() if name != "LAXITY_ALONE"}
IN_WORKER = """
import sys
from laxity.worker.code.entrypoint import load_function
print(load_function(sys.argv[1]).__globals__["SCALE"])
"""


def python(code: str, *arguments: str, cwd: Path, env: dict[str, str]) -> str:
    """What a fresh interpreter prints, started like `python -m`: the folder is on its path."""
    ran = run_command(sys.executable, "-c", code, *arguments, env=env, cwd=cwd)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip().splitlines()[-1]


def imported_by_worker(said: str) -> str:
    entry, workdir, env = json.loads(said)
    return python(IN_WORKER, entry, cwd=Path(workdir), env={**env, "LAXITY_JOB": "default/a"})


@pytest.mark.parametrize("parts", [".parts", "acme.parts"], ids=["relative", "absolute"])
@pytest.mark.parametrize(
    ("code", "entry"),
    [
        pytest.param(f"from acme.flows import train; {DECLARED}", "", id="a script imports it"),
        pytest.param(BY_LAXITY, "acme/flows.py:train", id="laxity submit, by its file"),
        pytest.param(BY_LAXITY, "acme.flows:train", id="laxity submit, by its name"),
        pytest.param(BY_LAXITY, "acme/sub/flows.py:train", id="laxity submit, a subpackage"),
        pytest.param(BY_PREFECT, "acme/flows.py:train", id="a served flow, by its file"),
        pytest.param(BY_PREFECT, "acme.flows:train", id="a served flow, by its name"),
    ],
)
def test_a_worker_imports_a_package_that_is_not_installed(
    code: str, entry: str, parts: str, tmp_path: Path
) -> None:
    acme.write(tmp_path, parts=parts)

    said = python(code.replace("ENTRY", entry), cwd=tmp_path, env=OUTSIDE)

    assert imported_by_worker(said) == "2"


def test_a_file_outside_of_packages_may_import_its_neighbours_either_way(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "helper.py").write_text("SCALE = 1\n")
    (tmp_path / "top.py").write_text("SCALE = 1\n")
    (tmp_path / "sub" / "flows.py").write_text(
        "from .helper import SCALE as one\n"
        "from laxity import deadline_flow\n"
        "from top import SCALE as two\n"
        "SCALE = one + two\n"
        "@deadline_flow()\n"
        "def train(training): pass\n"
    )

    for how in (BY_LAXITY, BY_PREFECT):
        said = python(how.replace("ENTRY", "sub/flows.py:train"), cwd=tmp_path, env=OUTSIDE)
        assert imported_by_worker(said) == "2"


def test_folders_that_the_script_added_to_its_path_are_taken_along(tmp_path: Path) -> None:
    acme.write(tmp_path / "src")
    code = f"import sys; sys.path.append('src'); from acme.flows import train; {DECLARED}"

    said = python(code, cwd=tmp_path, env=OUTSIDE)

    assert str(tmp_path / "src") in json.loads(said)[2]["PYTHONPATH"].split(os.pathsep)
    assert imported_by_worker(said) == "2"


def test_a_function_of_a_notebook_is_refused_with_what_to_do(tmp_path: Path) -> None:
    code = (
        "def train(training): pass\nfrom laxity.flow.project import project_of\nproject_of(train)"
    )

    ran = run_command(sys.executable, "-c", code, cwd=tmp_path)

    assert "train stands in no file (a notebook, or an interactive session)" in ran.stderr
    assert "write it into a .py file and import it from there" in ran.stderr


MATTERS = {"PATH": "/bin", "LC_ALL": "C", "CUDA_VISIBLE_DEVICES": "1", "OMP_NUM_THREADS": "2"}


def test_a_worker_gets_what_matters_and_no_secret() -> None:
    secrets = {
        "HF_TOKEN": "t",
        "WANDB_API_KEY": "k",
        "MLFLOW_TRACKING_PASSWORD": "p",
        "HTTPS_PROXY": "http://me:word@proxy:80",
    }
    others = {"FOO": "bar", "MLFLOW_TRACKING_URI": "u", "LAXITY_JOB": "a/b", "SLURM_JOB_ID": "1"}

    assert worker_variables({**MATTERS, **secrets, **others}) == MATTERS


@pytest.mark.parametrize(
    ("pass_env", "passed"),
    [
        pytest.param(("FOO",), {"FOO"}, id="one name"),
        pytest.param(("FOO*",), {"FOO", "FOO_BAR"}, id="names alike, no secret"),
        pytest.param(("*",), {"FOO", "FOO_BAR", "MLFLOW_TRACKING_URI"}, id="all but secrets"),
        pytest.param(("FOO_TOKEN",), {"FOO_TOKEN"}, id="a secret by its whole name"),
        pytest.param(("MISSING",), set(), id="a variable that is not set"),
    ],
)
def test_further_variables_are_passed_by_name(pass_env: tuple[str, ...], passed: set[str]) -> None:
    names = ("FOO", "FOO_BAR", "FOO_TOKEN", "MLFLOW_TRACKING_URI", "LAXITY_JOB")

    assert {*worker_variables(dict.fromkeys(names, "x"), pass_env=pass_env)} == passed


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        pytest.param("AWS_SECRET_ACCESS_KEY", True, id="a key"),
        pytest.param("GITHUB_PAT", True, id="a personal access token"),
        pytest.param("MYAPIKEY", True, id="a key in one word"),
        pytest.param("GOOGLE_APPLICATION_CREDENTIALS", True, id="credentials"),
        pytest.param("TOKENIZERS_PARALLELISM", False, id="tokenizers are no tokens"),
        pytest.param("PATH", False, id="a path is no personal access token"),
    ],
)
def test_secrets_are_known_by_the_words_of_their_names(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


def test_kubernetes_expands_nothing_in_what_is_taken_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_PLACES", "$(HOME)")

    assert project_of(acme.write).env["OMP_PLACES"] == "$$(HOME)"


def test_with_an_image_only_named_variables_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOO", "bar")

    found = project_of(acme.write, pass_env=("FOO",), has_image=True)

    assert (found.workdir, found.env) == (None, {"FOO": "bar"})


def test_a_secret_is_not_written_into_a_job_with_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOO_TOKEN", "t")

    with pytest.raises(QoSError, match="Kubernetes Secret"):
        project_of(acme.write, pass_env=("FOO_TOKEN",), has_image=True)


def job(**container: Any) -> dict[str, Any]:
    template = pod_template(command=None, image="x", env={}, gpus_per_worker=1, overrides={})
    row = {"name": "train", "env": [{"name": "FOO", "value": "own"}], **container}
    template["spec"]["containers"] = [row]
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template}}


def first(manifest: dict[str, Any]) -> Any:
    return manifest["spec"]["template"]["spec"]["containers"][0]


def test_a_job_of_a_file_without_an_image_runs_where_it_was_submitted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOO", "bar")
    monkeypatch.setenv("BAR", "baz")

    made = first(with_project(job(), pass_env=("FOO", "BAR")))

    env = {row["name"]: row["value"] for row in made["env"]}
    assert made["workingDir"] == str(tmp_path)
    assert (env["FOO"], env["BAR"], env["PATH"]) == ("own", "baz", os.environ["PATH"])


@pytest.mark.parametrize(
    "container",
    [
        pytest.param({"image": "train:1"}, id="an image"),
        pytest.param({"env": "nonsense"}, id="an environment that is no list"),
    ],
)
def test_a_job_with_an_image_or_without_sense_stays_as_written(container: dict[str, Any]) -> None:
    assert with_project(job(**container)) == job(**container)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda deadline_flow: deadline_flow(pass_env="FOO"), id="a text"),
        pytest.param(lambda deadline_flow: deadline_flow(pass_env=("A B",)), id="a blank in it"),
        pytest.param(lambda deadline_flow: deadline_flow(pass_env=("LAXITY_JOB",)), id="our own"),
    ],
)
def test_names_that_cannot_be_passed_are_refused(call: Callable[[Any], Any]) -> None:
    from laxity import deadline_flow

    def train(training: object) -> None: ...

    with pytest.raises(QoSError) as error:
        call(deadline_flow)(train)

    assert error.value.field == "pass_env"


def test_a_package_served_from_another_folder_is_imported_from_its_own_root(
    tmp_path: Path,
) -> None:
    acme.write(tmp_path / "project")
    (tmp_path / "elsewhere").mkdir()
    file = tmp_path / "project" / "acme" / "flows.py"

    said = python(
        BY_PREFECT.replace("ENTRY", f"{file}:train"), cwd=tmp_path / "elsewhere", env=OUTSIDE
    )

    entry, workdir, found = json.loads(said)
    assert (entry, workdir) == ("acme.flows:train", str(tmp_path / "elsewhere"))
    assert str(tmp_path / "project") in found["PYTHONPATH"].split(os.pathsep)
    assert imported_by_worker(said) == "2"
