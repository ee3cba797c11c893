"""Whose history a model has: its namespace's own, unless its name begins with `shared/`.

A history says how long others wait and what they are promised, so one namespace must not write that
of another. The key of a history is the model's name in namespace `default`, `NAMESPACE::MODEL` in
any other, and the name itself where it begins with `shared/`: then all who write it share one
history. A namespace holds neither `:` nor `/`, so no two models have one key.
"""

from typing import Final

DEFAULT: Final = "default"
SHARED: Final = "shared/"
APART: Final = "::"


def model_key(namespace: str, model: str) -> str:
    """The key of this model's history."""
    if model.startswith(SHARED) or (namespace == DEFAULT and APART not in model):
        return model
    return f"{namespace}{APART}{model}"


def model_of(key: str) -> str:
    """The model as its user writes it."""
    return key if key.startswith(SHARED) else _split_key(key)[1]


def pool_of(key: str) -> str:
    """What the keys of all histories begin with that may teach one another: "" for `default`."""
    if key.startswith(SHARED):
        return SHARED
    namespace, _ = _split_key(key)
    return "" if namespace == DEFAULT else f"{namespace}{APART}"


def _split_key(key: str) -> tuple[str, str]:
    namespace, apart, model = key.partition(APART)
    return (namespace, model) if apart else (DEFAULT, key)
