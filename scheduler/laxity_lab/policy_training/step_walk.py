"""GPUs dealt out one step at a time by somebody else than the policy's loop: who may step next."""

from laxity_scheduler.learned.job_features import JobSteps


class StepWalk:
    """From some widths on, the next step of each job that has one; `widths` change as it goes.

    A step that does not fit once is gone: free GPUs only become fewer.
    """

    def __init__(self, steps: JobSteps, widths: list[int], free_gpus: int) -> None:
        self.steps, self.widths, self.free_gpus = steps, widths, free_gpus
        self._rows = [
            begin
            for begin, end, width in zip(steps.first, steps.first[1:], widths, strict=False)
            if width and begin < end
        ]

    def fitting(self) -> list[int]:
        """Rows of the steps, one for each job whose next step fits."""
        more = self.steps.more_gpus
        self._rows = [row for row in self._rows if more[row] <= self.free_gpus]
        return list(self._rows)

    def take(self, row: int) -> int:
        """Take the step of this row; the width that its job has now."""
        steps = self.steps
        number, width = int(steps.job[row]), int(steps.after[row])
        self.widths[number] = width
        self.free_gpus -= int(steps.more_gpus[row])
        self._rows.remove(row)
        if row + 1 < steps.first[number + 1]:
            self._rows.append(row + 1)
        return width
