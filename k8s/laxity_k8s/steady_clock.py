"""Whether the system clock can be believed where what is old is removed for good.

A clock that jumps ahead by a week makes everything that ended look a week old. The kernel's clock
since boot does not jump and counts suspended time, so the two move apart only where one was set.
"""

import logging
import time
from typing import Final

LOG: Final = logging.getLogger(__name__)
MOST_APART_S: Final = 86_400.0


def _boot_at() -> float:
    """When this machine started, by the system clock of now."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


_FIRST_BOOT_AT: Final = _boot_at()


def is_clock_steady() -> bool:
    """Whether the system clock was set by less than a day since this process began."""
    jump_s = _boot_at() - _FIRST_BOOT_AT
    if abs(jump_s) < MOST_APART_S:
        return True
    LOG.warning(
        "the clock was set by %+.1f days: finished Jobs are kept until the service restarts",
        jump_s / 86_400.0,
    )
    return False
