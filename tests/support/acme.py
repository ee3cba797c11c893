"""A user's project that is not installed: a package with relative imports, and a folder of data."""

from pathlib import Path

FLOWS = """
from laxity import Training, deadline_flow
from {parts} import SCALE


@deadline_flow(epochs=2, epoch_estimate="1s", model="acme")
def train(training: Training, alpha: float = 0.5) -> dict[str, object]:
    import os
    from pathlib import Path

    for _ in training.epochs():
        pass
    return {{
        "data": SCALE * int(Path("data/x.txt").read_text()),
        "cwd": os.getcwd(),
        "env": {{name: os.environ.get(name) for name in ("FOO", "FOO_TOKEN", "OMP_NUM_THREADS")}},
    }}
"""
SCRIPT = "from acme.flows import train\n\nif __name__ == '__main__':\n    train()\n"


def write(root: Path, *, parts: str = ".parts") -> Path:
    """The project under this folder; `parts` is how its flow imports its neighbour."""
    (root / "acme" / "sub").mkdir(parents=True)
    (root / "data").mkdir()
    (root / "data" / "x.txt").write_text("21")
    for folder in ("acme", "acme/sub"):
        (root / folder / "__init__.py").touch()
    (root / "acme" / "parts.py").write_text("SCALE = 2\n")
    (root / "acme" / "flows.py").write_text(FLOWS.format(parts=parts))
    (root / "acme" / "sub" / "flows.py").write_text(FLOWS.format(parts="..parts"))
    (root / "run.py").write_text(SCRIPT)
    return root
