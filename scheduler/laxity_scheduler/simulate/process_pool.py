"""Processes that simulate side by side, and end at once when their parent is interrupted or fails.

A terminal sends Ctrl-C to all of them. Each would end with a traceback of its own, or go on to the
end of its run; so they do not hear it, and their parent ends them.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any


@contextmanager
def process_pool(
    processes: int,
    function: Callable[..., Any],
    calls: Sequence[tuple[Any, ...]],
    *,
    begin: Callable[..., None] | None = None,
    given: tuple[Any, ...] = (),
) -> Iterator[list[Future[Any]]]:
    """The futures of all calls, in their order. `begin(*given)` comes first in each process."""
    others = active_children()
    pool = ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=begin, initargs=given
    )
    with pool:
        try:
            with _unheard():
                futures = [pool.submit(function, *call) for call in calls]
            yield futures
        except BaseException:
            for process in active_children():
                if process not in others:
                    process.terminate()
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def _unheard() -> Iterator[None]:
    """What is started meanwhile ignores Ctrl-C. Only the main thread may say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
