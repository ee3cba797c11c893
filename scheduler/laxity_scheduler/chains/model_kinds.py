"""The kinds of models by name, and how each is read from a file's arrays."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from laxity_scheduler.chains.network_models import NetworkModel, PolicyModel
from laxity_scheduler.chains.value_models import CalibratedModel, PointModel, ValueModel

Model = ValueModel | PolicyModel
READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Model]]] = {
    "forest": PointModel.of_arrays,
    "xgboost": PointModel.of_arrays,
    "boosting": PointModel.of_arrays,
    "transformer": NetworkModel.of_arrays,
    "mixture": NetworkModel.of_arrays,
    "dqn": PolicyModel.of_arrays,
    "transformer_pg": PolicyModel.of_arrays,
    "mixture_pg": PolicyModel.of_arrays,
    "calibrated": CalibratedModel.of_arrays,
}
