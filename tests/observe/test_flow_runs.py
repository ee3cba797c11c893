"""A flow run that is its own Job says in Prefect what became of it while it has no pod."""

import asyncio
import logging
import uuid
from typing import Any

import pytest

from laxity_scheduler.notifications.message import Message
from laxity_scheduler.notifications.outbox import NotYetError, Outbox
from laxity_scheduler.notifications.prefect_api import PrefectApi, PrefectError
from laxity_scheduler.notifications.prefect_cancellations import PrefectCancellations
from laxity_scheduler.notifications.prefect_sink import MAX_LOOKS, PrefectSink, runs_as
from laxity_scheduler.notifications.prefect_states import REFUSAL_PREFIX, RunState, state_wanted_for
from laxity_scheduler.process.start import uses_prefect
from laxity_scheduler.service.settings import Settings, SettingsError

Json = dict[str, Any]
CLUSTER = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
WHY = "needs 1h, has 10min"
OFFER = {"kind": "deadline", "deadline_at": 2_000_000_000.0, "widths": [1], "p90_at": 1.9e9}


def view(state: str = "refused", *, flow_run: str = "", **said: Any) -> Json:
    """What the service knows of a job of a work pool."""
    verdict = {"refused": "refused", "queued": "promised"}.get(state, "promised")
    return {
        "id": "team/flow-run-x",
        "uid": "u-1",
        "state": state,
        "verdict": verdict,
        "reason_code": "deadline_before_fastest_finish",
        "reason": WHY,
        "offers": [OFFER] if state == "refused" else [],
        "deadline_at": 2_000_000_000.0,
        "flow_run": flow_run,
        **said,
    }


@pytest.mark.parametrize(
    ("state", "said", "want"),
    [
        pytest.param("refused", {}, ("FAILED", "Refused"), id="a refused one has failed"),
        pytest.param("queued", {}, ("PENDING", "Promised"), id="a promised one that waits"),
        pytest.param(
            "queued", {"verdict": "forecast"}, ("PENDING", "Waiting"), id="one without a promise"
        ),
        pytest.param("queued", {"verdict": "none"}, None, id="nothing was said yet"),
        pytest.param("running", {}, ("PENDING", "Promised"), id="its pod is about to say more"),
        pytest.param("suspended", {}, None, id="it goes on where it stopped"),
        pytest.param("cancelled", {}, ("CANCELLED", "Cancelled"), id="its Job is gone"),
        pytest.param("cancelled", {"released": True}, None, id="its Job was let go, and runs on"),
        pytest.param("failed", {}, ("CRASHED", "Crashed"), id="its Job failed for good"),
        pytest.param("finished", {}, None, id="its pod has said so"),
    ],
)
def test_each_state_of_a_job_is_one_of_prefects(state: str, said: Json, want: Any) -> None:
    wish = state_wanted_for(view(state, **said))
    assert (None if wish is None else (wish.kind, wish.name)) == want


def test_a_refusal_says_why_and_what_would_do_instead() -> None:
    wish = state_wanted_for(view())
    assert wish is not None
    for words in (WHY, "deadline_before_fastest_finish", "2033-05-18T03:33:20Z", "laxity accept"):
        assert words in wish.message


@pytest.mark.parametrize(
    ("wish", "state", "message", "may"),
    [
        ("FAILED", "PENDING", "", True),
        ("FAILED", "SCHEDULED", "", True),
        ("FAILED", "RUNNING", "", False),
        ("FAILED", "CANCELLING", "", False),
        ("PENDING", "PENDING", "", True),
        ("PENDING", "FAILED", f"{REFUSAL_PREFIX}too late", True),
        ("PENDING", "FAILED", "division by zero", False),
        ("PENDING", "RUNNING", "", False),
        ("PENDING", "SCHEDULED", "", False),
        ("CANCELLED", "CANCELLING", "", True),
        ("CANCELLED", "COMPLETED", "", False),
        ("CRASHED", "RUNNING", "", True),
        ("CRASHED", "FAILED", "", False),
    ],
)
def test_what_its_pod_or_its_user_said_is_never_overruled(
    wish: str, state: str, message: str, *, may: bool
) -> None:
    assert RunState(wish, wish.title(), "words").may_replace(state, message) is may


