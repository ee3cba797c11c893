"""The instant that deadlines count by: this machine's clock, set right by that of an API server.

Jobs are created, started and ended by the API server's clock. A service whose own clock is apart from
it would refuse deadlines that lie ahead, and call promises broken that can be kept.
"""

import logging
import time
from typing import Final

LOG: Final = logging.getLogger(__name__)
TOLERATED_S: Final = 2.0  # the other clock is read in whole seconds, somewhere on the way
SLOW_S: Final = 2.0  # an answer that takes longer says too little


class ServiceClock:
    """`ahead_s` is by how much this machine's clock is ahead of the one that counts; 0: they agree."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def now(self) -> float:
        """POSIX seconds, by the clock that counts."""
        return time.time() - self.ahead_s

    def compare(self, told_at: float, sent_at: float, answered_at: float) -> None:
        """The other clock showed the whole second `told_at` between these instants of this machine's."""
        if answered_at - sent_at > SLOW_S:
            return
        ahead_s = (sent_at + answered_at) / 2.0 - (told_at + 0.5)
        least_s = TOLERATED_S / 2.0 if self.ahead_s else TOLERATED_S
        is_apart = abs(ahead_s) > least_s
        if is_apart != bool(self.ahead_s) or abs(ahead_s - self.ahead_s) > TOLERATED_S:
            self._set(ahead_s if is_apart else 0.0)

    @property
    def warning(self) -> str:
        """What is wrong with this machine's clock; "" if nothing is."""
        if not self.ahead_s:
            return ""
        way = "ahead of" if self.ahead_s > 0.0 else "behind"
        return (
            f"this machine's clock is {abs(self.ahead_s):.0f} s {way} the API server's: deadlines count "
            "by the API server's; set this machine's clock right"
        )

    def _set(self, ahead_s: float) -> None:
        was, self.ahead_s = self.ahead_s, ahead_s
        if ahead_s:
            LOG.warning("%s", self.warning)
        elif was:
            LOG.info("this machine's clock agrees with the API server's again")


CLOCK: Final = ServiceClock()
