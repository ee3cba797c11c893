import io
import json
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity.cli.exit_codes import USAGE, CommandError
from laxity.cli.job_files import read_jobs
from laxity.cli.job_source import is_entry, job_manifests, option_annotations

FLOW = """
from laxity import Training, deadline_flow

@deadline_flow(deadline="20m", workers=(1, 2), model="mlp", epochs=7)
def train(training: Training, hidden: int = 64) -> float:
    return 0.0

class Flow:
    # as Prefect's: it can be called, and has a name
    __name__ = "nightly"

    def __call__(self) -> None: ...

nightly = Flow()
ANSWER = 42

if __name__ == "__main__":
    raise SystemExit("a script is not run when it is submitted")
"""


HEAD = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}"
BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
MERGES = "a0: &a0 {k: v, l: w}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 10)
)


def job(name: str = "train", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, **more}


def ask(
    source: object, *, name: str | None = None, params: tuple[str, ...] = (), **given: str
) -> Any:
    said = {getattr(names, key.upper()): value for key, value in given.items()}
    return job_manifests(str(source), said, name=name, namespace=None, params=params)


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    path = tmp_path / "train_mlp.py"
    path.write_text(FLOW)
    return path


def test_a_file_with_generate_name_is_a_job_of_its_own_for_each_key(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: retrain-}\n")

    first, again, other = (
        ask(path, idempotency_key=key)[0]["metadata"] for key in ("sha1", "sha1", "sha2")
    )

    assert first["name"] == again["name"] != other["name"]
    assert first["name"].startswith("retrain-")
    assert "generateName" not in first
    assert ask(path)[0]["metadata"]["name"] != ask(path)[0]["metadata"]["name"]


def test_jobs_of_one_generate_name_share_a_history_unless_a_model_is_named(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: retrain-}\n")

    models = [
        asked["metadata"]["annotations"][names.MODEL]
        for asked in (*ask(path), *ask(path), *ask(path, model="resnet50"))
    ]

    assert models == ["retrain", "retrain", "resnet50"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps(job("a")), id="JSON"),
        pytest.param("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n", id="YAML"),
        pytest.param(f"---\n{json.dumps(job('a'))}\n---\n", id="documents, an empty one too"),
        pytest.param(json.dumps({"kind": "List", "items": [job("a")]}), id="a List"),
    ],
)
def test_jobs_are_read_from_what_kubectl_reads(text: str, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)

    assert [row["metadata"]["name"] for row in read_jobs(str(path))] == ["a"]


