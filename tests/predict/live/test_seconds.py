"""A training of known length: each figure of it, wherever it is shown, is in seconds, and true."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from laxity import names
from laxity.durations import parse_duration
from tests.support.local_service import LocalService, local_service
from tests.support.mlflow_store import copy_store
from tests.support.waiting import until

EPOCH_S: Final = 2.0
EPOCHS: Final = 8
WHOLE_S: Final = EPOCHS * EPOCH_S
LEFT_S: Final = WHOLE_S - 2 * EPOCH_S  # after two epochs
DEADLINE_S: Final = 600.0
NEAR: Final = 0.2
START_S: Final = 10.0  # of a worker or a command on a busy machine
TRAIN = f"""
import time

def train(training):
    for epoch in training.epochs():
        end = time.monotonic() + {EPOCH_S}
        training.log(loss=1.0 / epoch)
        time.sleep(max(0.0, end - time.monotonic()))
"""
_DURATION = r"((?:\d+h)?(?:\d+m)?(?:[\d.]+s)?)"


class Claim(NamedTuple):
    """Figures that are all to be near the truth; they may be `longer` by what nobody knows."""

    values: list[float]
    truth: float
    longer: float = 0.0
    shorter: float = 0.0

    @property
    def holds(self) -> bool:
        least, most = self.truth * (1 - NEAR) - self.shorter, self.truth * (1 + NEAR) + self.longer
        return bool(self.values) and all(least <= value <= most for value in self.values)


@pytest.fixture
def served(tmp_path: Path, blank_mlflow: Path) -> Iterator[LocalService]:
    uri = copy_store(blank_mlflow, tmp_path)
    with local_service(tmp_path / "home", tracking_uri=uri, LAXITY_SAVING_SHARE="1") as service:
        yield service


def run_once(served: LocalService, folder: Path, name: str, *more: str) -> list[str]:
    """Train; the panels at the submission, after two epochs and at the end."""
    terms = ("--epochs", str(EPOCHS), "--deadline", f"{DEADLINE_S:.0f}s", "--workers", "1", *more)
    submitted = served.laxity("submit", "steady.py:train", "--name", name, *terms, cwd=folder)
    assert submitted.returncode == 0, submitted.stderr
    served.until(name, lambda job: job.epochs_done >= 2)
    running = served.laxity("show", name, cwd=folder).stdout
    assert served.ended(name).state == "finished"
    return [submitted.stdout, running, served.laxity("show", name, cwd=folder).stdout]


def seconds_in(text: str, pattern: str) -> list[float]:
    """The durations that stand in the text where the pattern says `{}`."""
    matches = re.findall(pattern.replace("{}", _DURATION), text, flags=re.IGNORECASE)
    return [parse_duration(match).total_seconds() for match in matches]


def told_in_panels(panels: list[str]) -> dict[str, Claim]:
    submitted, running, ended = panels
    return {
        "P50 at submission": Claim(
            seconds_in(submitted, r"P50 finish .*\(in {}\)"), WHOLE_S, longer=START_S
        ),
        "P90 at submission": Claim(
            seconds_in(submitted, r"P90 finish .*\(in {}\)"), WHOLE_S, longer=WHOLE_S + START_S
        ),
        "P50 after two": Claim(
            seconds_in(running, r"P50 finish .*\(in {}\)"), LEFT_S, shorter=2 * EPOCH_S
        ),
        "laxity": Claim(seconds_in(submitted + running, r"laxity +{} "), DEADLINE_S),
        "predicted": Claim(seconds_in(ended, r"predicted {} of run"), WHOLE_S, longer=START_S),
        "took": Claim(seconds_in(ended, r"run time, took {} "), WHOLE_S, longer=START_S),
    }


def told_by_predict(table: str) -> dict[str, Claim]:
    cells = r"\n│ +1 │ +%s │ +%s │ +%s │ +%s │"
    epoch_p50, epoch_p90, all_p50, all_p90 = (
        seconds_in(table, cells % tuple("{}" if i == shown else r"\S+" for i in range(4)))
        for shown in range(4)
    )
    return {
        "epoch P50": Claim(epoch_p50, EPOCH_S),
        "epoch P90": Claim(epoch_p90, EPOCH_S, longer=EPOCH_S),
        "in all P50": Claim(all_p50, WHOLE_S),
        "in all P90": Claim(all_p90, WHOLE_S, longer=WHOLE_S),
    }


def kept_in_mlflow(uri: str) -> dict[str, Claim]:
    """The series and the description of each run, by the run's name."""
    from mlflow import MlflowClient

    client, claims = MlflowClient(uri), {}
    experiment = client.get_experiment_by_name("laxity")
    assert experiment is not None
    for run in client.search_runs([experiment.experiment_id]):
        note = run.data.tags["mlflow.note.content"]
        claims[f"{run.info.run_name}: predicted"] = Claim(
            seconds_in(note, "predicted {} of run"), WHOLE_S, longer=START_S
        )
        claims[f"{run.info.run_name}: took"] = Claim(
            seconds_in(note, "run time, took {} "), WHOLE_S, longer=START_S
        )
        for series, truth, longer in (
            (names.EPOCH_ACTUAL, EPOCH_S, 0.0),
            (names.EPOCH_P50, EPOCH_S, 0.0),
            (names.EPOCH_P90, EPOCH_S, EPOCH_S),
            (names.FINISH_P50, WHOLE_S, START_S),
            (names.FINISH_P90, WHOLE_S, WHOLE_S + START_S),
            (names.FINISH_DEADLINE, DEADLINE_S, 0.0),
            (names.LAXITY_SERIES, DEADLINE_S, 0.0),
            (names.FINAL_PREDICTED, WHOLE_S, START_S),
            (names.FINAL_ACTUAL, WHOLE_S, START_S),
            (names.FINAL_RUN_PREDICTED, WHOLE_S, START_S),
            (names.FINAL_RUN_ACTUAL, WHOLE_S, START_S),
        ):
            history = client.get_metric_history(run.info.run_id, series)
            values = [point.value for point in history]
            claims[f"{run.info.run_name}: {series}"] = Claim(values, truth, longer)
    return claims


