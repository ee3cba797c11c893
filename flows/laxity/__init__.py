"""laxity: deadlines for training runs. What a user declares, and what runs inside a worker.

Importing this costs next to nothing: each name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from laxity.client import Client
    from laxity.flow import deadline_flow
    from laxity.outcome import DeadlineRefused, TrainingCancelled, TrainingFailed
    from laxity.qos import QoS, QoSError
    from laxity.spec import TrainingSpec
    from laxity.training import Training

__all__ = [
    "Client",
    "DeadlineRefused",
    "QoS",
    "QoSError",
    "Training",
    "TrainingCancelled",
    "TrainingFailed",
    "TrainingSpec",
    "deadline_flow",
]

_HOMES: Final = {
    "Client": "laxity.client",
    "DeadlineRefused": "laxity.outcome",
    "QoS": "laxity.qos",
    "QoSError": "laxity.qos",
    "Training": "laxity.training",
    "TrainingCancelled": "laxity.outcome",
    "TrainingFailed": "laxity.outcome",
    "TrainingSpec": "laxity.spec",
    "deadline_flow": "laxity.flow",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
