"""Training functions that tests start in real worker processes, as a user would write them.

Each epoch waits at a gate (a file that names the last epoch that may run) and notes what it does, so
that a test can stop, kill and change things at an exact place.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from laxity import Training
from laxity.worker.training import run_of
from tests.support.programs.odd_trainings import (  # noqa: F401 - workers find them here
    closes_its_streams,
    fails_on_closed_streams,
    forks,
    keeps_its_own_count,
    leaves_a_child,
    leaves_a_thread,
    lists_its_epochs,
    logs_arrays,
    logs_without_a_loop,
    resumes_by_itself,
)

ROWS = np.random.default_rng(7).normal(size=(25, 3))  # not even over 2 or 3 workers


class Model:
    def __init__(self) -> None:
        self.weights = np.zeros(3)
        self.bias = np.zeros(())

    def step(self, rows: Any, epoch: int) -> float:
        self.weights += rows.mean(axis=0) * epoch
        self.bias += float(rows.sum()) / 7
        return float(np.abs(self.weights).sum())


def note(gates: str, training: Training, what: str, **more: Any) -> None:
    line = {"rank": training.rank, "epoch": training.epoch, "width": training.workers, **more}
    with (Path(gates) / "notes.jsonl").open("a") as file:
        file.write(json.dumps({"what": what, "pid": os.getpid(), **line}) + "\n")


def wait_at_gate(gates: str, epoch: int) -> None:
    while not is_open(gates, epoch):
        time.sleep(0.01)


def is_open(gates: str, epoch: int) -> bool:
    gate = Path(gates) / "gate"
    return gate.exists() and int(gate.read_text() or "0") >= epoch


def watch_door(gates: str, training: Training, epoch: int) -> None:
    """Wait at the gate; worker 0 notes who is in the group or waits to be taken in."""
    noted: list[int] = []
    while not is_open(gates, epoch):
        if training.rank == 0 and (indexes := known_workers(training)) != noted:
            note(gates, training, "knows", indexes=indexes)
            noted = indexes
        time.sleep(0.01)


def known_workers(training: Training) -> list[int]:
    group = getattr(run_of(training).role, "_group", None)
    if group is None:
        return []
    with group._came:
        return sorted(group._members.keys() | group._waiting.keys())


def mean_model(training: Training, gates: str) -> dict[str, Any]:
    model = Model()
    training.restore(model)
    for epoch in training.epochs():
        note(gates, training, "began")
        watch_door(gates, training, epoch)
        loss = model.step(training.shard(ROWS), epoch)
        training.average(model, weight=len(training.shard(ROWS)))
        training.log(loss=loss)
        training.count_bytes(100)
        note(gates, training, "trained", weights=model.weights.tobytes().hex())
    return {"weights": model.weights.tolist(), "loss": training.last("loss")}


def swallowing(training: Training, gates: str) -> str:
    """Code that catches everything, as some does."""
    training.restore({"model": "a small one"})
    try:
        for epoch in training.epochs():
            note(gates, training, "began")
            wait_at_gate(gates, epoch)
    except BaseException:  # noqa: BLE001 - that is the point
        note(gates, training, "swallowed")
    return "as if done"


def ignores_sigterm(training: Training, gates: str) -> str:
    """A library of its own takes SIGTERM, and only says so."""
    training.restore({"model": "a small one"})
    for epoch in training.epochs():
        signal.signal(signal.SIGTERM, lambda *_: note(gates, training, "ignored"))
        note(gates, training, "began")
        wait_at_gate(gates, epoch)
    return "done"


def stateless(training: Training, gates: str) -> dict[str, Any]:
    """Its author forgot to give the model to restore()."""
    model = Model()
    for epoch in training.epochs():
        note(gates, training, "began")
        watch_door(gates, training, epoch)
        loss = model.step(training.shard(ROWS), epoch)
        training.average(model, weight=len(training.shard(ROWS)))
        training.log(loss=loss)
        note(gates, training, "trained", weights=model.weights.tobytes().hex())
    note(gates, training, "closing")
    wait_at_gate(gates, training.total_epochs + 1)
    return {"weights": model.weights.tolist(), "loss": training.last("loss")}


def only_the_leader_restores(training: Training, gates: str) -> None:
    if training.rank == 0:
        training.restore({"model": "a small one"})
    for epoch in training.epochs():
        note(gates, training, "began")
        wait_at_gate(gates, epoch)


def slow_saver(training: Training, gates: str) -> str:
    """Its own save waits at a gate, as a large one would take its time."""
    state = {"epoch": 0}

    def save(path: Path) -> None:
        path.mkdir()
        (path / "half").write_text(str(state["epoch"]))
        note(gates, training, "saving")
        wait_at_gate(gates, 100 + state["epoch"])
        (path / "state").write_text(str(state["epoch"]))

    def load(path: Path) -> None:
        state["epoch"] = int((path / "state").read_text())

    training.checkpoint_with(save, load)
    for epoch in training.epochs():
        note(gates, training, "began", state=state["epoch"])
        wait_at_gate(gates, epoch)
        state["epoch"] = epoch
    return f"state {state['epoch']}"


def arrays(training: Training) -> list[Any]:
    """Means of different numbers on each worker."""
    exact: list[Any] = []
    for epoch in training.epochs():
        mine = np.random.default_rng([training.rank, epoch]).normal(size=5)
        box: dict[str, Any] = {
            "a": mine.copy(),
            "b": [np.float32(training.rank) * np.ones(2, np.float32)],
            "c": 1.0,
        }
        training.average(box)
        exact = [
            box["a"].tobytes().hex(),
            box["b"][0].tolist(),
            training.average(float(training.rank)),
        ]
        (Path(os.environ["LAXITY_CHECKPOINTS"]) / f"mean-{training.rank}").write_text(
            json.dumps(exact)
        )
    return exact


def unlike(training: Training) -> None:
    for _ in training.epochs():
        training.average({"rows": np.zeros(3 + training.rank)})


def odd_figures(training: Training, gates: str) -> float:
    for epoch in training.epochs():
        wait_at_gate(gates, epoch)
        training.log(loss=float("nan") if epoch == 2 else 1.0 / epoch, accuracy=0.5)
    return training.last("accuracy")


def raises(training: Training) -> None:
    for epoch in training.epochs():
        if epoch == 2:
            raise ValueError("the loss is " + "x" * 5000)


def second_fails(training: Training, gates: str) -> None:
    for epoch in training.epochs():
        note(gates, training, "began", epoch=epoch)
        if training.rank == 1:
            raise ValueError("only worker 1 has lost it")
        wait_at_gate(gates, epoch)


def exits(training: Training) -> None:
    for _ in training.epochs():
        sys.exit(0)


def never_loops(answer: int = 42) -> int:
    return answer


def returns_a_complex_number(training: Training) -> object:
    for _ in training.epochs():
        pass
    return {"loss": 0.5, "model": 1j}


def fills_the_disk(training: Training) -> None:
    """A limit on file sizes is a full disk without filling one."""
    import resource

    rows = [np.zeros(1000)]
    training.restore(rows)
    for epoch in training.epochs():
        if epoch == 3:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))


def in_steps(training: Training, gates: str) -> int:
    state = {"steps": 0}
    training.restore(state)
    for _ in training.epochs(unit=5):
        for step in training.steps:
            assert step == state["steps"]
            state["steps"] += 1
        note(gates, training, "trained", steps=state["steps"])
    return state["steps"]


class SlowToSave:
    """A state that takes longer to write than its epochs to train."""

    def __reduce__(self) -> tuple[Any, ...]:
        time.sleep(0.06)
        return (SlowToSave, ())


def slow_to_save(training: Training, gates: str) -> int:
    state = {"epochs": 0, "half": 0, "weight": SlowToSave()}
    training.restore(state)
    for epoch in training.epochs():
        note(gates, training, "began", state=state["epochs"], half=state["half"])
        state["half"] = epoch
        wait_at_gate(gates, epoch)
        state["epochs"] = epoch
        training.log(epoch=epoch)
    return epoch


def averages_each_step(training: Training, gates: str) -> list[int]:
    """Long epochs: their steps should end soon when another worker is lost."""
    value = np.zeros(1)
    counts = []
    training.restore(value)
    for _ in training.epochs(unit=20):
        done = 0
        for step in training.steps:
            note(gates, training, "step", step=step)
            wait_at_gate(gates, step)
            value += 1
            training.average(value)
            done += 1
        counts.append(done)
        note(gates, training, "trained", steps=done, value=float(value[0]))
    return counts


def lone_models(training: Training, gates: str) -> None:
    """Its author thinks that more workers are faster by themselves."""
    for epoch in training.epochs():
        wait_at_gate(gates, epoch)


def needs_the_others(training: Training, gates: str) -> None:
    """As DDP does: a step without the others raises."""
    training.restore({"model": "a small one"})
    for epoch in training.epochs():
        note(gates, training, "began")
        wait_at_gate(gates, epoch)
        if training.workers == 2 and run_of(training).has_lost_others():
            raise RuntimeError("connection closed by peer")


def own_logging(training: Training, gates: str) -> list[str]:
    """MLflow as its users know it, around and inside the loop; the runs that it logged to."""
    import mlflow

    with mlflow.start_run() as run:
        mlflow.log_param("alpha", 0.001)
        runs = [run.info.run_id, training.run_id]
    for epoch in training.epochs():
        with mlflow.start_run() as run:
            mlflow.log_metric("own", float(epoch), step=epoch)
            runs.append(run.info.run_id)
        training.log(loss=1 / epoch)
    return runs


def logs_its_start(training: Training, gates: str) -> str:
    """Parameters that each start logs anew, one by one and together."""
    import mlflow

    training.restore({"model": "a small one"})
    with mlflow.start_run():
        mlflow.log_param("start_epoch", training.epoch)
        mlflow.log_params({"alpha": 0.5, "began_at": training.epoch, f"of_{training.epoch}": 1})
    for epoch in training.epochs():
        note(gates, training, "began")
        wait_at_gate(gates, epoch)
    return training.run_id


def nested(training: Training, gates: str) -> list[str]:
    """A run inside the training's run for each epoch, as for folds: the experiments of these runs."""
    import mlflow

    experiments = []
    with mlflow.start_run():
        for epoch in training.epochs():
            with mlflow.start_run(nested=True) as fold:
                mlflow.log_metric("fold", float(epoch))
                experiments.append(fold.info.experiment_id)
    return experiments


