"""What a checkpoint holds of the user's objects, taken out and put back in place.

An object is restored in place, because the training code holds on to it: an optimiser to the
model's tensors, a list to its arrays. How depends on what it offers, not on its library.
"""

import copy
import io
import numbers
import pickle
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from laxity.worker.checkpoints.checkpoint import CheckpointError
from laxity.worker.checkpoints.checkpoint_contents import (
    OBJECTS,
    OWN,
    Contents,
    check_count,
    read_states,
)
from laxity.worker.checkpoints.random_generators import RandomGenerators

# Pairs of methods that take a state out and put it back, in the order in which they are tried.
_PAIRS: Final = (
    ("state_dict", "load_state_dict"),
    ("get_state", "set_state"),
    ("getstate", "setstate"),
)
# Values and code: some have a __dict__, and what they are does not stand in it.
_VALUES: Final = (
    bytes, bytearray, deque, Enum, frozenset, numbers.Number, set, str, tuple, type,
    types.FunctionType, types.MethodType, types.ModuleType,
)  # fmt: skip
_NO_ATTRIBUTES: Final = frozenset({"__dict__", "__weakref__"})  # among __slots__


@dataclass(slots=True)
class States:
    """The objects given to `restore`, and the user's own pair of callables, if any.

    `resumes`: the training code keeps a state of its own beside these.
    """

    objects: list[Any] = field(default_factory=list)
    save: Callable[[Path], object] | None = None
    load: Callable[[Path], object] | None = None
    resumes: bool = False

    @property
    def contents(self) -> Contents:
        """What a checkpoint holds that is written now."""
        kinds = tuple(type(thing).__name__ for thing in self.objects)
        return Contents(kinds, own=self.save is not None, resumes=self.resumes)

    def pack(self) -> bytes:
        """All objects' states as bytes, as they are now."""
        buffer = io.BytesIO()
        states = [capture_state(thing) for thing in self.objects]
        try:
            pickle.dump(states, buffer, protocol=pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{self._find_culprit(states)} cannot be pickled ({error}): "
                "give Training.checkpoint_with() a save and a load of your own"
            ) from error
        return buffer.getvalue()

    def begin_epoch(self) -> None:
        """What has more to put back when the next epoch begins, such as random numbers, does so."""
        for thing in self.objects:
            if isinstance(thing, RandomGenerators):
                thing.begin_epoch()

    def fill(self, folder: Path, *, packed: bytes | None = None) -> None:
        """Write everything into the folder of a checkpoint; `packed` is what `pack` gave before."""
        (folder / OBJECTS).write_bytes(self.pack() if packed is None else packed)
        if self.save is not None:
            self.save(folder / OWN)
            _check_written(folder)

    def read(self, folder: Path, *, first: int = 0) -> None:
        """Put back the states of the objects from number `first` on; then the user's own load."""
        states = read_states(folder)
        check_count(len(states), len(self.objects), folder)
        for thing, state in list(zip(self.objects, states, strict=False))[first:]:
            put_back(thing, state)
        if self.load is not None and (folder / OWN).exists():
            self.load(folder / OWN)

    def _find_culprit(self, states: list[Any]) -> str:
        for thing, state in zip(self.objects, states, strict=True):
            parts = state.items() if isinstance(state, dict) else [("", state)]
            for name, part in parts:
                try:
                    pickle.dumps(part)
                except (pickle.PicklingError, TypeError, AttributeError):
                    return f"{type(thing).__name__}{'.' * bool(name)}{name}"
        return "a state"


def _check_written(folder: Path) -> None:
    """What a save callable wrote to another path is no part of the checkpoint, and never loaded."""
    if (folder / OWN).exists():
        return
    others = sorted(path.name for path in folder.iterdir() if path.name != OBJECTS)
    instead = f" but {', '.join(others)}" if others else ""
    raise CheckpointError(
        f"the save of checkpoint_with() wrote nothing to its path, {OWN!r}{instead}: it must make a "
        "file or a folder of exactly that path"
    )


def check_restorable(thing: Any) -> None:
    """CheckpointError unless this object can be put back in place."""
    if isinstance(thing, _VALUES) or not (_has_pair(thing) or _is_refilled(thing)):
        raise CheckpointError(_not_restorable(thing))


def _is_refilled(thing: Any) -> bool:
    """Whether its contents can be replaced: by items, or by all of its attributes."""
    if _is_array(thing):
        return _takes_items(thing)
    if isinstance(thing, MutableMapping | list) or hasattr(thing, "bit_generator"):
        return True
    return hasattr(thing, "__dict__") and not any(map(_has_slots, type(thing).__mro__))


def _takes_items(array: Any) -> bool:
    """Whether an array may be written; that of some libraries never may, and shows it when asked."""
    try:
        _refill_array(array, array)
    except (RuntimeError, TypeError, ValueError):
        return False
    return True


