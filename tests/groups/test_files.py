"""A file of Jobs that wait for one another becomes a group."""

from typing import Any

import pytest

from laxity import names
from laxity.cli.exit_codes import CommandError
from laxity.cli.group_files import group_document, is_group

Json = dict[str, Any]


def job(name: str, after: str = "", **annotations: str) -> Json:
    said = {f"{names.DOMAIN}/{key.replace('_', '-')}": text for key, text in annotations.items()}
    said |= {names.AFTER: after} if after else {}
    return {"metadata": {"name": name, "annotations": said}}


def test_jobs_with_after_are_steps_of_one_group() -> None:
    jobs = [
        job("a", deadline="8h"),
        job("b", "a", step="x"),
        job("c", "a", step="x"),
        job("d", "x"),
    ]
    document = group_document(jobs, "release.yaml", "key")
    steps = [(row["name"], row["count"], sorted(set(row["after"]))) for row in document["steps"]]
    assert steps == [("a", 1, []), ("x", 2, ["a"]), ("d", 1, ["x"])]
    assert document["deadline"] == "8h"
    assert document["name"] == group_document(jobs, "release.yaml", "key")["name"]


def test_step_is_predicted_as_a_job_of_its_own() -> None:
    document = group_document([job("a"), job("b", "a", deadline="8h")], "r.yaml", None)
    manifest = document["steps"][1]["manifest"]
    assert manifest["metadata"] == {"name": "b", "annotations": {}}


def test_jobs_without_after_and_group_stay_jobs_of_their_own() -> None:
    assert not is_group([job("a", deadline="8h"), job("b", deadline="8h")])
    assert is_group([job("a"), job("b", "a")])
    assert is_group([job("a", group="g")])


@pytest.mark.parametrize(
    ("jobs", "sentence"),
    [
        pytest.param([job("a"), job("b", "a")], "no deadline", id="no deadline"),
        pytest.param(
            [job("a", deadline="8h"), job("b", "a", deadline="9h")], "8h and 9h", id="two deadlines"
        ),
        pytest.param(
            [job("a", group="g", deadline="8h"), job("b", group="h")], "g and h", id="two groups"
        ),
    ],
)
def test_jobs_that_disagree_are_refused(jobs: list[Json], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        group_document(jobs, "release.yaml", None)
