"""Commands that take a group's name where there is no job of that name."""

from pathlib import Path
from typing import Any

import yaml

from laxity import names
from tests.support.command_line import CommandLine
from tests.support.http_service import Service, job

Json = dict[str, Any]
MISSING = (404, {"error": {"code": "not_found", "message": "there is no job default/release"}})


def group(**fields: Any) -> Json:
    step = {"name": "tune", "count": 3, "after": ["base"], "finished": 1, "due_at": 2e9}
    return {
        "id": "default/release", "kind": "workflow", "state": "active", "verdict": "promised",
        "reason": "it fits", "reason_code": "group_fits", "offers": [], "deadline_at": 2e9,
        "finished_at": None, "p90_at": 1.9e9, "steps": [step], "jobs": [job("x")], **fields,
    }  # fmt: skip


def test_group_is_shown_with_its_steps_and_jobs(answering: Service, laxity: CommandLine) -> None:
    answering.answers["GET /v1/jobs"] = (200, {"jobs": []})
    answering.answers["GET /v1/jobs/default/release"] = MISSING
    answering.answers["GET /v1/groups/default/release"] = (200, group())
    assert laxity("show", "release") == 0
    text = laxity.read()
    assert "workflow release: active" in text
    assert "3 jobs, after base; 1 finished; must end by" in text


def test_refused_group_shows_its_offers_and_exits_as_refused(
    answering: Service, laxity: CommandLine
) -> None:
    refused = group(state="refused", verdict="refused", offers=[{"text": "fewer trainings"}])
    answering.answers["GET /v1/jobs"] = (200, {"jobs": []})
    answering.answers["POST /v1/jobs/default/release/amend"] = MISSING
    answering.answers["POST /v1/groups/default/release/amend"] = (200, refused)
    assert laxity("amend", "release", "--deadline", "2h") == 3
    assert "1. fewer trainings" in laxity.read()


def test_refused_deadline_of_a_group_whose_promise_stands_exits_as_refused(
    answering: Service, laxity: CommandLine
) -> None:
    answering.answers["GET /v1/jobs"] = (200, {"jobs": []})
    answering.answers["POST /v1/jobs/default/release/amend"] = MISSING
    answering.answers["POST /v1/groups/default/release/amend"] = (200, group(verdict="refused"))
    assert laxity("amend", "release", "--deadline", "2h") == 3


def test_beginning_of_a_group_is_enough_where_no_job_has_it(
    answering: Service, laxity: CommandLine
) -> None:
    unknown = (404, {"error": {"code": "not_found", "message": "there is no job default/rel"}})
    answering.answers["GET /v1/jobs"] = (200, {"jobs": []})
    answering.answers["GET /v1/jobs/default/rel"] = unknown
    answering.answers["GET /v1/groups/default/rel"] = unknown
    answering.answers["GET /v1/groups"] = (200, {"groups": [group(id="other/rel"), group()]})
    answering.answers["GET /v1/groups/default/release"] = (200, group())
    assert laxity("show", "rel") == 0
    assert "workflow release: active" in laxity.read()


def test_name_of_neither_job_nor_group_is_an_unknown_job(
    answering: Service, laxity: CommandLine
) -> None:
    answering.answers["GET /v1/jobs"] = (200, {"jobs": []})
    answering.answers["GET /v1/jobs/default/release"] = MISSING
    answering.answers["GET /v1/groups/default/release"] = MISSING
    assert laxity("show", "release") != 0
    assert "there is no job default/release" in laxity.read_errors()


def test_whatif_of_a_file_of_steps_asks_about_the_whole(
    answering: Service, laxity: CommandLine, tmp_path: Path
) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "train", "command": ["true"]}]}
    jobs = [
        {
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "annotations": {names.EPOCHS: "1", **after}},
            "spec": {"completionMode": "Indexed", "template": {"spec": pod}},
        }
        for name, after in (("base", {}), ("tune", {names.AFTER: "base"}))
    ]  # fmt: skip
    (tmp_path / "release.yaml").write_text(yaml.safe_dump_all(jobs))
    asked = group(state="not submitted", jobs=[])
    answering.answers["POST /v1/groups/whatif"] = (200, asked)
    assert laxity("whatif", str(tmp_path / "release.yaml"), "--deadline", "8h") == 0
    assert "workflow release: not submitted" in laxity.read()
