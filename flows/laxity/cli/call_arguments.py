"""Parameters of a training function from the command line: read by, and checked against, its types."""

from collections.abc import Callable, Sequence
from typing import Any

from laxity.cli.exit_codes import USAGE, CommandError
from laxity.flow.signature import bind_arguments
from laxity.job.parameters import (
    EMPTY,
    ParameterError,
    parameter_of,
    parse_text,
    visible_signature,
)


def arguments_of(function: Callable[..., Any], pairs: Sequence[str]) -> dict[str, Any]:
    """The arguments of a call with these KEY=VALUE pairs; CommandError says what does not fit."""
    signature = visible_signature(function)
    call = f"{function.__name__}{signature}"
    values = {}
    try:
        for key, text in _split_pairs(pairs):
            parameter = parameter_of(signature, key)
            values[key] = parse_text(key, text, parameter.annotation if parameter else EMPTY)
        return bind_arguments(function, (), values)
    except ParameterError as error:
        raise CommandError(f"{call}: parameter {error}", code=USAGE) from error
    except TypeError as error:
        raise CommandError(f"{call}: {error}; write -p KEY=VALUE for each", code=USAGE) from error


def _split_pairs(pairs: Sequence[str]) -> list[tuple[str, str]]:
    pairs_read = []
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise CommandError(f"--param {pair!r} is not KEY=VALUE", code=USAGE)
        pairs_read.append((key, value))
    return pairs_read
