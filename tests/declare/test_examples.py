"""The examples to copy really learn, with nothing but Python around them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "flows" / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "function", "least_accuracy"),
    [
        pytest.param("digits.py", "train_digits()['accuracy']", 0.95, id="NumPy on digits"),
        pytest.param("tumours.py", "train_tumours()", 0.95, id="scikit-learn on tumours"),
        pytest.param("digits_torch.py", "train_digits_torch()", 0.95, id="PyTorch on digits"),
    ],
)
def test_an_example_learns_alone_and_goes_on_from_its_checkpoint(
    script: str, function: str, least_accuracy: float, tmp_path: Path
) -> None:
    if "torch" in script:
        pytest.importorskip("torch")
    code = f"from {Path(script).stem} import *; print({function})"
    env = {**os.environ, "LAXITY_ALONE": "1", "LAXITY_CHECKPOINTS": str(tmp_path)}

    told = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=EXAMPLES, env=env, capture_output=True, check=True
        ).stdout
        for _ in range(2)
    ]

    assert float(told[0]) > least_accuracy
    assert told[0] == told[1]