def test_a_dash_means_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(job("piped"))))

    assert read_jobs("-")[0]["metadata"]["name"] == "piped"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(b"kind: [Job\n", "line 2, column 1: not YAML", id="not YAML"),
        pytest.param(b"", "no Job in it", id="empty"),
        pytest.param(b"kind: Pod\napiVersion: v1\n", "this is a v1 Pod", id="another kind"),
        pytest.param(b"- 1\n", "a Job is a mapping", id="a list"),
        pytest.param(b"apiVersion: batch/v1\nkind: Job\n", "no metadata.name", id="no name"),
        pytest.param(b"\xff\xfe\x00", "not UTF-8", id="binary"),
        pytest.param(b"x: &a [*a]\n", "it contains itself", id="a list in itself"),
        pytest.param(BOMB.encode(), "more than 200,000 values", id="aliases of aliases"),
        pytest.param(MERGES.encode(), "more than 200,000 values", id="merges of merges"),
        pytest.param(b"[" * 3000, "nested too deep", id="3000 levels of YAML"),
        pytest.param(
            b'{"a":' * 90_000 + b"1" + b"}" * 90_000, "nested", id="90,000 levels of JSON"
        ),
        pytest.param(f"{HEAD}\n---\n{HEAD}\n".encode(), "two Jobs are called", id="twins"),
        pytest.param(b"kind: List\nitems: 5\n", "write a list of Jobs", id="a List of a number"),
        pytest.param(b"!!int x\n", "does not fit its tag", id="a tag that does not fit"),
        pytest.param(b"!!timestamp x\n", "does not fit its tag", id="an instant that is none"),
        pytest.param(b"1" * 9000, "does not fit its tag", id="a number of 9000 digits"),
        pytest.param(f"{HEAD}\nspec: .inf\n".encode(), "not a number of JSON", id="infinity"),
        pytest.param(
            f"{HEAD}\n!!timestamp 2027-01-31: 1".encode(), "not a key", id="a day as a key"
        ),
        pytest.param(f"{HEAD}\nspec: !!set {{a}}\n".encode(), "not a value", id="a set"),
        pytest.param(f"{HEAD}\nspec: {'[' * 150}{']' * 150}\n".encode(), "100 levels", id="deep"),
        pytest.param(
            b"{apiVersion: batch/v1, kind: Job, metadata: {name: a, annotations: 5}}",
            "metadata.annotations: write KEY: VALUE pairs",
            id="annotations that are a number",
        ),
    ],
)
def test_a_file_that_is_no_job_is_refused_with_its_name_and_place(
    content: bytes, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(content)

    with pytest.raises(CommandError, match=problem) as caught:
        read_jobs(str(path))

    assert str(path) in str(caught.value)
    assert caught.value.code == USAGE


def test_unquoted_instants_in_yaml_stay_the_text_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    said = f"{names.DEADLINE}: 2027-01-31T18:00:00Z, day: 2027-01-31, half: yes, none: null"
    path.write_text(
        f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: a, annotations: {{{said}}}}}"
    )

    (found,) = read_jobs(str(path))

    assert found["metadata"]["annotations"] == {
        names.DEADLINE: "2027-01-31T18:00:00Z",
        "day": "2027-01-31",
        "half": True,
        "none": None,
    }


def test_standard_input_that_is_not_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8"))

    with pytest.raises(CommandError, match="-: not UTF-8 text"):
        read_jobs("-")


