"""Bad input over HTTP: the answer names the field, or which jobs there are."""

from pathlib import Path

import pytest

from tests.support.memory_world import MemoryWorld
from tests.support.services import staged


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"{", 422, id="half an object"),
        pytest.param(b"[1]", 422, id="a list"),
        pytest.param(b'{"metadata": {"name": "\\ud800"}}', 422, id="a lone surrogate"),
        pytest.param(b'{"x": NaN}', 422, id="NaN"),
        pytest.param(b"[" * 100_000, 400, id="a hundred thousand brackets"),
        pytest.param(b'{"x": "' + b"x" * 1_100_000 + b'"}', 413, id="more than a megabyte"),
    ],
)
def test_a_body_that_is_no_job_is_a_clear_error(tmp_path: Path, body: bytes, status: int) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        answer = stage.http.post(
            "/v1/jobs", content=body, headers={"Content-Type": "application/json"}
        )
        alive = stage.http.get("/healthz")
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
    assert alive.status_code == 200


def test_a_job_that_does_not_exist_is_not_found_whatever_is_asked_of_it(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        answers = [
            stage.http.get("/v1/jobs/default/nobody"),
            stage.http.get("/v1/jobs/default/nobody/explain"),
            stage.http.post("/v1/jobs/default/nobody/signal", json={"uid": "u"}),
            stage.http.post("/v1/jobs/default/nobody/amend", json={"deadline": "1h"}),
            stage.http.get("/v1/jobs/..%2f..%2fetc/passwd"),
        ]
    assert [answer.status_code for answer in answers] == [404] * 5
    assert {answer.json()["error"]["code"] for answer in answers} == {"not_found"}


def test_who_misspells_a_job_or_cuts_its_name_short_is_told_which_there_are(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        for name in ("nightly-de71279e93f6", "weekly"):
            stage.submit(name, deadline="1h")
            stage.until(f"default/{name}", lambda view: view["verdict"] == "promised", "promised")
        paths = ("default/nightly", "default/weekyl", "default/other", "elsewhere/nightly")
        said = [
            stage.http.get(f"/v1/jobs/{path}").json()["error"]["message"].partition("; ")[2]
            for path in paths
        ]
    assert said == [
        "did you mean default/nightly-de71279e93f6?", "did you mean default/weekly?", "", "",
    ]  # fmt: skip
