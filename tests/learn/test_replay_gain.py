"""What another policy would have gained on the snapshots of a journal."""

import json
from pathlib import Path

import pytest

from laxity_profiler.estimate import Predictor
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Plan
from laxity_scheduler.policies.registry import find
from laxity_scheduler.process import replay_report
from laxity_scheduler.service.learned_models import LearnedModels
from laxity_scheduler.service.settings import SettingsError
from laxity_scheduler.store.store import Store
from laxity_scheduler.width_comparison import reward_rate, settle_widths
from tests.support import journal
from tests.support.builders import Curve, cluster, job

TRUTH = Curve(epoch_s=60.0, speedup={1: 1.0, 2: 1.9, 4: 3.6, 8: 6.5})


def do_nothing(state: ClusterState, predictor: Predictor) -> Plan:
    return Plan()


def test_widths_that_need_gpus_of_others_count_as_if_those_had_shrunk() -> None:
    wide = job("a", workers=(1, 2, 4, 8), running=8, epochs=100)
    state = cluster(gpus=8, jobs=[wide, job("b", workers=(1, 2, 4, 8), epochs=100)])
    widths = settle_widths(state, find("optimus").policy(), TRUTH)
    assert widths == {"team/a": 4, "team/b": 4}
    assert settle_widths(state, do_nothing, TRUTH) == {"team/a": 8, "team/b": 0}
    assert reward_rate(state, widths, TRUTH) == pytest.approx(2 * 3.6 / 60.0 / 100 * 3600)


def test_a_journal_is_asked_what_another_policy_would_have_gained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replay_report, "load_predictor", journal.load)
    url = f"sqlite:///{tmp_path}/laxity.db"
    store = Store.open(url)
    number = journal.lived(store)
    store.close()
    cycles = replay_report.ReplayRange(url, LearnedModels())
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
