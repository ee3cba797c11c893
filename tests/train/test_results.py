"""A finished training keeps what is JSON of its result, and says what it does not keep."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laxity.worker.function_result import plain_result


class Shy:
    def __repr__(self) -> str:
        raise RuntimeError


circle: list[Any] = []
circle.append(circle)


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        pytest.param({"loss": 0.5, "steps": [1, 2], "ok": True, "no": None}, None, id="JSON"),
        pytest.param(np.float32(0.5), 0.5, id="a NumPy scalar"),
        pytest.param(np.arange(4).reshape(2, 2), [[0, 1], [2, 3]], id="an array"),
        pytest.param({"at": Path("/data")}, {"at": "/data"}, id="a path"),
        pytest.param((1, 2), [1, 2], id="a tuple"),
        pytest.param({3: "c"}, {"3": "c"}, id="a number as key"),
    ],
)
def test_what_is_json_is_kept_as_it_is(result: Any, kept: Any) -> None:
    assert plain_result(result) == (result if kept is None else kept, "")


@pytest.mark.parametrize(
    ("result", "kept", "odd"),
    [
        pytest.param(float("nan"), "nan", "nan of type float", id="NaN"),
        pytest.param(
            {"a": 1, "b": np.array([1.0, np.inf])},
            {"a": 1, "b": [1.0, "inf"]},
            "inf of type float at ['b'][1]",
            id="infinity in an array",
        ),
        pytest.param({"a": 1j}, {"a": "1j"}, "1j of type complex at ['a']", id="a complex number"),
        pytest.param(2**64, str(2**64), "of type int", id="more than 64 bits"),
        pytest.param(Shy(), "<Shy>", "<Shy> of type Shy", id="an object that cannot be shown"),
        pytest.param("x" * 300_000, "'xxx", "256 KiB", id="a result that is too large"),
    ],
)
def test_the_rest_is_kept_as_a_text_and_named(result: Any, kept: Any, odd: str) -> None:
    found, named = plain_result(result)

    assert odd in named
    assert found[:4] == kept if kept == "'xxx" else found == kept


def test_a_result_that_holds_itself_is_cut_off() -> None:
    found, odd = plain_result(circle)

    assert "of type list" in odd
    assert len(json.dumps(found)) < 10_000


def test_half_a_character_does_not_spoil_a_result() -> None:
    found, _ = plain_result({"text": "a\ud800"})

    assert json.dumps(found, ensure_ascii=False).encode() == b'{"text": "a?"}'
