"""Something to do when the training code imports a library, without importing it for those who do not."""

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from laxity.stderr import say

Call = Callable[[ModuleType], object]


def when_imported(name: str, call: Call, *, before: Callable[[], object] | None = None) -> None:
    """Call this with the module, once: now if it is there, else right after its first import.

    `before` is called when the import begins, for what the library reads as it is imported. Both
    run in the importing thread. What they raise is said and passed over: the import succeeds.
    """
    if name in sys.modules:
        call_safely(name, lambda: call(sys.modules[name]))
    else:
        sys.meta_path.insert(0, _Watch(name, call, before))


class _Watch(MetaPathFinder):
    """Finds one module by way of the other finders, and has something done after its execution.

    It stays until the module is executed: libraries also look with `find_spec` whether it is there.
    """

    def __init__(self, name: str, call: Call, before: Callable[[], object] | None) -> None:
        self._name, self._call, self._before = name, call, before
        self._looking = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name or getattr(self._looking, "now", False):
            return None
        self._looking.now = True
        try:
            spec = find_spec(name)
        finally:
            self._looking.now = False
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def execute_and_call(module: ModuleType) -> None:
                is_first = self in sys.meta_path
                if is_first:
                    sys.meta_path.remove(self)
                if is_first and self._before is not None:
                    call_safely(name, self._before)
                execute(module)
                if is_first:
                    call_safely(name, lambda: self._call(module))

            loader.exec_module = execute_and_call
        return spec


def call_safely(name: str, call: Callable[[], object]) -> None:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - a habit is missing then, the training goes on
        say(f"{name}: {type(error).__name__}: {str(error)[:300]}")
