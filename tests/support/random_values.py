"""Values of any record of the core, made from a seed: wild numbers, strange text, every union."""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from random import Random
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from laxity_scheduler.model.reasons import Fact

FLOATS = (0.0, -0.0, 1.0, 0.1, -2.5, 1e300, 5e-324, 1795235870.1242452, float("inf"), float("-inf"))
INTS = (0, 1, -1, 7, 2**31, 2**53, -(2**53), 2**63, 2**64, -(2**70))
TEXTS = ("", "a", "team/job", "inf", "nan", "\0", "\u2028", "\U0001f600", '"\\', "1")


class Maker:
    """Makes values of a type; the same seed makes the same values."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def make(self, wanted: Any) -> Any:
        random = self._random
        if wanted == Fact:
            return self.make(random.choice((str, int, float, type(None))))
        if is_dataclass(wanted):
            return self.record(cast("type", wanted))
        if wanted in _PLAIN:
            return random.choice(_PLAIN[wanted])
        origin, arguments = get_origin(wanted), get_args(wanted)
        if origin is Literal:
            return random.choice(arguments)
        if origin in (Union, types.UnionType):
            return self.make(random.choice(arguments))
        if origin is frozenset or (origin is tuple and arguments[-1] is Ellipsis):
            return origin(self.make(arguments[0]) for _ in range(random.randrange(3)))
        if origin is tuple:
            return tuple(self.make(argument) for argument in arguments)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {self.make(str): self.make(arguments[1]) for _ in range(random.randrange(3))}
        raise TypeError(f"no values of {wanted} are known")

    def record(self, kind: type, **given: Any) -> Any:
        """One of these; about half of the fields that have a default keep it."""
        hints = get_type_hints(kind)
        said = {
            field.name: self.make(hints[field.name])
            for field in fields(kind)
            if field.name not in given and (self._random.random() < 0.5 or _needed(field))
        }
        return kind(**said, **given)

    def rows(self, kind: type, most: int) -> tuple[Any, ...]:
        """So many rows with ids of their own, in any order."""
        ids = self._random.sample(range(most + 2), self._random.randrange(most + 1))
        return tuple(self.record(kind, id=f"team/{number}") for number in ids)


_PLAIN: dict[Any, tuple[Any, ...]] = {
    float: FLOATS,
    int: INTS,
    str: TEXTS,
    bool: (True, False),
    type(None): (None,),
}


def _needed(field: Any) -> bool:
    from dataclasses import MISSING

    return field.default is MISSING and field.default_factory is MISSING
