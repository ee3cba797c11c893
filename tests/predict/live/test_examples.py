"""Six kinds of training learn, each a few epochs and alone; they are what the live studies train."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.predict.live.world import KINDS

pytestmark = pytest.mark.slow

LEARNED = """
from {module} import {function} as train
print(train.with_qos(epochs={epochs}).alone(batch_size={batch}))
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A short run, and between what its figure must then lie."""

    entry: str
    epochs: int
    batch: int
    least: float
    most: float = 1.0


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case("softmax_numpy:train_softmax", 2, 256, 0.9), id="NumPy softmax"),
        pytest.param(Case("sgd_sklearn:train_sgd", 3, 128, 0.85), id="scikit-learn SGD"),
        pytest.param(Case("mlp_torch:train_mlp", 3, 64, 0.9), id="PyTorch MLP"),
        pytest.param(Case("cnn_torch:train_cnn", 6, 32, 0.85), id="PyTorch CNN"),
        pytest.param(Case("gru_torch:train_gru", 4, 64, 0.0, 0.1), id="PyTorch GRU"),
        pytest.param(Case("transformer_torch:train_transformer", 5, 32, 0.3), id="transformer"),
    ],
)
def test_an_example_learns(case: Case, tmp_path: Path) -> None:
    module, function = case.entry.split(":")
    if "torch" in module:
        pytest.importorskip("torch")
    env = os.environ | {
        "LAXITY_ALONE": "1",
        "LAXITY_CHECKPOINTS": str(tmp_path),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    code = LEARNED.format(module=module, function=function, epochs=case.epochs, batch=case.batch)

    told = subprocess.run(
        [sys.executable, "-c", code], cwd=KINDS, env=env, capture_output=True, check=True
    )

    assert case.least <= float(told.stdout) <= case.most
