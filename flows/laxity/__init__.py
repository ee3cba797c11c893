"""laxity: deadlines for training runs. What a user declares, and what runs inside a worker.

Importing this costs next to nothing: each name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from laxity.api.client import Client
    from laxity.api.status_text import DeadlineRefused, TrainingCancelled, TrainingFailed
    from laxity.flow.decorator import deadline_flow
    from laxity.flow.script import deadline_script
    from laxity.flow.workflow import deadline_workflow, parallel
    from laxity.job.qos import QoS, QoSError
    from laxity.job.spec import TrainingSpec
    from laxity.worker.training import Training

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
    "deadline_script",
    "deadline_workflow",
    "parallel",
]

_HOMES: Final = {
    "Client": "laxity.api.client",
    "DeadlineRefused": "laxity.api.status_text",
    "QoS": "laxity.job.qos",
    "QoSError": "laxity.job.qos",
    "Training": "laxity.worker.training",
    "TrainingCancelled": "laxity.api.status_text",
    "TrainingFailed": "laxity.api.status_text",
    "TrainingSpec": "laxity.job.spec",
    "deadline_flow": "laxity.flow.decorator",
    "deadline_script": "laxity.flow.script",
    "deadline_workflow": "laxity.flow.workflow",
    "parallel": "laxity.flow.workflow",
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
