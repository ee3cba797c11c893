"""Parameters reach the function as the types that it declares, or are refused in a sentence."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from omegaconf import DictConfig, ListConfig, OmegaConf
from pydantic import BaseModel, Field

from laxity.cli.call_arguments import arguments_of
from laxity.cli.exit_codes import CommandError
from laxity.flow.signature import bind_arguments
from laxity.job.parameters import from_json, to_json
from laxity.job.qos import QoSError
from laxity.worker.code.entrypoint import EntryError, call_arguments
from laxity.worker.function_result import plain_result
from laxity.worker.training import Training
from tests.support.programs import typed_flow
from tests.support.programs.typed_flow import Data, Optimizer, Schedule, Score


class Level(IntEnum):
    LOW = 1


class Named(BaseModel):
    size: int = Field(alias="net-size")


@dataclass
class Wide(Optimizer):
    width: int = 3


class Opaque:
    """No JSON, and pydantic knows nothing of it."""


def arrive(annotation: Any, value: Any) -> Any:
    """What a function gets whose parameter `it` has this annotation."""

    def train(training: Training, it: Any) -> None: ...

    train.__annotations__["it"] = annotation
    return from_json(train, json.loads(json.dumps(to_json(train, {"it": value}))))["it"]


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Optimizer, Optimizer(0.5, Schedule.FAST, (Path("a"), Path("b")))),
        (Optimizer | None, None),
        (list[Optimizer], [Optimizer(), Optimizer(1.0)]),
        (dict[str, Optimizer], {"a": Optimizer()}),
        (Data, Data(rows=3, since=date(2026, 2, 3), tags={"x", "y"})),
        (Named, Named.model_validate({"net-size": 3})),
        (Schedule, Schedule.FAST),
        (Level, Level.LOW),
        (Path, Path("runs/a b")),
        (date, date(2026, 11, 21)),
        (datetime, datetime(2026, 11, 21, 6, tzinfo=UTC)),
        (timedelta, timedelta(minutes=90)),
        (Decimal, Decimal("0.10")),
        (set[int], {3, 1, 2}),
        (frozenset[str], frozenset({"b", "a"})),
        (tuple[int, str], (1, "a")),
        (float, 1),
        (int | str, "5"),
        (np.float32, np.float32(0.1)),
        (np.int64, np.int64(7)),
        (Any, [1, {"a": None}]),
    ],
)
def test_a_value_arrives_as_its_declared_type(annotation: Any, value: Any) -> None:
    arrived = arrive(annotation, value)

    assert arrived == value
    assert type(arrived) is (type(value) if annotation is not float else float)


def test_omegaconf_containers_arrive_resolved() -> None:
    config = OmegaConf.create({"lr": 0.1, "twice": {"lr": "${lr}"}, "sizes": [1, 2]})

    assert arrive(DictConfig, config) == OmegaConf.create(
        {"lr": 0.1, "twice": {"lr": 0.1}, "sizes": [1, 2]}
    )
    assert isinstance(arrive(DictConfig, config).sizes, ListConfig)
    assert arrive(dict, config)["twice"] == {"lr": 0.1}


def test_numbers_of_numpy_are_numbers_where_numbers_are_declared() -> None:
    assert arrive(float, np.float32(0.5)) == 0.5
    assert arrive(int, np.int64(3)) == 3
    assert arrive(Optimizer, Optimizer(np.float32(0.5))) == Optimizer(0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("annotation", "value", "problem"),
    [
        (Any, Path("a"), "it = .*Path.*'a'.* would reach the function as 'a'; declare its type"),
        (dict, {"a": date(2026, 1, 1)}, "would reach the function as {'a': '2026-01-01'}"),
        (Optimizer, Wide(), "it = Wide.* would reach the function as Optimizer"),
        (list[Optimizer], [Wide()], "would reach the function as"),
        (Any, Opaque(), "is not JSON .*pass numbers, texts"),
        (Opaque, Opaque(), "is not JSON"),
        (Any, np.arange(3), "is not JSON"),
        (float, float("nan"), "is not JSON"),
        (int, "many", "it = 'many': input should be a valid integer"),
        (Optimizer, {"lr": "x"}, "it.lr = 'x': input should be a valid number"),
        (Data, {"since": "2026-01-01"}, "it.rows: field required"),
        (Any, {1: 2}, "the key 1 is no text"),
    ],
)  # fmt: skip
def test_what_would_arrive_as_something_else_is_refused(
    annotation: Any, value: Any, problem: str
) -> None:
    with pytest.raises(QoSError, match=problem) as error:
        arrive(annotation, value)
    assert "\n" not in str(error.value)


def test_equal_sets_are_the_same_parameters() -> None:
    one, other = ({"b", "c", "a", *map(str, numbers)} for numbers in (range(40), range(39, -1, -1)))

    def train(training: Training, tags: set[str]) -> None: ...

    assert json.dumps(to_json(train, {"tags": one})) == json.dumps(to_json(train, {"tags": other}))


def test_a_default_that_cannot_travel_stays_at_home() -> None:
    def train(  # type: ignore[no-untyped-def]
        training: Training,
        lr: float = None,  # type: ignore[assignment]  # noqa: RUF013
        how: Any = Opaque,
        out=Path("out"),  # noqa: ANN001
        n: int = 3,
    ) -> None: ...

    arguments = bind_arguments(train, (), {})

    assert to_json(train, arguments) == {"n": 3}
    with pytest.raises(QoSError, match="out = "):
        to_json(train, arguments | {"out": Path("other")})


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (float, ".1", 0.1),
        (float, "1e-3", 0.001),
        (int, "3", 3),
        (bool, "yes", True),
        (str, "42", "42"),
        (Path, "runs/3", Path("runs/3")),
        (Schedule, "fast", Schedule.FAST),
        (date, "2026-11-21", date(2026, 11, 21)),
        (Optimizer, '{"lr": 0.5, "schedule": "fast"}', Optimizer(0.5, Schedule.FAST)),
        (list[float], "[1, 0.5]", [1.0, 0.5]),
        (int | None, "null", None),
        (Literal[1, 2], "2", 2),
        (np.float32, "0.5", np.float32(0.5)),
        (DictConfig, '{"a": 1}', {"a": 1}),
        (Any, "[1]", [1]),
        (Any, "text", "text"),
    ],
)
def test_a_text_of_the_command_line_is_read_by_its_type(
    annotation: Any, text: str, value: Any
) -> None:
    def train(training: Training, it: Any) -> None: ...

    train.__annotations__["it"] = annotation

    assert arguments_of(train, [f"it={text}"])["it"] == value


@pytest.mark.parametrize(
    ("annotation", "text", "problem"),
    [
        (float, "true", "it = 'true': input should be a valid number"),
        (int, "1.5", "it = '1.5': input should be a valid integer"),
        (Schedule, "medium", "it = 'medium': input should be 'fast' or 'slow'"),
        (Optimizer, '{"lr": "x"}', "it.lr = 'x': input should be a valid number"),
        (Optimizer, "0.1", "it = '0.1': arguments must be an array or an object"),
        (date, "today", "it = 'today': input should be a valid date"),
    ],
)
def test_a_text_that_does_not_fit_is_one_sentence(annotation: Any, text: str, problem: str) -> None:
    def train(training: Training, it: Any) -> None: ...

    train.__annotations__["it"] = annotation

    with pytest.raises(CommandError, match=problem) as error:
        arguments_of(train, [f"it={text}"])
    assert "\n" not in str(error.value)


def test_the_worker_names_a_parameter_of_a_manifest_that_does_not_fit() -> None:
    function: Callable[..., Any] = typed_flow.train.fn.__wrapped__  # type: ignore[attr-defined]

    with pytest.raises(EntryError, match=r"parameter optimizer.lr = 'x': input should be a valid"):
        call_arguments(function, Training(epochs=1), '{"optimizer": {"lr": "x"}}')


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        (Score(0.5), typed_flow.as_result(Score(0.5))),
        (Data(rows=2, tags={"b", "a"}), {"rows": 2, "since": "2026-01-01", "tags": ["a", "b"]}),
        ({"how": Schedule.FAST, "at": date(2026, 1, 2)}, {"how": "fast", "at": "2026-01-02"}),
        ([{2, 1}], [[1, 2]]),
    ],
)
def test_a_result_of_these_types_is_kept(result: Any, kept: Mapping[str, Any]) -> None:
    assert plain_result(result) == (kept, "")


def test_a_result_is_the_parameter_of_the_next_flow() -> None:
    kept, _ = plain_result(Score(0.25, Optimizer(0.5, Schedule.FAST)))

    assert arrive(Score, kept) == Score(0.25, Optimizer(0.5, Schedule.FAST))
    assert arrive(Path, plain_result(Path("model.pt"))[0]) == Path("model.pt")
    assert arrive(float, plain_result(np.float32(0.5))[0]) == 0.5
