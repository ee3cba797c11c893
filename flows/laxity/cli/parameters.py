"""Parameters of a training function from the command line: read by, and checked against, its types.

The simple types are checked (numbers, texts, lists, dicts, and unions of them); what an annotation
of another kind means, only the function knows.
"""

import inspect
import json
import types
from collections import abc
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

from laxity.api.job_view import Json
from laxity.cli.exit_codes import USAGE, CommandError
from laxity.flow.signature import bind_arguments, visible_signature

# By annotation, what JSON has for it.
_JSON: Final[Mapping[Any, Any]] = {
    None: types.NoneType, types.NoneType: types.NoneType, bool: bool, int: int, float: (int, float),
    str: str, Path: str, list: list, tuple: list, set: list, dict: dict,
    abc.Sequence: list, abc.Mapping: dict,
}  # fmt: skip


def arguments_of(function: Callable[..., Any], pairs: Sequence[str]) -> Json:
    """The arguments of a call with these KEY=VALUE pairs; CommandError says what does not fit."""
    signature = visible_signature(function)
    wanted = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    values = {key: _read_value(text, wanted.get(key, Any)) for key, text in _split_pairs(pairs)}
    call = f"{function.__name__}{signature}"
    try:
        arguments = bind_arguments(function, (), values)
    except TypeError as error:
        raise CommandError(f"{call}: {error}; write -p KEY=VALUE for each", code=USAGE) from error
    for key, value in values.items():
        if not fits_annotation(value, wanted.get(key, Any)):
            kind = inspect.formatannotation(wanted[key])
            message = f"{call}: parameter {key} is a {kind}, and {value!r:.60} is none"
            raise CommandError(message, code=USAGE)
    return arguments


def fits_annotation(value: Any, annotation: Any) -> bool:
    """Whether a value of JSON may be given where this annotation stands."""
    kind, inner = get_origin(annotation) or annotation, get_args(annotation)
    if kind in (Union, types.UnionType):
        return any(fits_annotation(value, part) for part in inner)
    if kind is Literal:
        return value in inner
    if kind not in _JSON:
        return True
    if not isinstance(value, _JSON[kind]) or (isinstance(value, bool) and kind is not bool):
        return False
    if isinstance(value, list) and len(inner) == 1:
        return all(fits_annotation(part, inner[0]) for part in value)
    if isinstance(value, dict) and len(inner) == 2:
        return all(fits_annotation(part, inner[1]) for part in value.values())
    return True


def _split_pairs(pairs: Sequence[str]) -> list[tuple[str, str]]:
    pairs_read = []
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise CommandError(f"--param {pair!r} is not KEY=VALUE", code=USAGE)
        pairs_read.append((key, value))
    return pairs_read


def _read_value(text: str, annotation: Any) -> Any:
    """JSON where it is JSON and fits, text otherwise: 42 is a text where a text is wanted."""
    value: Any = text
    with suppress(ValueError):
        value = json.loads(text)
    is_text = fits_annotation(text, annotation) and not fits_annotation(value, annotation)
    return text if is_text else value
