"""Learning from a teacher: which choices are labels, and how well a net that imitates decides."""

import json
import sys
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from laxity_lab.policy_training import (
    evolution,
    imitation,
    reinforcement,
)
from laxity_lab.policy_training.made_jobs import ArrivalMix, make_trace
from laxity_lab.policy_training.teacher_samples import (
    Choice,
    collect_choices,
    share_right,
    walk_to,
)
from laxity_lab.policy_training.train_policy_command import TEACHER_NAMES
from laxity_lab.policy_training.training_worlds import WorldKinds
from laxity_lab.provisioner_training import train_command
from laxity_lab.traces.throughput_tables import ThroughputTable
from laxity_scheduler.learned.job_features import FEATURES, JobNumbers, describe_steps
from laxity_scheduler.learned.scoring_net import ScoringNet
from laxity_scheduler.learned.weights_file import load_policy
from studies.qos_study import compute_load

TABLES = {
    ("scales", 64): ThroughputTable((1, 2, 4, 8), (1.0, 1.9, 3.6, 6.5)),
    ("stalls", 64): ThroughputTable((1, 2, 4, 8), (1.0, 1.4, 1.45, 1.42)),
}
CSV = "global_batch_size,1,2,4,8\n64,{}\n"
STOP = FEATURES.index("stop")
FEW = WorldKinds(jobs=10, exponents=(1.0,))  # of all worlds: whole ones take a minute


@cache
def choices(teacher: str, seed: int = 1) -> tuple[Choice, ...]:
    trace = make_trace(TABLES, ArrivalMix(25, 8, 1.0), seed=seed)
    return tuple(collect_choices(trace, teacher, nodes=1, gpus_per_node=8, seed=seed))


@pytest.fixture(name="tables")
def write_tables(tmp_path: Path) -> Path:
    for (model, _), table in TABLES.items():
        speeds = ",".join(map(str, table.iterations_per_s))
        (tmp_path / f"{model}.csv").write_text(CSV.format(speeds))
    return tmp_path


def run_command(*words: str) -> tuple[int, str, str]:
    app = typer.Typer()
    train_command.register(app)
    result = CliRunner().invoke(app, words)
    code = getattr(result.exception, "code", result.exit_code)
    return code, result.stdout, str(result.exception or "") or result.stderr


def test_made_jobs_are_those_of_their_seed_and_ask_for_the_load() -> None:
    mix = ArrivalMix(400, 32, 0.8)
    assert make_trace(TABLES, mix, seed=1) == make_trace(TABLES, mix, seed=1)
    assert make_trace(TABLES, mix, seed=1) != make_trace(TABLES, mix, seed=2)
    loads = [compute_load(make_trace(TABLES, mix, seed=seed), gpus=32) for seed in range(5)]
    assert np.mean(loads) == pytest.approx(0.8, rel=0.1)


def test_the_steps_that_lead_to_the_teachers_widths_are_right_and_then_stopping() -> None:
    jobs = [JobNumbers((1, 2, 4), (9.0, 5.0, 3.0)), JobNumbers((1, 2), (9.0, 8.0))]
    steps = describe_steps(jobs, cluster_gpus=8, free_gpus=6)
    states = walk_to(steps, [4, 1], 6, np.random.default_rng(0))
    assert states == [
        ([0, 2], [True, False], 6),
        ([2, 1], [False, True], 5),
        ([2], [False], 3),
    ]


def test_a_step_that_does_not_fit_is_no_choice() -> None:
    steps = describe_steps([JobNumbers((1, 4), (9.0, 5.0))], cluster_gpus=4, free_gpus=2)
    assert walk_to(steps, [1], 2, np.random.default_rng(0)) == []


@pytest.mark.parametrize("teacher", TEACHER_NAMES)
def test_choices_of_a_teacher_are_labelled_and_deterministic(teacher: str) -> None:
    first = choices(teacher)
    again = choices.__wrapped__(teacher)
    assert len(first) > 100
    for one, other in zip(first, again, strict=True):
        assert one.right.any()
        assert one.rows[:, STOP].tolist() == [0.0] * (len(one.rows) - 1) + [1.0]
        assert one.rows.tolist() == other.rows.tolist()


def test_optimus_prefers_long_jobs_more_than_drf_does() -> None:
    rest = FEATURES.index("rest_least")
    ahead = {
        teacher: np.mean(
            [
                each.rows[each.right, rest].mean() - each.rows[:-1, rest].mean()
                for each in choices(teacher)
                if not each.right[-1]
            ]
        )
        for teacher in TEACHER_NAMES
    }
    assert ahead["optimus"] > ahead["drf"]


