"""A shadow policy: what it would have done is written beside each decision, and it harms none."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from sqlmodel import Session, select

from laxity_profiler.estimate import Predictor
from laxity_scheduler.engine import Policy
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Preempt
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.policies.registry import find
from laxity_scheduler.policy_models import LearnedModels
from laxity_scheduler.process import replay_report
from laxity_scheduler.service.settings import SettingsError
from laxity_scheduler.service.shadow import Shadow
from laxity_scheduler.store.store import Store
from laxity_scheduler.store.tables import ShadowRow
from laxity_scheduler.width_comparison import reward_rate, settle_widths
from tests.support import journal
from tests.support.builders import Curve, cluster, job
from tests.support.memory_world import MemoryWorld
from tests.support.services import Stage, staged, wait_until

TRUTH = Curve(epoch_s=60.0, speedup={1: 1.0, 2: 1.9, 4: 3.6, 8: 6.5})


def do_nothing(state: ClusterState, predictor: Predictor) -> Plan:
    return Plan()


def stop_all(state: ClusterState, predictor: Predictor) -> Plan:
    """Heads for no workers at all."""
    cause = reason("preempt_ordered", policy="new", beneficiary="others", gpus=1)
    return Plan(tuple([Preempt(each.id, "now", "", cause) for each in state.running]))


def jobs_that_differ(store: Store) -> set[str]:
    with Session(store.engine) as session:
        bodies = [orjson.loads(row.body) for row in session.exec(select(ShadowRow))]
    return {name for body in bodies for name in body["differing"]}


@contextmanager
def shadowed(home: Path, decide: Policy) -> Iterator[tuple[Stage, Shadow, Store]]:
    """A service that decides by Optimus, with this shadow."""
    store = Store.open(f"sqlite:///{home}/laxity.db")
    shadow = Shadow("learned:new.npz", decide, store)
    shadow.start()
    try:
        with staged(
            home, MemoryWorld(4, 4), policy=find("optimus").policy(), longest_sleep_s=0.02
        ) as stage:
            stage.service.watch.shadow = shadow
            stage.submit("a", epochs=100)
            yield stage, shadow, store
    finally:
        shadow.close()
        store.close()


def test_widths_that_need_gpus_of_others_count_as_if_those_had_shrunk() -> None:
    wide = job("a", workers=(1, 2, 4, 8), running=8, epochs=100)
    state = cluster(gpus=8, jobs=[wide, job("b", workers=(1, 2, 4, 8), epochs=100)])
    widths = settle_widths(state, find("optimus").policy(), TRUTH)
    assert widths == {"team/a": 4, "team/b": 4}
    assert settle_widths(state, do_nothing, TRUTH) == {"team/a": 8, "team/b": 0}
    assert reward_rate(state, widths, TRUTH) == pytest.approx(2 * 3.6 / 60.0 / 100 * 3600)


def test_what_the_shadow_would_have_done_is_in_the_store_the_views_and_the_metrics(
    tmp_path: Path,
) -> None:
    with shadowed(tmp_path, stop_all) as (stage, shadow, store):
        stage.submit("b", epochs=100)
        both = {"default/a", "default/b"}
        wait_until(lambda: jobs_that_differ(store) == both, "both jobs in the store")
        wait_until(lambda: shadow.totals.decided_trained > 0.0, "two cycles with jobs")
        view = stage.http.get("/v1/cluster").json()["shadow"]
        assert view["policy"] == "learned:new.npz"
        assert view["differing"] > 0
        assert view["gain"] == -1.0
        wait_until(
            lambda: (
                'laxity_shadow_cycles{shadow="differs"} 0' not in stage.http.get("/metrics").text
            ),
            "the metric",
        )
        explained = stage.http.get("/v1/jobs/default/b/explain").json()["shadow"]
        assert (explained["policy"], explained["workers"]) == ("learned:new.npz", 0)
        assert explained["decided"] == 4


def test_a_shadow_that_raises_is_counted_and_decisions_go_on(tmp_path: Path) -> None:
    def broken(state: ClusterState, predictor: Predictor) -> Plan:
        raise ArithmeticError("a fault of the shadow")

    with shadowed(tmp_path, broken) as (stage, shadow, _):
        wait_until(lambda: stage.world.row("default/a").workers == 4, "the job widened")
        wait_until(lambda: shadow.totals.failed > 0, "the failure counted")
        assert stage.service.failure == ""
        assert "a fault of the shadow" in stage.http.get("/v1/cluster").json()["shadow"]["failure"]


def test_a_shadow_that_hangs_is_passed_over_and_decisions_go_on(tmp_path: Path) -> None:
    goes_on = threading.Event()

    def hanging(state: ClusterState, predictor: Predictor) -> Plan:
        goes_on.wait(30.0)
        return Plan()

    with shadowed(tmp_path, hanging) as (stage, shadow, _):
        try:
            wait_until(lambda: stage.world.row("default/a").workers == 4, "the job widened")
            wait_until(lambda: shadow.totals.skipped > 2, "cycles without the shadow")
            assert shadow.totals.cycles == 0
        finally:
            goes_on.set()


def test_a_journal_is_asked_what_another_policy_would_have_gained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replay_report, "load_predictor", journal.load)
    url = f"sqlite:///{tmp_path}/laxity.db"
    store = Store.open(url)
    number = journal.lived(store)
    store.close()
    cycles = replay_report.ReplayRange(url, LearnedModels(tmp_path / "policies"))
    answers = {}
    for policy in ("qos", "optimus"):
        replay_report.report_gain(cycles, policy=policy, as_json=True)
        answers[policy] = json.loads(capsys.readouterr().out)
    assert answers["qos"]["cycles"] == number
    assert answers["qos"]["gain"] == pytest.approx(0.0)
    assert answers["optimus"]["differing"] > 0
    assert answers["optimus"]["gain"] != pytest.approx(0.0)
    with pytest.raises(SettingsError, match=r"absent.npz cannot be used: there is no file"):
        replay_report.report_gain(cycles, policy="learned:absent.npz", as_json=True)
