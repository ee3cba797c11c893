"""What a checkpoint holds of the user's objects, taken out and put back in place.

An object is restored in place, because the training code holds on to it: an optimiser to the
model's tensors, a list to its arrays. How depends on what it offers, not on its library.
"""

import copy
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from laxity.human_time import count_noun
from laxity.worker.checkpoint import CheckpointError
from laxity.worker.random_generators import RandomGenerators

OBJECTS: Final = "objects.pkl"
OWN: Final = "own"  # what the user's own save callable makes of this path: a file or a folder

# Pairs of methods that take a state out and put it back, in the order in which they are tried.
_PAIRS: Final = (
    ("state_dict", "load_state_dict"),
    ("get_state", "set_state"),
    ("getstate", "setstate"),
)


@dataclass(slots=True)
class States:
    """The objects given to `restore`, and the user's own pair of callables, if any."""

    objects: list[Any] = field(default_factory=list)
    save: Callable[[Path], object] | None = None
    load: Callable[[Path], object] | None = None

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

    def fill(self, folder: Path) -> None:
        """Write everything into the folder of a checkpoint."""
        (folder / OBJECTS).write_bytes(self.pack())
        if self.save is not None:
            self.save(folder / OWN)

    def read(self, folder: Path, *, first: int = 0) -> None:
        """Put back the states of the objects from number `first` on; then the user's own load."""
        states = pickle.loads((folder / OBJECTS).read_bytes())  # noqa: S301 - the job's own folder
        if len(states) < len(self.objects):
            raise CheckpointError(
                f"{folder} holds {count_noun(len(states), 'object')}, but {len(self.objects)} were given to "
                "restore(): restore what was saved, or start in an empty folder"
            )
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
    raise CheckpointError(
        f"a value of type {type(thing).__name__} cannot be restored in place: wrap it in a list, a dict or an "
        "object, or give Training.checkpoint_with() a save and a load of your own"
    )


def put_back(thing: Any, state: Any) -> None:
    """Give an object the state that `capture_state` took, in place."""
    for taking, putting in _PAIRS:
        if hasattr(thing, taking):
            getattr(thing, putting)(state)
            return
    if hasattr(thing, "bit_generator"):
        thing.bit_generator.state = state
    elif _is_refillable(thing, state):
        thing[...] = state
    elif isinstance(thing, MutableMapping):
        _refill_mapping(thing, state)
    elif isinstance(thing, list):
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
    """The old array or container with the new contents where it fits, else the new one."""
    if _is_refillable(old, new):
        old[...] = new
        return old
    if type(old) is type(new) and isinstance(new, dict | list):
        put_back(old, new)
        return old
    return new


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
