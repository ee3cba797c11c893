"""Images of digits from the data folder; `python -m vision.data` writes them there."""

from pathlib import Path
from typing import Any

import numpy as np
from prefect import task

from .config import compose


@task
def load(path: str) -> tuple[Any, Any, Any, Any]:
    """Images and labels to train with, and to test with."""
    with np.load(path) as file:
        images, labels = file["images"], file["labels"]
    cut = len(images) * 9 // 10
    return images[:cut], labels[:cut], images[cut:], labels[cut:]


def main() -> None:
    """Write the data."""
    from sklearn.datasets import load_digits

    path = Path(compose()["data"])
    path.parent.mkdir(exist_ok=True)
    images, labels = load_digits(return_X_y=True)
    np.savez(path, images=images / 16, labels=labels)


if __name__ == "__main__":
    main()
