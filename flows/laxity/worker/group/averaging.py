"""Which numbers of a thing are averaged over the workers, and the mean itself.

mean_r = sum_r(w_r x_r) / sum_r(w_r), added in order of rank on worker 0 and sent to all: the same
bits everywhere, and for equal weights the same bits as `numpy.mean(stacked, axis=0)`.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]


Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array or number inside a thing: its name for errors, its value, and where it goes back."""

    name: str
    value: "Floats"
    put: Callable[[Any], None]


def list_leaves(thing: Any) -> list[Leaf]:
    """All floating-point numbers of a thing, in an order that is the same on all workers.

    Arrays and tensors themselves; the items of dicts, lists and tuples; a module's `state_dict`;
    of a fitted scikit-learn estimator what ends in "_"; of any other object its attributes.
    """
    arrays = list(_leaves_inside(thing, "", named=True))
    if not arrays:
        raise TypeError(
            f"average() finds no floating-point numbers in a {type(thing).__name__}: "
            "give it arrays, a dict or list of arrays, or a model that holds arrays"
        )
    return arrays


def put_means(thing: Thing, means_of: Callable[..., "Sequence[Floats] | None"]) -> Thing:
    """Replace every number of a thing by its mean, in place; a plain number comes back as its mean.

    `means_of(arrays, names)` gives the means over all workers, None where this one is alone.
    """
    box: list[Any] = [thing]
    leaves = list_leaves(box if isinstance(thing, float) else thing)
    means = means_of([leaf.value for leaf in leaves], [leaf.name for leaf in leaves])
    for leaf, mean in zip(leaves, means or (), strict=means is not None):
        leaf.put(mean)
    return box[0] if isinstance(thing, float) else thing


def mean_by_weight(parts: "Sequence[Floats]", weights: Sequence[float]) -> "Floats":
    """The mean of the workers' arrays, all of one shape, in order of rank."""
    import numpy as np

    kind = parts[0].dtype
    wide = np.promote_types(kind, np.float64)
    equal = all(weight == weights[0] for weight in weights)
    total = np.zeros(parts[0].shape, dtype=wide)
    for part, weight in zip(parts, weights, strict=True):
        total += part if equal else part * wide.type(weight)
    total /= len(parts) if equal else sum(weights)
    return total.astype(kind)


def _leaves_inside(thing: Any, name: str, *, named: bool) -> Iterator[Leaf]:
    """`named`: the user gave it to average(), rather than an object that holds it."""
    import numpy as np

    if isinstance(thing, np.ndarray):
        yield from _array_leaf(thing, name, explicit=named)
    elif _is_tensor(thing):
        yield from _tensor_leaf(thing, name)
    elif isinstance(thing, dict | list):
        keys: Any = thing if isinstance(thing, dict) else range(len(thing))
        for key in list(keys):
            yield from _item_leaves(thing, key, f"{name}[{key!r}]", named=named)
    elif isinstance(thing, tuple):
        for number, value in enumerate(thing):
            yield from _leaves_inside(value, f"{name}[{number}]", named=named)
    elif named:
        for key, value in parameters_of(thing).items():
            yield from _leaves_inside(value, f"{name}.{key}", named=False)


def parameters_of(thing: Any) -> dict[str, Any]:
    """The attributes of a model that hold what it learns."""
    if hasattr(thing, "state_dict"):
        return dict(thing.state_dict())
    attributes: dict[str, Any] = getattr(thing, "__dict__", {})
    if not hasattr(thing, "get_params"):
        return attributes
    return {
        key: value
        for key, value in attributes.items()
        if key.endswith("_") and not key.startswith("_")
    }


def _array_leaf(array: Any, name: str, *, explicit: bool) -> Iterator[Leaf]:
    if array.dtype.kind in "fc":
        yield Leaf(name, array, lambda mean: array.__setitem__(..., mean))
    elif explicit:
        raise TypeError(f"average() takes floats; {name or 'the array'} is of {array.dtype}")


def _item_leaves(thing: Any, key: Any, name: str, *, named: bool) -> Iterator[Leaf]:
    import numpy as np

    value = thing[key]
    if named and isinstance(value, float | np.floating):
        yield Leaf(name, np.asarray(value), lambda mean: thing.__setitem__(key, type(value)(mean)))
    else:
        yield from _leaves_inside(value, name, named=named)


def _is_tensor(thing: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.Tensor)


def _tensor_leaf(tensor: Any, name: str) -> Iterator[Leaf]:
    if not tensor.is_floating_point():
        return
    torch = sys.modules["torch"]
    value = tensor.detach().cpu()
    exact = value if value.dtype in (torch.float32, torch.float64) else value.float()
    yield Leaf(name, exact.numpy(), lambda mean: tensor.detach().copy_(torch.from_numpy(mean)))
