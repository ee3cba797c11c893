"""A worker that its own code ends with exit 0 has not finished: only `worker` may complete a Job.

`sys.exit` raises and is seen where it comes out. `os._exit` ends the process at once, so while the
training function runs it goes through here. Child processes of the code end as they like: one that
was forked and leaves the function reports nothing, it is no worker.
"""

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def no_early_success(done: Callable[[], bool], fail: Callable[[], int]) -> Iterator[None]:
    """Until `done()`, `os._exit(0)` of this process calls `fail` and ends with the code of that."""
    leave, worker = os._exit, os.getpid()

    def leave_checked(code: int) -> None:
        if code == 0 and os.getpid() == worker and not done():
            code = fail()
        leave(code)

    os._exit = leave_checked  # type: ignore[assignment]
    try:
        yield
        if os.getpid() != worker:
            leave(0)
    except BaseException as error:
        if os.getpid() != worker:
            traceback.print_exception(error)
            leave(1)
        raise
    finally:
        os._exit = leave
