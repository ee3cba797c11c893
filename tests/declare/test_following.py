"""A job is followed to its end, also when the service stumbles, is away, or forgets the job."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from laxity import (
    Client,
    DeadlineRefused,
    QoS,
    QoSError,
    TrainingCancelled,
    TrainingFailed,
    TrainingSpec,
    names,
)
from laxity.api.client import JobView, ServiceAwayError, ServiceError
from laxity.api.job_follower import JobFollower
from laxity.api.status_text import deadline_status, result_of, verdict_markdown
from laxity.flow import prefect_flow
from tests.support.job_service import StandIn, story_of


@dataclass
class Witness:
    """A watcher that remembers; `stop_at` says when to cancel, `when_away` what to do meanwhile."""

    views: list[JobView] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    stop_at: Callable[[], bool] = lambda: False
    when_away: Callable[[], None] = lambda: None

    def on_change(self, job: JobView) -> None:
        self.views.append(job)
        self.heard.append("seen")

    def should_cancel(self) -> bool:
        return self.stop_at()

    def on_unavailable(self, problem: str) -> None:
        self.problems.append(problem)
        self.heard.append("away")
        self.when_away()


def manifest(key: str = "key-1") -> dict[str, Any]:
    return TrainingSpec(name="train", qos=QoS(), epochs=3, idempotency_key=key).to_manifest()


def following(service: StandIn, witness: Witness, **options: Any) -> JobFollower:
    client = Client(service.url, "", patience_s=0.0)
    return JobFollower(client, witness, poll_s=0.2, sleep=lambda _: None, **options)


def test_every_view_is_seen_once_and_in_order(service: StandIn) -> None:
    service.will(*story_of(3, result=0.5))
    witness = Witness()

    job = following(service, witness).run(manifest())

    assert result_of(job) == 0.5
    assert [view.epochs_done for view in witness.views] == [0, 0, 0, 1, 2, 3, 3]
    assert [view.state for view in witness.views][:3] == ["queued", "queued", "running"]


def test_a_service_that_comes_back_is_heard_of_again_only_then(service: StandIn) -> None:
    service.will({"state": "running"}, {"state": "finished", "result": 1})
    witness = Witness()

    def come_back_after_three() -> None:
        if len(witness.problems) == 3:
            service.start()

    def leave() -> bool:
        if service.polls == 1 and not witness.problems:
            service.stop()
        return False

    witness.when_away, witness.stop_at = come_back_after_three, leave
    job = following(service, witness).run(manifest())

    assert job.result == 1
    assert witness.heard == ["seen", "seen", "away", "away", "away", "seen"]


def test_an_absent_service_is_waited_for_before_the_submission_too(service: StandIn) -> None:
    service.stop()
    witness = Witness(when_away=service.start)

    job = following(service, witness).run(manifest())

    assert job.state == "finished"
    assert len(witness.problems) == 1


def test_a_submission_that_nobody_takes_says_how_to_start_a_service(service: StandIn) -> None:
    service.stop()

    with pytest.raises(ServiceAwayError, match="laxity up"):
        following(service, Witness(), submit_patience_s=0.0).run(manifest())


def test_a_wish_to_cancel_ends_the_job_and_the_following(service: StandIn) -> None:
    service.will({"state": "running", "workers": 1})
    witness = Witness(stop_at=lambda: service.polls > 2)

    with pytest.raises(TrainingCancelled):
        following(service, witness).run(manifest())

    assert service.cancelled == ["default/train"]


def test_a_wish_to_cancel_is_heard_while_the_service_is_away(service: StandIn) -> None:
    service.stop()
    witness = Witness(stop_at=lambda: True)

    with pytest.raises(TrainingCancelled):
        following(service, witness).run(manifest())

    assert service.manifests == []


def test_a_job_that_is_gone_is_no_service_that_is_away(service: StandIn) -> None:
    service.will({"state": "running"})
    witness = Witness()
    follower = following(service, witness)
    job = follower.submit(manifest())
    service.jobs.clear()

    with pytest.raises(TrainingFailed, match="deleted"):
        follower.follow(job)

    assert len(witness.problems) == 2


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param(500, TrainingFailed, id="a stumble is passed over"),
        pytest.param(503, TrainingFailed, id="a restart is waited for"),
        pytest.param(429, TrainingFailed, id="too many questions: later"),
        pytest.param(403, ServiceError, id="a wrong token is told at once"),
    ],
)
def test_only_errors_that_pass_are_waited_out(
    service: StandIn, status: int, want: type[Exception]
) -> None:
    service.will({"state": "failed"})
    service.errors = [status, status]

    with pytest.raises(want):
        result_of(following(service, Witness()).run(manifest()))

    assert bool(service.errors) is (want is ServiceError)


DUE = {"deadline_at": 100.0}


@pytest.mark.parametrize(
    ("view", "want"),
    [
        pytest.param({}, "none", id="no verdict yet"),
        pytest.param({**DUE, "verdict": "promised", "p90_at": 99.0}, "promised", id="in time"),
        pytest.param({**DUE, "verdict": "promised", "p90_at": 101.0}, "endangered", id="P90 late"),
        pytest.param({**DUE, "verdict": "forecast", "p90_at": 99.0}, "forecast", id="soft"),
        pytest.param({**DUE, "verdict": "forecast", "p90_at": 101.0}, "late", id="soft and late"),
        pytest.param({**DUE, "state": "refused", "verdict": "refused"}, "refused", id="refused"),
        pytest.param(
            {**DUE, "state": "finished", "verdict": "promised", "finished_at": 100.0},
            "kept",
            id="finished in the last instant",
        ),
        pytest.param(
            {**DUE, "state": "finished", "verdict": "promised", "finished_at": 101.0},
            "broken",
            id="finished too late",
        ),
        pytest.param(
            {**DUE, "state": "finished", "verdict": "forecast", "finished_at": 101.0},
            "late",
            id="finished late without a promise",
        ),
        pytest.param({"state": "finished", "finished_at": 101.0}, "finished", id="no deadline"),
        pytest.param({"state": "cancelled", "verdict": "promised"}, "cancelled", id="cancelled"),
    ],
)
def test_where_a_job_stands_is_one_word(view: dict[str, Any], want: str) -> None:
    assert deadline_status(JobView(id="default/train", **view)) == want


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(DeadlineRefused(JobView(id="a/b", reason_code="late")), id="refused"),
        pytest.param(TrainingFailed(JobView(id="a/b"), "deleted"), id="failed"),
        pytest.param(TrainingCancelled(JobView(id="a/b")), id="cancelled"),
        pytest.param(QoSError("deadline", "too short", ("epochs", "none")), id="wrongly declared"),
    ],
)
def test_prefect_may_keep_an_error_as_a_pickle(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own

    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_a_story_survives_what_a_reason_may_hold() -> None:
    job = JobView(id="default/train", error="a | b\nc", deadline_at=1e300, verdict="promised")

    told = verdict_markdown(job)

    assert "| error | a \\| b c |" in told
    assert "| deadline | never |" in told


def test_a_flow_run_without_a_page_is_linked_by_its_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect_flow, "url_for", lambda _run: None)
    manifest = TrainingSpec(name="train", qos=QoS(), entry="train:main").to_manifest()
    api: Any = SimpleNamespace(api_url="http://127.0.0.1:4200/api/")
    run: Any = SimpleNamespace(id="a-run")
    prefect_flow.follow_in(manifest, api, run, log_prints=False)
    page = manifest["metadata"]["annotations"][names.FOLLOWED_BY]
    assert page == "http://127.0.0.1:4200/api/flow_runs/a-run"