def finish_ratio(served: LocalService) -> float:
    """The mean of what took place over what was predicted, as Prometheus would read it."""
    text = served.ask("GET", "/metrics").text
    lines = dict(re.findall(r"^(laxity_finish_ratio_\w+) (\S+)$", text, re.MULTILINE))
    return float(lines["laxity_finish_ratio_sum"]) / float(lines["laxity_finish_ratio_count"])


def logged_ends(uri: str) -> int:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("laxity")
    runs = client.search_runs([experiment.experiment_id]) if experiment else []
    return sum(names.FINAL_RUN_ACTUAL in run.data.metrics for run in runs)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_training_of_known_length_is_told_in_true_seconds_everywhere(
    served: LocalService, tmp_path: Path
) -> None:
    (tmp_path / "steady.py").write_text(TRAIN)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    predict = ("predict", "steady.py:train", "--epochs", str(EPOCHS), "--workers", "1")

    declared = run_once(served, tmp_path, "declared", "--estimate", f"{EPOCH_S:.0f}s")
    table = served.laxity(*predict, cwd=tmp_path).stdout
    learned = run_once(served, tmp_path, "learned")
    until(lambda: logged_ends(uri) == 2, limit_s=120, what="both ends in MLflow")

    ratio = Claim([finish_ratio(served)], 1.0, longer=START_S / WHOLE_S)
    claims = told_by_predict(table) | kept_in_mlflow(uri) | {"finish ratio": ratio}
    for name, panels in (("declared", declared), ("learned", learned)):
        claims |= {f"{name}: shown {what}": it for what, it in told_in_panels(panels).items()}
    assert {what: claim for what, claim in claims.items() if not claim.holds} == {}
