"""How far a simulation has come, told on stderr; standard output has the figures alone.

On a terminal one line is rewritten; elsewhere there is a line now and then.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TextIO

from laxity.durations import format_duration
from laxity_lab.simulate.report import Figures

TERMINAL_S: Final = 0.2
LINES_S: Final = 10.0
BAR_CELLS: Final = 12
CLEAR: Final = "\r\x1b[K"


class ProgressBar:
    """Says how many of `many` runs are done and how many jobs have ended."""

    def __init__(
        self,
        many: int,
        *,
        quiet: bool = False,
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`quiet`: no lines, only the one that a terminal loses again."""
        self.many, self.runs = many, 0
        self._quiet = quiet
        self._out, self._clock = sys.stderr if out is None else out, clock
        self._terminal = self._out.isatty() and os.environ.get("TERM") != "dumb"
        self._began_at = clock()
        self._said_at = self._began_at
        self._stands = False

    def count_ended(self, ended: int, jobs: int) -> None:
        """So many jobs have ended in all runs; one run has `jobs`."""
        now = self._clock()
        every_s = TERMINAL_S if self._terminal else LINES_S
        if jobs and now - self._said_at >= every_s:
            self._said_at = now
            self._say(self._text(ended, jobs, now - self._began_at), ended / (jobs * self.many))

    def finish_run(self, figures: Figures) -> None:
        """One run more is done."""
        self.runs += 1
        if not self._quiet and self.many > 1:
            self.clear()
            line = f"[{self.runs}/{self.many}] {figures['policy']} {figures['gpus']} GPUs"
            print(line, file=self._out, flush=True)

    def clear(self) -> None:
        """Leave no half line behind."""
        if self._stands:
            self._out.write(CLEAR)
            self._out.flush()
        self._stands = False

    def _text(self, ended: int, jobs: int, took_s: float) -> str:
        runs = "" if self.many < 2 else f"{self.runs} of {self.many} runs done, "
        took = format_duration(timedelta(seconds=int(took_s)))
        left_s = took_s * (jobs * self.many - ended) / ended if ended else 0.0
        left = f", about {format_duration(timedelta(seconds=int(left_s)))} left" if left_s else ""
        return f"{runs}{ended:,} of {jobs * self.many:,} jobs ended after {took}{left}"

    def _say(self, text: str, share: float) -> None:
        if not self._terminal:
            if not self._quiet:
                print(text, file=self._out, flush=True)
            return
        full = round(BAR_CELLS * share)
        text = f"{'█' * full}{'░' * (BAR_CELLS - full)} {text}"
        self._out.write(f"{CLEAR}{text[: shutil.get_terminal_size().columns - 1]}")
        self._out.flush()
        self._stands = True