@pytest.mark.parametrize(
    ("world", "url", "told"),
    [
        ("kubernetes", "http://h:4200/api", True),
        ("kubernetes", "", False),
        ("local", "nonsense", False),
    ],
)
def test_prefect_is_told_by_a_service_of_a_cluster(world: str, url: str, *, told: bool) -> None:
    assert uses_prefect(Settings(world=world, prefect_api=url)) is told


def test_an_address_that_is_none_is_said_at_the_start() -> None:
    with pytest.raises(SettingsError, match=r"'prefect:4200': write http://HOST:4200/api"):
        uses_prefect(Settings(world="kubernetes", prefect_api="prefect:4200"))


class Run:
    """A flow run on the real API; `job` is the namespace and name of the Job that it runs as."""

    def __init__(self, job: str = "team:flow-run-x") -> None:
        self.id = asyncio.run(_made())
        if job:
            self.runs_as(job)

    def runs_as(self, job: str) -> None:
        """As Prefect's worker writes it down."""
        from prefect.client.orchestration import get_client

        with get_client(sync_client=True) as client:
            client.update_flow_run(self.id, infrastructure_pid=job)

    def becomes(self, kind: str) -> "Run":
        from prefect.client.orchestration import get_client
        from prefect.client.schemas.objects import State, StateType

        with get_client(sync_client=True) as client:
            client.set_flow_run_state(self.id, State(type=StateType(kind)), force=True)
        return self

    def state(self) -> tuple[str, str, str]:
        from prefect.client.orchestration import get_client

        with get_client(sync_client=True) as client:
            state = client.read_flow_run(self.id).state
        assert state is not None
        return state.type.value, state.name or "", state.message or ""

    def logs(self) -> list[tuple[int, str]]:
        from prefect.client.orchestration import get_client
        from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId

        async def read() -> list[tuple[int, str]]:
            async with get_client() as client:
                only = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[self.id]))
                found = await client.read_logs(log_filter=only)
            return [(one.level, one.message) for one in found]

        return asyncio.run(read())


async def _made() -> uuid.UUID:
    from prefect import flow
    from prefect.client.orchestration import get_client
    from prefect.states import Pending

    @flow(name="pooled-run")
    def pooled() -> None: ...

    async with get_client() as client:
        return (await client.create_flow_run(pooled, state=Pending())).id


def unreachable(*_: object) -> None:
    raise ConnectionError("the server is restarted")


@pytest.fixture
def api(prefect_api: str) -> PrefectApi:
    return PrefectApi(prefect_api)


