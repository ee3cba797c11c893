"""The batch cluster as plainly as it can be written: one minute after the other."""

import math
from dataclasses import dataclass, field

from laxity_lab.batch_queue.queue_log import BatchJob


@dataclass
class Row:
    job: BatchJob
    submit: int
    number: int
    start: int | None = None

    @property
    def run(self) -> int:
        run_s = min(self.job.ended_at - self.job.started_at, self.job.time_limit_s)
        return max(1, math.ceil(run_s / 60))

    @property
    def limit(self) -> int:
        return math.ceil(self.job.time_limit_s / 60)


@dataclass
class PlainCluster:
    nodes: int
    rows: list[Row]
    running: list[Row] = field(default_factory=list)

    def starts(self, minutes: int) -> dict[str, int | None]:
        for now in range(minutes):
            self.running = [row for row in self.running if self.start_of(row) + row.run > now]
            waiting = [row for row in self.rows if row.submit <= now and row.start is None]
            waiting.sort(key=lambda row: (-self.priority(row, now), row.submit, row.number))
            self.plan(waiting, now) if now % 10 == 0 else self.take_heads(waiting, now)
        return {row.job.id: row.start for row in self.rows}

    def start_of(self, row: Row) -> int:
        assert row.start is not None
        return row.start

    def priority(self, row: Row, now: int) -> float:
        age = 7_000 * (now - row.submit) / (7 * 1_440)
        return round(100 * row.job.nodes / self.nodes + age, 6)

    def take_heads(self, waiting: list[Row], now: int) -> None:
        for row in waiting:
            if row.job.nodes > self.nodes - sum(other.job.nodes for other in self.running):
                return
            self.start(row, now)

    def plan(self, waiting: list[Row], now: int) -> None:
        free = [self.nodes] * 288
        for row in self.running:
            for slot in range(288):
                if now + 10 * slot < self.start_of(row) + row.limit:
                    free[slot] -= row.job.nodes
        for row in waiting:
            length = math.ceil(row.limit / 10)
            for first in range(288):
                place = range(first, min(288, first + length))
                if all(free[slot] >= row.job.nodes for slot in place):
                    for slot in place:
                        free[slot] -= row.job.nodes
                    if first == 0:
                        self.start(row, now)
                    break

    def start(self, row: Row, now: int) -> None:
        row.start = now
        self.running.append(row)
