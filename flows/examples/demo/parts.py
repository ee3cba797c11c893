"""Who plays: the demo's jobs, each a call of one of its flows with another quality of service."""

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from laxity.api.job_view import Json
from laxity.flow.declaration import Declaration
from laxity.job.spec import job_name

FLOWS: Final = Path(__file__).resolve().parent
DIGITS: Final = "digits.py:train_digits"
DENOISE: Final = "denoise.py:train_denoiser"


@dataclass(frozen=True, slots=True)
class Part:
    """One job of the demo. `options` are those of `with_qos`, a deadline may come later."""

    name: str
    entry: str
    options: Mapping[str, Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The idempotency key: what makes name and id known before the flow has started."""
        return f"demo/{self.name}"

    @property
    def id(self) -> str:
        return f"default/{job_name(self.name, self.key)}"

    @property
    def epochs(self) -> int:
        return int(self.options["epochs"])

    def due(self, seconds: float) -> "Part":
        """The same with a deadline so many seconds after its submission."""
        return replace(self, options={**self.options, "deadline": f"{seconds:.1f}s"})

    def script(self) -> Path:
        return FLOWS / self.entry.partition(":")[0]

    def command(self) -> list[str]:
        """The flow as a user would run it."""
        options = {**self.options, "name": self.name, "idempotency_key": self.key}
        arguments = ["--options", json.dumps(options), "--parameters", json.dumps(self.parameters)]
        return [sys.executable, str(self.script()), *arguments]

    def manifest(self) -> Json:
        """The Job that the flow will submit, for questions about it."""
        declared = Declaration.of(self.name, self.options)
        entry = f"{self.script()}:{self.entry.partition(':')[2]}"
        spec = declared.spec(entry=entry, parameters=self.parameters, idempotency_key=self.key)
        return spec.to_manifest()


@dataclass(frozen=True, slots=True)
class Cast:
    """All jobs of the story, in the order in which they come."""

    probe: Part  # makes its model known
    overnight: Part  # best effort: makes room, resumes
    sweep: Part  # the same
    steady: Part  # promised, amended, grown for it
    moonshot: Part  # refused, and left at that
    rush: Part  # refused; its counter-offer is kept
    urgent: Part  # promised beside two others
    late: Part  # soft: never refused, told early


def cast_for(passes: int, epoch_s: float, servers_s: float) -> Cast:
    """The cast for a machine on which `passes` over the data make an epoch of `epoch_s`.

    The slots must be full until others need them, when flows have been started three times. So the best-effort
    jobs train the longer the slower the machine starts anything: its servers took `servers_s`.
    """
    more = math.ceil(servers_s / epoch_s)
    late = _denoise_part("weekend-art", 5, passes, epoch_s)
    guessed_s = 1.5 * epoch_s
    return Cast(
        probe=_digits_part("probe", 4, (1,), passes),
        overnight=_denoise_part("overnight", 20 + more, passes, guessed_s),
        sweep=_denoise_part("sweep", 18 + more, passes, guessed_s),
        steady=_digits_part("weekly-report", 40, (1, 2), passes),
        moonshot=_digits_part("moonshot", 200, (1, 2), passes),
        rush=_digits_part("rush", 8, (1,), passes),
        urgent=_digits_part("urgent", 6, (1,), passes),
        late=replace(late, options={**late.options, "service_class": "soft"}),
    )


def _digits_part(name: str, epochs: int, workers: tuple[int, ...], passes: int) -> Part:
    """A network that reads digits; its model is known once the probe has run."""
    options = {"model": "demo-digits", "epochs": epochs, "workers": list(workers)}
    return Part(name, DIGITS, {**options, "deadline": None}, {"passes": passes})


def _denoise_part(name: str, epochs: int, passes: int, epoch_s: float) -> Part:
    """A network that cleans digits; nobody has trained it before, its user guesses `epoch_s`."""
    options = {"model": "demo-denoiser", "epochs": epochs, "workers": [1]}
    guessed = {"epoch_estimate": f"{epoch_s:.1f}s"}
    return Part(name, DENOISE, {**options, **guessed}, {"passes": passes})
