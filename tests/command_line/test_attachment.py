"""Who submits under the key of an earlier job is told that nothing new is trained."""

import json
from pathlib import Path

from laxity.api.attachment import attachment_text
from laxity.api.job_view import job_view
from tests.support.command_line import CommandLine
from tests.support.http_service import Service, job
from tests.support.job_answers import answer_job

NOW = 1_000_000.0
OURS = {"spec": {"template": {"spec": {"containers": [{"workingDir": "/mine"}]}}}}


def test_a_key_of_a_finished_job_trains_nothing_and_says_so() -> None:
    view = job_view(job(state="finished", finished_at=NOW - 60.0, attached=True))

    text = attachment_text(view, OURS, NOW)

    assert text.startswith(
        "nothing is trained now: its key is that of a job that finished 1m00s ago"
    )
    assert text.endswith("for a new training take another key")


def test_a_key_of_a_job_in_another_folder_names_the_folder() -> None:
    answer = job(submitted_at=NOW - 5.0, attached=True, project={"workdir": "/theirs"})

    text = attachment_text(job_view(answer), OURS, NOW)

    assert text == "attached by its key to a job that was submitted 5.0s ago, which runs in /theirs"
    same = job_view(answer | {"project": {"workdir": "/mine"}})
    assert "runs in" not in attachment_text(same, OURS, NOW)


def test_a_new_job_is_attached_to_nothing() -> None:
    assert not attachment_text(job_view(job()), OURS, NOW)


def test_submit_tells_that_the_result_is_of_an_earlier_job(
    answering: Service, tmp_path: Path, laxity: CommandLine
) -> None:
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}
    (tmp_path / "job.json").write_text(json.dumps(manifest))
    answer_job(answering, job(state="finished", finished_at=1.0, attached=True))

    assert laxity("submit", str(tmp_path / "job.json"), "--key", "nightly") == 0

    assert "default/train: nothing is trained now" in laxity.read_output()[1]
