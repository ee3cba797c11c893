"""Learned policies by name: what stands in their files, and why one cannot be used."""

from hashlib import sha256
from pathlib import Path
from typing import Final

from laxity_scheduler.allocation.surplus import TEACHERS
from laxity_scheduler.learned.weights_file import SHIPPED, load_policy
from laxity_scheduler.service.policy_in_force import TEACHER, LearnedModel

LEARNED: Final = "learned"


def read_model(name: str) -> LearnedModel | None:
    """The model of `learned` or `learned:FILE`; None for other policies."""
    page, _, file = name.partition(":")
    if page != LEARNED:
        return None
    return read_file(name, Path(file) if file else SHIPPED)


def read_file(name: str, path: Path) -> LearnedModel:
    """The model in a file; where it cannot be used it says why."""
    try:
        trained_on = load_policy(path).trained_on
        digest = sha256(path.read_bytes()).hexdigest()[:12]
    except (ValueError, OSError) as error:
        return LearnedModel(name, refusal=str(error))
    teacher = str(trained_on.get("teacher", TEACHER))
    return LearnedModel(name, digest, teacher if teacher in TEACHERS else TEACHER)
