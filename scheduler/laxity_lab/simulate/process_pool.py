"""Calls one after another or in processes side by side, which end at once when their parent does.

A terminal sends Ctrl-C to all of them. Each would end with a traceback of its own, or go on to the
end of its run; so they do not hear it, and their parent ends them.
"""

import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any, Final

LOOK_S: Final = 0.2


def run_calls(
    function: Callable[..., Any],
    calls: Sequence[tuple[Any, ...]],
    processes: int,
    *,
    begin: Callable[..., None] | None = None,
    given: tuple[Any, ...] = (),
    look: Callable[[], None] = lambda: None,
) -> Generator[tuple[int, Any], None, None]:
    """(place, result) of each call as soon as it is done; of one process, in this one and in order.

    `begin(*given)` comes first in each process; in this one `begin(*given, look)`. While others work
    this one calls `look` now and then.
    """
    workers = min(processes, len(calls))
    if workers <= 1:
        if begin is not None:
            begin(*given, look)
        yield from ((place, function(*call)) for place, call in enumerate(calls))
        return
    pool = ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=begin, initargs=given
    )
    with _submit(pool, function, calls) as futures:
        place_of, pending = {future: place for place, future in enumerate(futures)}, set(futures)
        while pending:
            over, pending = wait(pending, timeout=LOOK_S, return_when=FIRST_COMPLETED)
            yield from ((place_of[future], future.result()) for future in over)
            look()


@contextmanager
def _submit(
    pool: ProcessPoolExecutor, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]
) -> Iterator[list[Future[Any]]]:
    """The futures of all calls, in their order; what goes wrong meanwhile ends the processes."""
    others = active_children()
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
