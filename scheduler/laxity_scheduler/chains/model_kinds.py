"""The kinds of models by name, and how each is read from a file's arrays."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from laxity_scheduler.chains.choices import CALIBRATED, NETWORKS, POINTS, POLICIES
from laxity_scheduler.chains.network_models import NetworkModel, PolicyModel
from laxity_scheduler.chains.value_models import CalibratedModel, PointModel, ValueModel

Model = ValueModel | PolicyModel
READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Model]]] = {
    **dict.fromkeys(POINTS, PointModel.of_arrays),
    **dict.fromkeys(NETWORKS, NetworkModel.of_arrays),
    **dict.fromkeys(POLICIES, PolicyModel.of_arrays),
    CALIBRATED: CalibratedModel.of_arrays,
}
