"""The clocks of this process, moved by a test: time that passes, and a system clock that is set."""

import time

import pytest


class Clocks:
    """From its making on, both clocks run ahead of the real ones by what a test has added."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._passed_s = self._set_by_s = 0.0
        system, steady = time.time, time.monotonic
        monkeypatch.setattr(time, "time", lambda: system() + self._passed_s + self._set_by_s)
        monkeypatch.setattr(time, "monotonic", lambda: steady() + self._passed_s)

    def pass_time(self, seconds: float) -> None:
        self._passed_s += seconds

    def set_system_clock(self, by_s: float) -> None:
        """As an administrator, NTP or a laptop that wakes up does."""
        self._set_by_s += by_s
