"""Mirage's networks: NumPy decides what PyTorch learned, from samples or from episodes."""

import json
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laxity_lab.provisioner_training.samples import Episodes, Samples, as_episodes
from laxity_scheduler.chains.features import Windows
from laxity_scheduler.chains.model_file import Provisioner, load_provisioner, save_provisioner
from laxity_scheduler.chains.network_models import Experts, NetworkModel, PolicyModel
from laxity_scheduler.chains.networks import scale_of
from laxity_scheduler.chains.prices import Prices
from laxity_scheduler.chains.provisioning import decide
from tests.chains.busy_log import DAY_S, as_swf
from tests.chains.test_provisioner import run_laxity, waves

# PyTorch takes seconds to import, in each process that collects tests: whoever needs it imports it.
pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
STEPS = 13


def tiny() -> Any:
    from laxity_lab.provisioner_training.torch_modules import Size

    return Size(width=8, hidden=4, layers=1, heads=2, experts=2, gate=4)


@cache
def lives(starts: int = 14, seed: int = 0) -> Samples:
    """Predecessors of twelve hours, looked at each hour. The queue's length says the wait."""
    rng = np.random.default_rng(seed)
    wait_h = np.repeat(rng.uniform(0, 8, starts), STEPS)
    elapsed_h = np.tile(np.arange(STEPS, dtype=np.float64), starts)
    rows = len(wait_h)
    queue = rng.exponential(1, (rows, 144, 33)).astype(np.float32)
    queue[:, :, 0] = 10 * wait_h[:, None]
    windows = Windows(queue, np.zeros(rows), elapsed_h, 12 - elapsed_h)
    began_at = np.repeat(np.arange(starts) * 7 * 86_400.0, STEPS)
    return Samples(began_at, windows, wait_h + elapsed_h - 12)


def episodes(seed: int = 0) -> Episodes:
    return as_episodes(lives(seed=seed), Prices())


