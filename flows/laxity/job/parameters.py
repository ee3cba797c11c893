"""Parameters of a training function: as JSON in the Job, and as the declared types in the worker.

What the annotation of a parameter means is pydantic's: a dataclass, a model, an Enum, a Path, a date.
NumPy scalars and OmegaConf containers, which pydantic does not know, are built by their own classes. A
value that would arrive as something else than it was is an error before anything is submitted; a
default like that stays at home, since the worker's code has it.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from importlib import import_module
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

from laxity.job.qos import QoSError

Json = dict[str, Any]

FIELD: Final = "parameters"
MOST_PROBLEMS: Final = 3
ADVICE: Final = (
    "pass numbers, texts, lists, dicts, dataclasses, models, Enums, paths or dates, and build the rest "
    "inside the function"
)
EMPTY: Final = inspect.Parameter.empty
_PLAIN: Final = (bool, int, float, str, type(None), list, dict)
_LEAVES: Final = (PurePath, date, time, timedelta, Decimal, UUID)


class ParameterError(ValueError):
    """A value that does not fit its annotation, in words."""


def visible_signature(function: Callable[..., object]) -> inspect.Signature:
    """The signature without `training`, annotations evaluated where that is possible."""
    whole = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=evaluate_annotation(function, parameter.annotation))
        for parameter in list(whole.parameters.values())[1:]
    ]
    returned = evaluate_annotation(function, whole.return_annotation)
    return whole.replace(parameters=parameters, return_annotation=returned)


def evaluate_annotation(function: Callable[..., object], annotation: Any) -> Any:
    """What a string annotation means in its module; what cannot be told is left out."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, getattr(function, "__globals__", {}))  # noqa: S307 - own source
    except (NameError, AttributeError, SyntaxError, TypeError):
        return EMPTY


def parameter_of(signature: inspect.Signature, name: str) -> inspect.Parameter | None:
    """The parameter that takes this name, perhaps as one of its `**options`."""
    others = (row for row in signature.parameters.values() if row.kind is row.VAR_KEYWORD)
    return signature.parameters.get(name) or next(others, None)


def to_json(function: Callable[..., object], arguments: Mapping[str, Any]) -> Json:
    """The arguments of a call as JSON, without defaults that cannot travel.

    QoSError names a value that is not JSON, does not fit its annotation, or would arrive as another.
    """
    signature = visible_signature(function)
    parameters: Json = {}
    for name, value in arguments.items():
        parameter = parameter_of(signature, name)
        annotation = EMPTY if parameter is None else parameter.annotation
        try:
            parameters[name] = _checked_json(name, value, annotation)
        except ParameterError as error:
            if parameter is None or not _is_same(parameter.default, value):
                raise QoSError(FIELD, str(error)) from error
    return parameters


def check_values(function: Callable[..., object], arguments: Mapping[str, Any]) -> None:
    """QoSError for a value that its annotation does not allow; defaults are the function's own."""
    signature = visible_signature(function)
    for name, value in arguments.items():
        parameter = parameter_of(signature, name)
        if parameter is None or _is_same(parameter.default, value):
            continue
        adapter = (
            None if parameter.annotation in (EMPTY, Any) else _adapter_of(parameter.annotation)
        )
        if adapter is None:
            continue
        from pydantic import ValidationError

        try:
            adapter.validate_python(value)
        except ValidationError as error:
            raise QoSError(FIELD, _problem_text(name, error)) from None


