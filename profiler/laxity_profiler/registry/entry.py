"""What the registry is given of a fit: its name there, the fit itself, and what is said of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final

from laxity.instants import format_rfc3339

PARAM_LIMIT: Final = 500
QUANTILES: Final = ("p10_s", "p50_s", "mean_s", "p90_s")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table that a served model takes or gives: "long", "double" or "string"."""

    kind: str
    name: str
    required: bool = True


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """One fit for the registry. A version is made if no other has this `digest`.

    `about` is said of the registered model, `description` of the version; `params` say what it was
    trained on, `metrics` how far off it was; `served` is the page that answers with `fit`.
    """

    name: str
    digest: str
    predicts: str
    about: str
    description: str
    fit: Mapping[str, Any]
    served: str
    inputs: tuple[Column, ...]
    outputs: tuple[Column, ...]
    params: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


def mlflow_params(said: Mapping[str, object]) -> dict[str, str]:
    """Parameters as MLflow takes them, with laxity's version; empty ones are left out."""
    own = {**said, "laxity": own_version()}
    return {name: str(value)[:PARAM_LIMIT] for name, value in own.items() if str(value)}


def join_numbers(values: tuple[int, ...]) -> str:
    return ",".join(str(value) for value in values)


def instant_text(at: float) -> str:
    """In UTC; "" for an instant that is not known."""
    return format_rfc3339(at) if at > 0.0 else ""


def own_version() -> str:
    """Of laxity, which made the fit."""
    return version("laxity")