def _has_slots(base: type) -> bool:
    """Whether instances have attributes that do not stand in their __dict__."""
    slots = vars(base).get("__slots__", ())
    return not _NO_ATTRIBUTES.issuperset([slots] if isinstance(slots, str) else slots)


def _has_pair(thing: Any) -> bool:
    return any(hasattr(thing, taking) and hasattr(thing, putting) for taking, putting in _PAIRS)


def _has_own_state(thing: Any) -> bool:
    return _has_pair(thing) or hasattr(thing, "bit_generator")


def _not_restorable(thing: Any) -> str:
    return (
        f"a value of type {type(thing).__name__} cannot be restored in place: wrap it in a list, a "
        "dict or an object, or give Training.checkpoint_with() a save and a load of your own"
    )


def capture_state(thing: Any) -> Any:
    """The state of an object, without the object's own class: what `put_back` takes."""
    for taking, _ in _PAIRS:
        if hasattr(thing, taking):
            return move_to_cpu(getattr(thing, taking)())
    if hasattr(thing, "bit_generator"):  # numpy.random.Generator
        return thing.bit_generator.state
    if _is_array(thing) or isinstance(thing, Mapping | list):
        return move_to_cpu(thing)
    if hasattr(thing, "__dict__"):
        return move_to_cpu(vars(thing))
    raise CheckpointError(_not_restorable(thing))


def put_back(thing: Any, state: Any) -> None:
    """Give an object the state that `capture_state` took, in place."""
    for taking, putting in _PAIRS:
        if hasattr(thing, taking):
            getattr(thing, putting)(state)
            return
    if hasattr(thing, "bit_generator"):
        thing.bit_generator.state = state
    elif _is_refillable(thing, state):
        _refill_array(thing, state)
    elif isinstance(thing, MutableMapping) and isinstance(state, Mapping):
        _refill_mapping(thing, state)
    elif isinstance(thing, list) and isinstance(state, list):
        thing[:] = [merge_into(old, new) for old, new in pair_up(thing, state)]
    elif hasattr(thing, "__dict__") and isinstance(state, Mapping):
        _refill_mapping(vars(thing), state)
    else:
        raise CheckpointError(
            f"the checkpoint holds a {describe_value(state)} where restore() was given a {describe_value(thing)}: "
            "the training code has changed; start in an empty folder"
        )


def move_to_cpu(state: Any) -> Any:
    """The same state with every tensor on the CPU, so that any machine can read it."""
    if hasattr(state, "detach") and hasattr(state, "cpu"):
        return state.detach().cpu()
    if type(state) in (dict, OrderedDict):
        moved = copy.copy(state)  # with the versions that PyTorch writes on a module's
        moved.update({key: move_to_cpu(value) for key, value in state.items()})
        return moved
    if type(state) in (list, tuple):
        return type(state)(move_to_cpu(value) for value in state)
    return state


def _refill_mapping(thing: MutableMapping[Any, Any], state: Mapping[Any, Any]) -> None:
    for key in [key for key in thing if key not in state]:
        del thing[key]
    for key, value in state.items():
        thing[key] = merge_into(thing.get(key), value)


def merge_into(old: Any, new: Any) -> Any:
    """The old array, container or model with the new contents where it fits, else the new one."""
    if _is_refillable(old, new):
        _refill_array(old, new)
        return old
    if type(old) is not type(new):
        return new
    if isinstance(new, dict | list):
        put_back(old, new)
        return old
    if type(new) is tuple and len(old) == len(new):
        return tuple(map(merge_into, old, new))
    if _has_own_state(old):
        put_back(old, capture_state(new))
        return old
    return new


def _refill_array(array: Any, values: Any) -> None:
    """A tensor that is trained is written as what it holds, which its gradients do not see."""
    (array.detach() if hasattr(array, "detach") else array)[...] = values


def pair_up(old: list[Any], new: list[Any]) -> list[tuple[Any, Any]]:
    padded = [*old, *[None] * (len(new) - len(old))]
    return list(zip(padded, new, strict=False))


def _is_array(thing: Any) -> bool:
    return hasattr(thing, "dtype") and hasattr(thing, "shape") and hasattr(thing, "__setitem__")


def _is_refillable(thing: Any, state: Any) -> bool:
    """Both are arrays of one shape and type, and the old one may be written."""
    return (
        _is_array(thing)
        and _is_array(state)
        and (thing.shape, thing.dtype) == (state.shape, state.dtype)
        and bool(getattr(getattr(thing, "flags", None), "writeable", True))
    )


def describe_value(thing: Any) -> str:
    shape = f" of shape {tuple(thing.shape)}" if hasattr(thing, "shape") else ""
    return f"{type(thing).__name__}{shape}"