@pytest.mark.slow
def test_a_net_learns_to_decide_as_its_teacher() -> None:
    pytest.importorskip("torch")
    from laxity_lab.policy_training import torch_net

    held_out, net = choices("optimus", seed=2), torch_net.make_net(1)
    before = share_right(torch_net.read_net(net), held_out)
    torch_net.imitate(net, choices("optimus"), updates=150, seed=1)
    after = share_right(torch_net.read_net(net), held_out)
    assert after > max(0.9, before)


@pytest.mark.slow
def test_the_command_writes_a_policy_that_is_no_worse_than_at_first(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    taught = partial(imitation.learn_from_teacher, jobs=20)
    monkeypatch.setattr(imitation, "learn_from_teacher", taught)
    monkeypatch.setattr(evolution, "evolve", partial(evolution.evolve, kinds=FEW))
    monkeypatch.setattr(evolution, "PAIRS", 4)
    monkeypatch.setattr(evolution, "WORLDS", 1)
    out = tmp_path / "policy.npz"
    words = ("--tables", str(tables), "--out", str(out), "--updates", "30", "--json")
    code, told, error = run_command("train", "policy", *words, "--worlds", "1", "--rounds", "10")
    assert code == 0, error
    figures = json.loads(told)
    assert figures["choices"] > 1_000
    assert 0 < figures["slowdown"] <= figures["slowdown_at_first"]
    assert load_policy(out).trained_on["teacher"] == "optimus"


def test_what_needs_torch_says_so_before_anything_is_read(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "laxity_lab.policy_training.torch_net", raising=False)
    for source in (("--journal", str(tmp_path / "nowhere")), ("--tables", str(tables))):
        _, _, error = run_command("train", "policy", *source, "--out", str(tmp_path / "a.npz"))
        assert "torch" in error
    words = ("--tables", str(tmp_path / "none"), "--start", "learned", "--improve", "evolution")
    _, _, error = run_command("train", "policy", *words, "--out", str(tmp_path / "a.npz"))
    assert "no throughput tables" in error


def test_an_unknown_teacher_is_told_the_known_ones(tables: Path, tmp_path: Path) -> None:
    code, _, error = run_command(
        "train", "policy", "--tables", str(tables), "--out", str(tmp_path / "a"), "--teacher", "me"
    )
    assert code == 2
    assert error == "unknown teacher 'me': one of optimus, drf, none"


def test_random_weights_that_nothing_improves_are_not_written(tables: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.npz"
    words = ("--tables", str(tables), "--out", str(out), "--teacher", "none", "--improve", "none")
    code, _, error = run_command("train", "policy", *words)
    assert code == 2
    assert "would write random weights" in error
    assert not out.exists()


@pytest.mark.slow
def test_policy_gradients_start_from_random_weights_unless_a_teacher_is_named(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(reinforcement, "reinforce", partial(reinforcement.reinforce, kinds=FEW))
    out = tmp_path / "policy.npz"
    words = ("--tables", str(tables), "--out", str(out), "--improve", "gradients", "--rounds", "10")
    code, told, error = run_command("train", "policy", *words, "--json")
    assert code == 0, error
    figures = json.loads(told)
    assert "choices" not in figures
    assert figures["slowdown"] < figures["slowdown_at_first"]
    assert load_policy(out).trained_on["teacher"] == "none"


def test_a_net_of_other_layers_is_trained_on_with_its_layers() -> None:
    pytest.importorskip("torch")
    from laxity_lab.policy_training import torch_net

    draw, sizes = np.random.default_rng(1), (len(FEATURES), 7, 1)
    start = ScoringNet(
        tuple([draw.standard_normal(pair) for pair in pairwise(sizes)]),
        tuple([draw.standard_normal(size) for size in sizes[1:]]),
    )
    net, rows = torch_net.write_net(start), draw.random((5, len(FEATURES)))
    assert torch_net.read_net(net).score(rows).tolist() == start.score(rows).tolist()
    torch_net.imitate(net, [(rows, np.arange(5) == 2)], updates=20, seed=1)
    after = torch_net.read_net(net)
    assert [weight.shape for weight in after.weights] == [(len(FEATURES), 7), (7, 1)]
    assert after.score(rows).argmax() == 2
