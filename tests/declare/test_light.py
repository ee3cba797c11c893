"""Where Prefect has no place (a worker, a laptop, an import) it is not loaded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from laxity import Training, deadline_flow
from tests.support.processes import run_command

ROOT = Path(__file__).parents[2]
ENTRIES = Path(__file__).parents[1] / "support/programs/entries.py"


def python(code: str, **env: str) -> str:
    """What a fresh interpreter prints; it fails the test if it fails."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    ran = run_command(sys.executable, "-c", code, env={**os.environ, "PYTHONPATH": path, **env})
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_the_face_and_its_declarations_load_nothing_heavy() -> None:
    heavy = ["prefect", "mlflow", "pydantic", "typer", "rich", "numpy", "httpx", "yaml"]

    loaded = python(
        "import sys, laxity; laxity.QoS, laxity.deadline_flow, laxity.Client, laxity.TrainingSpec; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )

    assert loaded == "[]"


def test_importing_laxity_costs_less_than_a_tenth_of_a_second() -> None:
    code = "import time; at = time.process_time(); import laxity; print(time.process_time() - at)"

    quickest_s = min(float(python(code)) for _ in range(3))

    assert quickest_s < 0.1


def test_the_face_names_what_there_is() -> None:
    import laxity

    assert {*laxity.__all__} <= {*dir(laxity)}
    assert all(getattr(laxity, name).__name__ == name for name in laxity.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Trainer'"):
        laxity.Trainer  # noqa: B018


def test_a_worker_finds_the_users_function_and_never_loads_prefect() -> None:
    code = (
        "import sys, inspect; from tests.support.programs.flows import train_digits as flow; "
        "again = flow.with_options(name='x').with_qos(deadline='1h'); "
        "flow.on_completion(print); "
        "print('prefect' in sys.modules, list(inspect.signature(flow.__wrapped__).parameters), "
        "again.__laxity__.qos.deadline_text)"
    )

    said = python(code, LAXITY_JOB="default/train")

    assert said == "False ['training', 'hidden', 'name'] 1h"


def test_a_call_that_a_worker_would_make_on_import_says_where_it_belongs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAXITY_JOB", "default/train")

    @deadline_flow(deadline="1h")
    def train(training: Training) -> None: ...

    with pytest.raises(RuntimeError, match='if __name__ == "__main__":'):
        train()


def test_a_script_trains_alone_without_service_and_prefect() -> None:
    code = (
        "import sys; from tests.support.programs.flows import train_digits; "
        "print(train_digits(hidden=10), 'prefect' in sys.modules)"
    )

    assert python(code, LAXITY_ALONE="1", LAXITY_URL="http://127.0.0.1:9") == "60.0 False"


def test_training_alone_with_a_folder_goes_on_from_its_checkpoint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAXITY_ALONE", "1")
    monkeypatch.setenv("LAXITY_CHECKPOINTS", str(tmp_path))
    monkeypatch.setenv("LAXITY_SAVING_SHARE", "1")  # on a slow machine, too
    seen: list[int] = []

    @deadline_flow(epochs=4)
    def train(training: Training, stop_after: int) -> int:
        count = training.restore({"model": "a small one"})
        for epoch in training.epochs():
            if epoch > stop_after:
                raise InterruptedError
            seen.append(epoch)
        return count

    with pytest.raises(InterruptedError):
        train(stop_after=2)
    went_on_from = train(stop_after=9)

    assert went_on_from == 2
    assert seen == [1, 2, 3, 4]


def test_without_prefect_a_call_says_how_to_get_it() -> None:
    code = (
        "import sys; sys.modules['prefect'] = None; import importlib.util as util; "
        "found = util.find_spec; "
        "util.find_spec = lambda name, *rest: None if name == 'prefect' else found(name, *rest); "
        "from tests.support.programs.flows import train_digits\n"
        "try: train_digits()\n"
        "except ModuleNotFoundError as error: print(error)"
    )

    said = python(code)

    assert "'.[flow]'" in said
    assert "LAXITY_ALONE=1" in said


@pytest.mark.parametrize(
    ("main", "entry", "path"),
    [
        pytest.param(
            ["-m", "tests.support.programs.entries"],
            "tests.support.programs.entries:train",
            ROOT,
            id="a module run with -m",
        ),
        pytest.param([str(ENTRIES)], f"{ENTRIES}:train", ENTRIES.parent, id="a script"),
    ],
)
def test_a_worker_can_find_what_was_run_as_main(main: list[str], entry: str, path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, *main], cwd=ROOT, capture_output=True, text=True, check=True
    )

    found, workdir, env = json.loads(ran.stdout)
    assert found == entry
    assert workdir == str(ROOT)
    assert env["PYTHONPATH"].split(os.pathsep)[0] == str(path)


def test_a_function_inside_a_function_cannot_be_a_job() -> None:
    from laxity.flow.project import project_of

    with pytest.raises(ValueError, match="a worker could not import it"):
        project_of(lambda training: training)