def from_json(function: Callable[..., object], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that these parameters of a Job stand for; ParameterError names what does not fit."""
    signature = inspect.signature(function)
    arguments = {}
    for name, value in parameters.items():
        parameter = parameter_of(signature, name)
        annotation = EMPTY if parameter is None else parameter.annotation
        arguments[name] = build_value(name, value, evaluate_annotation(function, annotation))
    return arguments


def build_value(name: str, value: Any, annotation: Any) -> Any:
    """A JSON value as its annotation declares it; unchanged where nothing can be made of that."""
    if annotation in (EMPTY, Any) or (annotation in _PLAIN and type(value) is annotation):
        return value
    if annotation is float and type(value) is int:
        return float(value)
    if build := _builder_of(annotation):
        try:
            return build(value)
        except (TypeError, ValueError) as error:
            raise ParameterError(f"{name} = {_short(value)}: {error}") from error
    adapter = _adapter_of(annotation)
    if adapter is None:
        return value
    from pydantic import ValidationError

    try:
        return adapter.validate_json(json.dumps(value))
    except ValidationError as error:
        raise ParameterError(_problem_text(name, error)) from error


def parse_text(name: str, text: str, annotation: Any) -> Any:
    """A value from the command line: JSON where that fits, else the text as the type reads it."""
    value: Any = text
    with suppress(ValueError):
        value = json.loads(text)
    adapter = None if annotation in (EMPTY, Any) else _adapter_of(annotation)
    if adapter is None:
        return build_value(name, value, annotation)
    from pydantic import ValidationError

    with suppress(ValidationError):
        return adapter.validate_json(text, strict=True)
    try:
        return adapter.validate_strings(text)
    except ValidationError as error:
        if isinstance(value, dict | list):
            return build_value(name, value, annotation)  # raises by the member that is wrong
        raise ParameterError(_problem_text(name, error)) from error


def json_of(value: Any) -> Any:
    """A value as JSON; TypeError or ValueError if there is none. Sets are sorted."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Mapping):
        return {_json_key(key): json_of(member) for key, member in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(json_of, value), key=repr)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [json_of(member) for member in value]
    if hasattr(value, "tolist") and not getattr(value, "shape", ()):  # a number of NumPy
        return json_of(value.tolist())
    return json_of(unfold(value))


def unfold(value: Any) -> Any:
    """One step towards JSON: the value of an Enum, the fields of a dataclass or model, a date's text.

    TypeError for any other object.
    """
    if isinstance(value, Enum):
        return value.value
    kind = next((kind for kind in (str, int, float) if isinstance(value, kind)), None)
    if kind is not None and type(value) not in (bool, kind):  # a class of the user's
        return kind(value)
    is_record = is_dataclass(value) or hasattr(type(value), "__pydantic_serializer__")
    if isinstance(value, type) or not (is_record or isinstance(value, _LEAVES)):
        raise TypeError(f"{type(value).__name__} is no type of JSON")
    from pydantic import TypeAdapter

    mode = "python" if is_record else "json"
    adapter: Any = TypeAdapter(Any)
    return adapter.dump_python(value, mode=mode, by_alias=True, warnings="error")


def _json_key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the key {_short(key)} is no text")
    return str(key)


def _checked_json(name: str, value: Any, annotation: Any) -> Any:
    """The value as JSON, of which the worker makes the same again; ParameterError otherwise."""
    try:
        as_json = json_of(value)
        json.dumps(as_json, allow_nan=False)
    except Exception as error:
        message = f"{name} = {_short(value)} is not JSON ({error}); {ADVICE}"
        raise ParameterError(message) from error
    built = build_value(name, as_json, annotation)
    if not _is_like(value, built):
        kind = type(value).__name__
        message = f"{name} = {_short(value)} would reach the function as {_short(built)}"
        raise ParameterError(f"{message}; declare its type there, such as {name}: {kind}")
    return as_json


def _is_like(value: Any, built: Any) -> bool:
    """Whether what was built in its place is of the same types, all the way down.

    What is declared as another type, such as a dataclass for a dict, is meant so.
    """
    if isinstance(value, Mapping):
        return not isinstance(built, Mapping) or all(
            _is_like(member, built.get(key)) for key, member in value.items()
        )
    if isinstance(value, Sequence) and not isinstance(value, str):
        return not isinstance(built, Sequence) or all(map(_is_like, value, built))
    if value is None or isinstance(value, str | int | float) or hasattr(value, "tolist"):
        return True
    fields = vars(value) if hasattr(value, "__dict__") and not isinstance(value, Enum) else {}
    return type(built) is type(value) and all(
        _is_like(member, getattr(built, key, None)) for key, member in fields.items()
    )


def _is_same(default: Any, value: Any) -> bool:
    try:
        return default is value or bool(default == value)
    except Exception:  # noqa: BLE001 - arrays, and whatever a user's class does
        return False


def _builder_of(annotation: Any) -> Callable[[Any], Any] | None:
    """What makes a NumPy scalar or an OmegaConf container of JSON."""
    if not isinstance(annotation, type):
        return None
    if any(f"{base.__module__}.{base.__name__}" == "numpy.generic" for base in annotation.__mro__):
        return annotation
    if annotation.__module__.partition(".")[0] == "omegaconf":
        create: Callable[[Any], Any] = import_module("omegaconf").OmegaConf.create
        return create
    return None


def _adapter_of(annotation: Any) -> Any:
    """Pydantic's adapter; None for a type that it knows nothing of, which only the function knows."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        return TypeAdapter(annotation)
    except (PydanticUserError, NameError, TypeError, AttributeError):
        return None


def _problem_text(name: str, error: Any) -> str:
    """What pydantic finds wrong, by the member: "cfg.lr = 'x': input should be a valid number"."""
    texts = []
    for row in error.errors(include_url=False):
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in row["loc"])
        given = "" if row["type"] == "missing" else f" = {_short(row['input'])}"
        problem = row["msg"][:1].lower() + row["msg"][1:]
        texts.append(f"{name}{path}{given}: {problem}")
    more = len(texts) - MOST_PROBLEMS
    return "; ".join([*texts[:MOST_PROBLEMS], *([f"{more} more"] if more > 0 else [])])


def _short(value: Any) -> str:
    try:
        return f"{value!r:.60}"
    except Exception:  # noqa: BLE001 - the user's own code
        return f"a {type(value).__name__}"
