"""Pools of nodes that an autoscaler adds: the setting that names them, and a node that may come.

A node that may come is a Node object like any other, named `POOL+NUMBER`: no real node has a plus in
its name. So whatever reads nodes (labels, taints, GPUs, memory) reads it, too.
"""

from typing import Annotated, Any, Final

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from laxity import json_tree
from laxity.durations import parse_duration, positive_duration
from laxity.job.manifest_yaml import load_documents
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.node_rows.accelerator_nodes import (
    COMING,
    NOT_COUNTED_ON,
    count_offered,
)
from laxity_k8s.objects.quantities import parse_quantity
from laxity_scheduler.service.settings import SettingsError

MOST_NODES: Final = 1000
WHERE: Final = "LAXITY_POOLS"
# Neither starts nor promises are to count on it.
SHUT: Final = {"key": NOT_COUNTED_ON, "effect": "NoSchedule"}


def _read_seconds(text: object) -> float:
    return positive_duration(parse_duration(str(text))).total_seconds()


def _check_quantity(text: str) -> str:
    if parse_quantity(text) is None:
        raise ValueError(f"{text!r} is no quantity: write 8, 500m or 64Gi")
    return text


Text = Annotated[str, BeforeValidator(str)]  # YAML reads 8 as a number, and true as a truth value
Quantity = Annotated[Text, AfterValidator(_check_quantity)]


class ScalingPool(BaseModel):
    """A pool of up to `nodes` nodes, all with these labels, taints and allocatable resources."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$")
    labels: dict[str, Text] = Field(min_length=1)
    allocatable: dict[str, Quantity]
    taints: list[dict[str, Any]] = []
    nodes: int = Field(ge=1, le=MOST_NODES)
    within_s: Annotated[float, BeforeValidator(_read_seconds)] = Field(alias="within")

    def holds(self, node: Json) -> bool:
        """Whether a node is of this pool, and has its accelerators."""
        labels = json_tree.labels_of(node)
        return bool(count_offered(node)) and self.labels.items() <= labels.items()

    def build_node(self, number: int, *, is_shut: bool = False) -> Json:
        """A node that may come; of a pool that is shut, for those who wait for it already."""
        return {
            "metadata": {"name": f"{self.name}{COMING}{number}", "labels": self.labels},
            "spec": {"taints": [*self.taints, SHUT] if is_shut else self.taints},
            "status": {"allocatable": self.allocatable},
        }


def read_pools(text: str) -> tuple[ScalingPool, ...]:
    """The pools of a YAML list. SettingsError says which one is wrong, where, and what would do."""
    try:
        documents = load_documents(text)
        pools = TypeAdapter(list[ScalingPool]).validate_python(documents[0] if documents else [])
    except yaml.YAMLError as error:
        raise SettingsError(f"{WHERE} is no YAML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise SettingsError(f"{WHERE}, {where}: {first['msg']}") from None
    for pool in pools:
        if not count_offered(pool.build_node(1)):
            raise SettingsError(
                f"{WHERE}: pool {pool.name} names no accelerator in allocatable: add nvidia.com/gpu: 8"
            )
    if len({pool.name for pool in pools}) < len(pools):
        raise SettingsError(f"{WHERE}: two pools have one name: give each its own")
    return tuple(pools)
