"""KEY=VALUE pairs become the arguments of a training function, by the types that it declares."""

from typing import Any, Literal

import pytest

from laxity.cli.call_arguments import arguments_of
from laxity.cli.exit_codes import USAGE, CommandError


def loose(training: object, **more: Any) -> None: ...


def typed(
    training: object,
    *,
    alpha: float,
    name: str = "",
    steps: int | None = None,
    sizes: list[int] = [],  # noqa: B006 - never changed
    scales: "dict[str, float]" = {},  # noqa: B006
    how: Literal["sgd", "adam"] = "sgd",
    deep: "Shape | None" = None,
) -> None: ...


class Shape: ...


def test_parameters_are_json_where_they_are_json() -> None:
    found = arguments_of(loose, ["rate=0.1", "sizes=[1,2]", "name=adam", "flag=true"])

    assert found == {"rate": 0.1, "sizes": [1, 2], "name": "adam", "flag": True}


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        pytest.param("name=42", "42", id="digits where a text is wanted"),
        pytest.param("alpha=1", 1, id="a whole number for a float"),
        pytest.param("steps=null", None, id="null where it may be none"),
        pytest.param("sizes=[1, 2]", [1, 2], id="a list"),
        pytest.param('scales={"a": 1}', {"a": 1}, id="a dict"),
        pytest.param("how=adam", "adam", id="one of several words"),
        pytest.param("deep=[1]", [1], id="a type of the user's own"),
    ],
)
def test_parameters_are_read_by_their_types(pair: str, value: Any) -> None:
    name = pair.partition("=")[0]

    assert arguments_of(typed, ["alpha=0.5", pair])[name] == value


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        pytest.param((), r"missing a required .*argument: 'alpha'; write -p", id="one is missing"),
        pytest.param(("alpha=abc",), "alpha = 'abc': input should be a valid number", id="a word"),
        pytest.param(
            ("alpha=true",), "alpha = 'true': input should be a valid number", id="a flag"
        ),
        pytest.param(
            ("alpha=1", "steps=1.5"), "steps = '1.5': input should be", id="one and a half"
        ),
        pytest.param(
            ("alpha=1", "sizes=[1,null]"), r"sizes\[1\] = None: input should be", id="a hole"
        ),
        pytest.param(
            ("alpha=1", "how=rms"),
            "how = 'rms': input should be 'sgd' or 'adam'",
            id="another word",
        ),
        pytest.param(("alpha=1", "aplha=2"), r"unexpected keyword.*aplha", id="a typing error"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(pairs: tuple[str, ...], problem: str) -> None:
    with pytest.raises(CommandError, match=problem) as caught:
        arguments_of(typed, pairs)

    assert caught.value.code == USAGE