def test_a_refused_run_ends_failed_and_one_accepted_later_is_pending_again(
    api: PrefectApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, runs = Run(), PrefectSink(api)
    refused = Message(view(flow_run=str(run.id)), ("refused",))
    with monkeypatch.context() as away:
        away.setattr(runs, "_set_state", unreachable)
        with pytest.raises(ConnectionError):
            runs.deliver(refused)
    runs.deliver(refused)  # as its courier does
    kind, name, message = run.state()
    assert (kind, name) == ("FAILED", "Refused")
    assert message.startswith(REFUSAL_PREFIX)
    ((level, line),) = run.logs()
    assert level == logging.WARNING
    assert WHY in line

    runs.deliver(Message(view("queued", flow_run=str(run.id)), ("promised",)))
    kind, name, message = run.state()
    assert (kind, name) == ("PENDING", "Promised")
    assert WHY in message


def test_verdict_and_progress_are_artifacts_of_the_run_and_updated(api: PrefectApi) -> None:
    run, runs = Run().becomes("RUNNING"), PrefectSink(api)
    for epochs_done in (0, 1, 5):
        running = view("running", flow_run=str(run.id), epochs=10, epochs_done=epochs_done)
        runs.deliver(Message(running, ()))
    asked = {"artifacts": {"flow_run_id": {"any_": [str(run.id)]}}}
    artifacts = {row["key"]: row for row in api.request("POST", "/artifacts/filter", asked)}
    assert set(artifacts) == {"laxity-verdict", "laxity-progress"}
    assert artifacts["laxity-progress"]["data"] == 50.0
    assert "| deadline | 2033-05-18T03:33:20Z |" in artifacts["laxity-verdict"]["data"]


@pytest.mark.parametrize(
    ("event", "state", "words"),
    [
        ("promised", "running", "promised for 2033-05-18T03:33:20Z; P90 finish 2030-"),
        ("ended_kept", "finished", "kept: finished 1d03h before the deadline 2033-05-18"),
        ("ended_cancelled", "cancelled", "was cancelled after 4 of 10 epochs"),
    ],
)
def test_a_line_of_the_log_has_the_figures_of_its_event(
    api: PrefectApi, event: str, state: str, words: str
) -> None:
    run, runs = Run().becomes("RUNNING"), PrefectSink(api)
    said = {"p90_at": 1.9e9, "epochs": 10, "epochs_done": 4}
    said |= {"kept": True, "finished_at": 1_999_900_000.0} if state == "finished" else {}
    runs.deliver(Message(view(state, flow_run=str(run.id), **said), (event,)))
    ((_, line),) = run.logs()
    assert line.startswith(f"{event}: team/flow-run-x")
    assert words in line


def test_a_stop_is_a_line_in_the_log_of_a_run_that_goes_on_running(api: PrefectApi) -> None:
    run, runs = Run().becomes("RUNNING"), PrefectSink(api)
    for state in ("running", "suspended", "suspended", "running", "suspended"):
        runs.deliver(Message(view(state, flow_run=str(run.id)), ()))
    assert run.state()[0] == "RUNNING"
    assert [line.split(":")[0] for _, line in run.logs()] == ["suspended"] * 2


def test_who_was_told_before_a_restart_is_told_once(api: PrefectApi) -> None:
    run = Run()
    states = []
    for _ in range(2):
        PrefectSink(api).deliver(Message(view(flow_run=str(run.id)), ()))
        states.append(api.request("GET", f"/flow_runs/{run.id}")["state_id"])
    assert states[0] == states[1]


def test_a_run_that_its_pod_has_taken_up_is_left_alone(api: PrefectApi) -> None:
    run = Run().becomes("RUNNING")
    PrefectSink(api).deliver(Message(view(flow_run=str(run.id)), ()))
    assert run.state()[0] == "RUNNING"


def test_a_run_that_is_gone_is_no_reason_to_ask_again_and_an_api_that_is_away_is(
    api: PrefectApi,
) -> None:
    gone = Message(view(flow_run=str(uuid.uuid4())), ())
    PrefectSink(api).deliver(gone)
    with pytest.raises(OSError, match="refused"):
        PrefectSink(PrefectApi("http://127.0.0.1:9/api")).deliver(gone)


@pytest.mark.parametrize(
    ("pid", "its_own"),
    [
        pytest.param("team:flow-run-x", True, id="prefect-kubernetes 0.6 to 0.8"),
        pytest.param(f"{CLUSTER}:team:flow-run-x", True, id="older, with the cluster's uid"),
        pytest.param("flow-run-x", False, id="no namespace"),
        pytest.param("team:flow-run-x:more", False, id="another Job"),
        pytest.param("a:b:team:flow-run-x", False, id="no form that Prefect writes"),
        pytest.param(None, False, id="nothing yet"),
    ],
)
def test_a_run_is_matched_with_its_job_by_namespace_and_name(
    pid: str | None, *, its_own: bool
) -> None:
    assert runs_as({"infrastructure_pid": pid}, "team/flow-run-x") is its_own


@pytest.mark.parametrize(
    "pid",
    [
        pytest.param("default:zippy-giraffe-b7x9j", id="prefect-kubernetes 0.6.0, Prefect 3.6.0"),
        pytest.param("default:maroon-gaur-fs2vx", id="prefect-kubernetes 0.8.0, Prefect 3.8.8"),
    ],
)
def test_a_run_is_matched_by_what_a_real_worker_wrote(pid: str) -> None:
    assert runs_as({"infrastructure_pid": pid}, pid.replace(":", "/"))


@pytest.mark.parametrize("label", ["", "nonsense"])
def test_jobs_that_are_no_flow_runs_cost_no_call(label: str) -> None:
    nobody = PrefectSink(PrefectApi("http://127.0.0.1:9/api"))
    nobody.deliver(Message(view(flow_run=label), ("refused",)))


@pytest.mark.parametrize(
    "runs_as",
    [
        pytest.param("", id="no Job so far"),
        pytest.param("other:flow-run-x", id="a Job of another namespace"),
        pytest.param("team:flow-run-y", id="another Job of this namespace"),
    ],
)
def test_a_run_that_names_another_job_than_this_is_neither_ended_nor_written_to(
    api: PrefectApi, runs_as: str
) -> None:
    run, runs = Run(runs_as), PrefectSink(api)
    for events in (("refused",), ("promise_broken",)):
        for _ in range(MAX_LOOKS - 1 if events == ("refused",) else 0):
            with pytest.raises(NotYetError):
                runs.deliver(Message(view(flow_run=str(run.id)), events))
        runs.deliver(Message(view(flow_run=str(run.id)), events))
    assert run.state()[0] == "PENDING"
    assert run.logs() == []


def test_a_run_hears_of_its_job_once_the_worker_has_written_down_which_it_is(
    api: PrefectApi,
) -> None:
    run, runs = Run(job=""), PrefectSink(api)
    refused = Message(view(flow_run=str(run.id)), ("refused",))
    with pytest.raises(NotYetError, match="runs as nothing yet, not as team/flow-run-x"):
        runs.deliver(refused)
    courier = Outbox(runs, retry_s=0.05)
    courier.send(refused)
    run.runs_as("team:flow-run-x")
    assert courier.wait_until_empty(at_most_s=60.0)
    courier.close()
    assert run.state()[0] == "FAILED"
    assert len(run.logs()) == 1


def test_a_cancelled_run_takes_its_job_along_once_no_pod_ends_it_itself(api: PrefectApi) -> None:
    waits, stopped, goes_on, runs, ended = (
        Run().becomes("CANCELLING"),
        Run().becomes("CANCELLED"),
        Run(),
        Run().becomes("CANCELLING"),
        Run().becomes("CANCELLED"),
    )
    jobs = {waits: "queued", stopped: "suspended", goes_on: "queued", runs: "running"}
    jobs[ended] = "running"  # its pod waits for that
    views = [view(state, flow_run=str(run.id), id=f"n/{run.id}") for run, state in jobs.items()]
    views += [view("queued", id="n/no-run"), view("queued", id="n/wrong", flow_run="nonsense")]
    views.append(view("queued", id="n/again", flow_run=str(waits.id).upper()))
    cancelled: list[str] = []
    assert PrefectCancellations(api, lambda: views, cancelled.append).cancel_jobs() == 5
    assert sorted(cancelled) == sorted(
        [f"n/{waits.id}", f"n/{stopped.id}", f"n/{ended.id}", "n/again"]
    )


def test_an_error_says_whether_asking_again_would_help(api: PrefectApi) -> None:
    with pytest.raises(PrefectError) as gone:
        api.request("GET", f"/flow_runs/{uuid.uuid4()}")
    assert gone.value.is_permanent
    assert not PrefectError(429, "slow down").is_permanent
    assert not PrefectError(500, "broken").is_permanent
