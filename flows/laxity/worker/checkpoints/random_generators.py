"""The random numbers of a training as a part of its state: Python's, NumPy's, PyTorch's, CUDA's.

A generator goes on where it was at the end of the last saved epoch, so that a resumed training draws
the numbers of an undisturbed one. All workers save what worker 0 had: each other one goes on with
numbers of its own, which follow from those and its rank.
"""

import random
import sys
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(slots=True)
class RandomGenerators:
    """The generators of this process, given to `restore`. Libraries that nobody imported are left out."""

    rank: int = 0
    _loaded: Json = field(default_factory=dict)

    def state_dict(self) -> Json:
        """Where the generators are now."""
        state: Json = {"python": random.getstate()}
        if (numpy := sys.modules.get("numpy")) is not None:
            state["numpy"] = numpy.random.get_state()
        if (torch := sys.modules.get("torch")) is not None:
            state["torch"] = torch.get_rng_state()
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                state["cuda"] = torch.cuda.get_rng_state_all()
        return state

    def load_state_dict(self, state: Json) -> None:
        """Put them back, at once and once more when the next epoch begins."""
        self._loaded = state
        self._apply(state)

    def begin_epoch(self) -> None:
        """What the function drew between its restoring and its first epoch changes nothing."""
        if self._loaded:
            self._apply(self._loaded)
            self._loaded = {}

    def _apply(self, state: Json) -> None:
        random.setstate(state["python"])
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy is not None and "numpy" in state:
            numpy.random.set_state(state["numpy"])
        if torch is not None and "torch" in state:
            torch.set_rng_state(state["torch"])
            here = torch.cuda.device_count() if "cuda" in state else 0
            for device, generator in enumerate(state.get("cuda", ())[:here]):
                torch.cuda.set_rng_state(generator, device)
        if self.rank:
            self._differ(random.getrandbits(32) + self.rank)

    @staticmethod
    def _differ(seed: int) -> None:
        random.seed(seed)
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(seed % 2**32)
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(seed)