def test_options_win_over_the_file_and_the_label_is_set(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    metadata = {"name": "a", "annotations": {names.DEADLINE: "1h", names.MODEL: "mlp"}}
    path.write_text(json.dumps(job() | {"metadata": metadata}))

    (found,) = ask(path, deadline="20m")

    assert found["metadata"]["annotations"] == {names.DEADLINE: "20m", names.MODEL: "mlp"}
    assert found["metadata"]["labels"] == {names.MANAGED: "true"}


def test_a_clock_deadline_is_sent_with_the_zone_of_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laxity.clock_time.local_zone_name", lambda: "Asia/Tokyo")

    annotations = option_annotations("06:00")

    assert annotations[names.DEADLINE] == "06:00 Asia/Tokyo"
    assert option_annotations(None)[names.DEADLINE] is None


def test_one_name_is_not_given_to_two_jobs(tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps({"kind": "List", "items": [job("a"), job("b")]}))

    with pytest.raises(CommandError, match="--name for 2 Jobs"):
        ask(path, name="c")


def test_a_function_becomes_the_job_that_its_flow_would_submit(flow: Path) -> None:
    (found,) = ask(f"{flow}:train", params=("hidden=128",), deadline="10m")

    said = found["metadata"]["annotations"]
    assert said[names.DEADLINE] == "10m"
    assert said[names.EPOCHS] == "7"
    assert said[names.ENTRY] == f"{flow}:train"
    assert json.loads(said[names.PARAMETERS]) == {"hidden": 128}


def test_class_best_effort_drops_a_declared_deadline_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "due.py"
    script.write_text(
        "from laxity import Training, deadline_flow\n"
        "@deadline_flow(deadline='20m')\n"
        "def train(training: Training) -> None: ...\n"
    )

    (manifest,) = job_manifests(
        f"{script}:train", {names.CLASS: "best_effort"}, name=None, namespace=None, params=[]
    )

    annotations = manifest["metadata"]["annotations"]
    assert annotations[names.CLASS] == "best_effort"
    assert names.DEADLINE not in annotations
    assert "20m is left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entry", "params", "problem"),
    [
        pytest.param("nightly", (), "is of type Flow, not a .*; it has: train$", id="a plain flow"),
        pytest.param("ANSWER", (), "is of type int, not a function; it has: train", id="no call"),
    ],
)
def test_a_function_that_cannot_be_called_so_is_refused(
    entry: str, params: tuple[str, ...], problem: str, flow: Path
) -> None:
    with pytest.raises(CommandError, match=problem):
        ask(f"{flow}:{entry}", params=params)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        pytest.param(
            "raise RuntimeError('boo')",
            r"importing it raises RuntimeError \(mine.py, line 1\): boo$",
            id="it",
        ),
        pytest.param(
            "from laxity import deadline_flow\nimport json\n\njson.loads('x')",
            r"importing it raises JSONDecodeError \(mine.py, line 4\): Expecting value",
            id="in a library",
        ),
        pytest.param(
            "from laxity import deadline_flow\n\n@deadline_flow(deadline='20')\ndef fn(training): ...",
            r"importing it raises QoSError \(mine.py, line 3\): deadline: 20 of what\? Write the unit",
            id="a declaration",
        ),
        pytest.param("\nimport sys; sys.exit(3)", r"ends the program \(3\).*line 2", id="exit"),
        pytest.param("def fn(:", "invalid syntax", id="no Python"),
        pytest.param("import nowhere_at_all", "No module named 'nowhere_at_all'", id="import"),
    ],
)
def test_a_file_that_cannot_be_imported_is_wrong_usage_and_told_with_its_line(
    code: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(code)

    with pytest.raises(CommandError, match=problem) as caught:
        ask(f"{tmp_path}/mine.py:fn")

    assert caught.value.code == USAGE


@pytest.mark.parametrize("source", ["", "train.py", "train.py:"])
def test_a_script_without_a_function_is_told_how_to_name_one(source: str) -> None:
    with pytest.raises(CommandError, match=r"train\.py:FUNCTION") as caught:
        ask(source)

    assert caught.value.code == USAGE


def test_a_path_that_is_no_module_is_said_to_be_none() -> None:
    with pytest.raises(CommandError, match="neither a file"):
        ask("../..:x")


def test_a_function_that_declares_nothing_gets_one_worker_unless_more_are_named(
    tmp_path: Path,
) -> None:
    script = tmp_path / "plain_two.py"
    script.write_text("def train(training): pass\n")

    (unnamed,) = ask(f"{script}:train", deadline="10m")
    (named,) = job_manifests(
        f"{script}:train", {names.WIDTHS: "1,2"}, name=None, namespace=None, params=[]
    )

    assert unnamed["metadata"]["annotations"][names.WIDTHS] == "1"
    assert named["metadata"]["annotations"][names.WIDTHS] == "1,2"


def test_a_function_without_a_training_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain_one.py").write_text("def train(alpha): pass\n")

    with pytest.raises(CommandError, match="first parameter of train must be `training`"):
        ask(f"{tmp_path}/plain_one.py:train", params=("alpha=1",))


@pytest.mark.parametrize(
    ("source", "want"),
    [
        pytest.param("train.py:fn", True, id="a file's function"),
        pytest.param("package.module:Class.method", True, id="a module's"),
        pytest.param("job.yaml", False, id="a manifest"),
        pytest.param("-", False, id="standard input"),
        pytest.param("train.py", False, id="no function"),
    ],
)
def test_a_function_is_told_from_a_file(source: str, *, want: bool) -> None:
    assert is_entry(source) is want


def test_a_wrong_option_is_told_before_the_file_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "slow.py"
    path.write_text("raise AssertionError('imported')")

    with pytest.raises(CommandError, match="deadline: 20 of what"):
        ask(f"{path}:train", deadline="20")