def autologged(training: Training, gates: str) -> str:
    import mlflow
    from sklearn.linear_model import SGDClassifier

    mlflow.sklearn.autolog(log_models=False)
    for _epoch in training.epochs():
        SGDClassifier(alpha=0.001, random_state=1).fit(ROWS, [0, 1] * 12 + [0])
    return training.run_id


def own_experiment(training: Training, gates: str) -> str:
    import mlflow

    mlflow.set_experiment("digits")
    for epoch in training.epochs():
        with mlflow.start_run() as run:
            mlflow.log_metric("own", float(epoch))
    return str(run.info.run_id)


def plain(training: Training, gates: str) -> list[str]:
    """Which of the large libraries this process has imported."""
    for _epoch in training.epochs():
        pass
    return sorted({"mlflow", "prefect"} & set(sys.modules))


def stops_early(training: Training, gates: str, how: str = "break") -> float:
    """Six of its epochs, then it sees that it gets no better."""
    model = Model()
    training.restore(model)
    try:
        for epoch in training.epochs():
            training.log(loss=model.step(ROWS, epoch))
            note(gates, training, "trained")
            if epoch == 6 and how == "raise":
                float("no better")
            if epoch == 6:
                break
    except ValueError:
        pass
    return training.last("loss")


def trains_on_a_full_disk(training: Training, gates: str, full_from: int = 1) -> None:
    """From this epoch on no file may become longer than a few lines of reports."""
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    model, ballast = Model(), np.zeros(20_000)
    training.restore(model, ballast)
    for epoch in training.epochs():
        note(gates, training, "began")
        wait_at_gate(gates, epoch)
        if epoch == full_from:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
