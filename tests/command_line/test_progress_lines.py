from typing import Any

from laxity.api.client import Client
from laxity.api.job_follower import JobFollower
from laxity.api.job_view import job_view
from laxity.cli.render.progress_lines import ProgressLines
from laxity.human_time import instant_text
from tests.support.http_service import Service, job


def followed(answering: Service, *views: Any) -> list[str]:
    """What is said until the last of these answers, without the time; a number is a status."""
    said: list[str] = []
    answers = iter(views)
    answering.answers["GET /v1/jobs/default/train"] = lambda _: _answer(next(answers))
    client = Client(answering.url, "", patience_s=0.0)
    first = job_view(job(epochs=100, epochs_done=0, workers=0, state="queued", laxity_s=None))
    following = JobFollower(
        client, ProgressLines(said.append, clock=lambda: 0.0), sleep=lambda _: None
    )
    assert following.follow(first).state == "finished"
    return [line.partition(" ")[2] for line in said]


def _answer(view: Any) -> tuple[int, Any]:
    return (
        (view, {"error": {"code": "x", "message": "overloaded"}})
        if type(view) is int
        else (200, view)
    )


def running(done: int) -> dict[str, Any]:
    return job(
        epochs=100,
        epochs_done=done,
        workers=2,
        laxity_s=None,
        reason_code="due_first",
        reason="free GPUs",
    )


END = job(epochs=100, epochs_done=100, state="finished", finished_at=1.0)


def test_a_line_for_each_change_and_for_each_tenth_of_the_epochs(answering: Service) -> None:
    said = followed(answering, running(0), running(3), running(9), running(10), running(34), END)

    why = {0: ": free GPUs"}  # a reason that stands is not said again
    assert said[1:] == [
        f"default/train: promised, {done} of 100 epochs, running on 2 workers{why.get(done, '')}"
        for done in (0, 10, 34)
    ]
    assert "0 of 100 epochs, queued" in said[0]


def test_a_broken_promise_is_told_with_its_figures_once_and_in_local_time(
    answering: Service,
) -> None:
    late = {"deadline_at": 60.0, "p90_at": 90.0, "broken": True}
    said = followed(
        answering, running(0), running(9) | late, running(10) | late, END | late | {"kept": False}
    )

    deadline, finish = instant_text(60.0, 0.0), instant_text(90.0, 0.0)
    assert [line.partition(": ")[2] for line in said if "broken" in line] == [
        (
            f"broken: the deadline {deadline} has passed; P90 finish {finish}, "
            "9 of 100 epochs, running on 2 workers"
        ),
        "broken, 10 of 100 epochs, running on 2 workers",
    ]


def test_a_forecast_in_a_followed_line_is_that_of_now(answering: Service) -> None:
    moved = {"reason_code": "promise_moved", "reason": "the P90 finish is now 1969-12-31T23:59:51Z"}
    expected = {"p90_at": 90.0, "deadline_at": 150.0}

    said = followed(answering, running(0), running(10) | moved | expected, END)

    finish = instant_text(90.0, 0.0)
    assert said[-1].endswith(f": P90 finish {finish}, 1m00s before the deadline")


def test_what_workers_die_of_is_told_once_and_not_only_at_the_end(answering: Service) -> None:
    failing = running(0) | {"error": "No module named 'train'"}

    said = followed(answering, running(0), failing, failing, failing, running(1), END)

    assert [line for line in said if "failed" in line] == [
        "default/train: a worker failed: No module named 'train' (see: laxity logs default/train)"
    ]


def test_a_service_that_stumbles_is_told_of_once_and_asked_again(answering: Service) -> None:
    said = followed(answering, running(0), 500, 500, 0, running(1), running(2), END)

    assert [line for line in said if "asked again until it answers" in line] == [said[2]]
    assert said[3] == "the service answers again"
    assert len(said) == 4


def test_a_stall_is_told_once_and_so_is_its_end(answering: Service) -> None:
    stalled = running(3) | {"stalled_since": -125.0, "usual_epoch_s": 0.5}

    lines = followed(answering, running(3), stalled, stalled, running(4), END)

    assert lines[-2:] == [
        "default/train: no epoch has ended for 2m05s, usually 0.5s",
        "default/train: an epoch has ended again",
    ]


def test_what_a_prediction_rests_on_is_told_once(answering: Service) -> None:
    noted = running(0) | {"prediction_note": "n=10; both runs had n=1"}

    lines = followed(answering, noted, noted, running(3) | {"prediction_note": "other"}, END)

    assert [line for line in lines if "runs had" in line or "other" in line] == [
        "default/train: n=10; both runs had n=1"
    ]
