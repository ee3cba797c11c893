"""`conf/config.yaml` with the groups that its defaults name, as Hydra composes it."""

from pathlib import Path
from typing import Any

import yaml

CONF = Path("conf")


def compose(**choices: str) -> dict[str, Any]:
    """The configuration; `compose(model="large")` chooses another file of a group."""
    config = _read(CONF / "config.yaml")
    for default in config.pop("defaults"):
        for group, name in default.items():
            config[group] = _read(CONF / group / f"{choices.get(group, name)}.yaml")
    return config


def _read(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))