def shaken(make: Any) -> Any:
    """A network whose biases and norms are no longer zero and one."""
    import torch

    from laxity_lab.provisioner_training.torch_loop import fresh

    network = fresh(make, 3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return network.eval()


def test_a_decision_in_numpy_is_what_pytorch_would_decide() -> None:
    import torch

    from laxity_lab.provisioner_training.torch_loop import predict
    from laxity_lab.provisioner_training.torch_modules import (
        EncoderNetwork,
        MixtureNetwork,
        encoder_of,
        gate_of,
    )

    windows = lives().windows.rows(np.arange(20))
    scaling = scale_of(windows)
    tokens = scaling.tokens(windows)
    network = shaken(lambda: EncoderNetwork(tiny(), layers=2, heads=2, values=2))
    expected = predict(network, torch.as_tensor(tokens)).numpy()
    assert encoder_of(network).values(tokens) == pytest.approx(expected, abs=1e-4)
    in_hours = encoder_of(network, mean=3.0, deviation=5.0).values(tokens)
    assert in_hours == pytest.approx(5 * expected + 3, abs=1e-3)
    mixture = shaken(lambda: MixtureNetwork(tiny()))
    expected = predict(mixture, torch.as_tensor(tokens)).numpy()
    experts = Experts(scaling, tuple(encoder_of(expert) for expert in mixture.experts))
    model = NetworkModel(experts, gate_of(mixture))
    assert model.predict_h(windows) == pytest.approx(expected, abs=1e-4)


def test_what_a_network_sees_is_standardised_and_a_constant_column_is_zero() -> None:
    windows = lives().windows
    tokens = scale_of(windows).tokens(windows)
    assert tokens.shape == (len(lives()), 144, 31)
    assert tokens[:, :, 0].mean() == pytest.approx(0, abs=1e-3)
    assert tokens[:, :, 0].std() == pytest.approx(1, abs=1e-2)
    assert (tokens[:, :, 29] == 0).all()  # no predecessor waited
    assert np.abs(tokens).max() <= 5


@cache
def fitted(kind: str) -> NetworkModel:
    from laxity_lab.provisioner_training import torch_fitting
    from laxity_lab.provisioner_training.torch_loop import Recipe

    lesson = torch_fitting.Lesson(lives(), lives(10, 1))
    recipe = Recipe(passes=8, batch=16, rate=1e-2)
    if kind == "transformer":
        return torch_fitting.fit_transformer(lesson, 1, int, size=tiny(), recipe=recipe)[0]
    few = replace(recipe, passes=2)
    return torch_fitting.fit_mixture(lesson, 1, int, size=tiny(), expert_recipe=few, recipe=recipe)[
        0
    ]


@pytest.mark.parametrize("kind", ["transformer", "mixture"])
def test_a_network_learns_the_hours_of_difference(kind: str) -> None:
    others = lives(10, 2)
    miss_h = np.abs(fitted(kind).predict_h(others.windows)[:, 0] - others.difference_h)
    spread_h = np.abs(others.difference_h - others.difference_h.mean())
    assert miss_h.mean() < 0.5 * spread_h.mean()


def test_the_same_seed_trains_the_same_network() -> None:
    from laxity_lab.provisioner_training import torch_fitting
    from laxity_lab.provisioner_training.torch_loop import Recipe

    lesson = torch_fitting.Lesson(lives(10), lives(10, 1))
    recipe = Recipe(passes=1, batch=32, rate=1e-3)
    first, again, other = (
        torch_fitting.fit_transformer(lesson, seed, int, size=tiny(), recipe=recipe)[0].arrays()
        for seed in (1, 1, 2)
    )
    assert all((first[name] == again[name]).all() for name in first)
    assert (first["expert0.head"] != other["expert0.head"]).any()


def test_training_keeps_the_best_pass_and_ends_without_gain() -> None:
    import torch

    from laxity_lab.provisioner_training.torch_loop import Recipe, fresh, train

    network = fresh(lambda: torch.nn.Linear(1, 1), 1)
    losses, weights = iter([3.0, 1.0, 2.0, 2.0, 2.0, 0.0]), []

    def held_loss() -> float:
        weights.append(float(network.weight.detach()))
        return next(losses)

    passes = train(
        network,
        lambda rows: network(rows[:, None].float()).square().mean(),
        8,
        Recipe(passes=6, batch=4, rate=0.1, patience=3),
        seed=1,
        advance=int,
        held_loss=held_loss,
    )
    assert (passes, len(weights)) == (2, 5)
    assert float(network.weight.detach()) == weights[1]


def policy(kind: str) -> PolicyModel:
    from laxity_lab.provisioner_training import torch_policies
    from laxity_lab.provisioner_training.torch_loop import Recipe

    if kind == "dqn":
        recipe = Recipe(passes=24, batch=16, rate=1e-2, patience=24)
        return torch_policies.fit_dqn(episodes(), episodes(1), 1, int, size=tiny(), recipe=recipe)[
            0
        ]
    recipe = Recipe(passes=60, batch=8, rate=3e-2)
    experts = fitted(kind).experts
    return torch_policies.fit_policy_gradient(
        experts, episodes(), episodes(1), 1, int, recipe=recipe
    )[0]


@pytest.mark.parametrize("kind", ["dqn", "transformer", "mixture"])
def test_a_policy_costs_less_than_submitting_at_the_end_or_at_once(
    kind: str, tmp_path: Path
) -> None:
    others = episodes(2)
    model = policy(kind)
    submits = decide(model, others.samples.windows, Prices()).reshape(len(others), -1)
    cost = others.cost[np.arange(len(others)), others.chosen_steps(submits)].mean()
    assert cost < 0.7 * min(others.cost[:, -1].mean(), others.cost[:, 0].mean())
    path = tmp_path / "policy.npz"
    name = "dqn" if kind == "dqn" else f"{kind}_pg"
    save_provisioner(Provisioner(name, model, 1, 43_200.0, {}, {}), path)
    again = load_provisioner(path).model
    assert (decide(again, others.samples.windows, Prices()) == submits.ravel()).all()


def test_an_episode_ends_where_everybody_submits_and_none_is_half() -> None:
    whole = as_episodes(lives().rows(np.arange(5, 3 * STEPS)), Prices())
    assert (len(whole), whole.steps) == (2, STEPS)
    submits = np.zeros((2, STEPS), dtype=np.bool_)
    submits[1, [4, 7]] = True
    assert whole.chosen_steps(submits).tolist() == [STEPS - 1, 4]
    assert (whole.part(np.array([1])).cost == whole.cost[1:]).all()
    with pytest.raises(ValueError, match="two hourly probes"):
        as_episodes(lives().rows(np.arange(0, 40, STEPS)), Prices())


def test_a_higher_price_of_interruption_lets_a_policy_submit_earlier() -> None:
    from laxity_lab.provisioner_training import torch_policies
    from laxity_lab.provisioner_training.torch_loop import Recipe

    def mean_step(price: float) -> float:
        training, held = (
            as_episodes(lives(seed=seed), Prices(interruption=price)) for seed in range(2)
        )
        recipe = Recipe(passes=30, batch=8, rate=3e-2)
        experts = fitted("transformer").experts
        model, _ = torch_policies.fit_policy_gradient(
            experts, training, held, 1, int, recipe=recipe
        )
        submits = model.submits(held.samples.windows).reshape(len(held), -1)
        return float(held.chosen_steps(submits).mean())

    assert mean_step(9.0) < mean_step(1 / 9) - 1


def test_plain_arrays_predict_what_xgboost_predicts() -> None:
    xgboost = pytest.importorskip("xgboost")
    from laxity_lab.provisioner_training.xgboost_fitting import fit_xgboost

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 6)).astype(np.float32)
    rows[:, 2] = rng.integers(0, 3, 400)  # values that lie on splits
    values = rows[:, 0] * 3 + rows[:, 2] + rng.normal(size=400)
    expected = xgboost.XGBRegressor(random_state=3, n_jobs=1).fit(rows, values).predict(rows)
    assert fit_xgboost(rows, values, 3).predict(rows) == pytest.approx(expected, abs=1e-4)


def test_a_policy_is_trained_on_the_command_line_from_a_trained_model(tmp_path: Path) -> None:
    log, base, out = (tmp_path / name for name in ("waves.swf", "base.npz", "policy.npz"))
    log.write_text(as_swf(waves(), nodes=8))
    save_provisioner(Provisioner("transformer", fitted("transformer"), 1, DAY_S, {}, {}), base)
    words = (
        *("train", "provisioner", "--trace", str(log), "--limit", "24h", "--starts", "96"),
        *("--until", str(60 * DAY_S), "--base", str(base), "--prices", "4:1", "--out", str(out)),
    )
    code, printed, text = run_laxity(*words, "--model", "transformer_pg", "--json")
    assert code == 0, text
    assert set(json.loads(printed)) >= {"interruption_h", "overlap_h", "reactive_interruption_h"}
    trained_on = load_provisioner(out).trained_on
    assert (trained_on["prices"], trained_on["probes"]) == ("4:1", "hourly")
    assert trained_on["device"]
    code, _, text = run_laxity(*words, "--model", "mixture_pg")
    assert (code, "is a transformer, not a mixture" in text) == (2, True)
    code, _, text = run_laxity(*words, "--model", "transformer_pg", "--pair-nodes", "2")
    assert (code, "was trained for jobs of 1 nodes" in text) == (2, True)
