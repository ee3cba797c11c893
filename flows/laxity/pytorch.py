"""PyTorch's part, for those who have it: DDP that follows the job's width, and an even sampler.

Models, optimisers and generators need nothing from here: `training.restore(model, optimizer)`
keeps their state, and `training.average(model)` works on one that is not distributed. DDP instead
averages gradients at each step; its process group is made anew whenever the workers change.
"""

import os
from collections.abc import Iterator, Sized
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from laxity.worker.training import Training, TrainingError, run_of


class Distributed:
    """A module on all workers: call it like the module; `module` is the plain one, for `restore`.

    The backend is NCCL where the module lies on a GPU, gloo elsewhere. Workers find each other by a
    file in the job's folder, so no port is needed.
    """

    def __init__(self, training: Training, module: torch.nn.Module, **ddp_options: Any) -> None:
        self.module = module
        self._training = training
        self._ddp_options = ddp_options
        self._current: torch.nn.Module = module
        run_of(training).when_formed(self._form_group)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self._current(*inputs, **named)

    def _form_group(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
        self._current = self.module
        training = self._training
        if training.workers == 1:
            return
        if training.folder is None:
            raise TrainingError("DDP needs the folder that the job's workers share")
        path = training.folder / f".ddp-{run_of(training).formation}"
        on_gpu = any(parameter.is_cuda for parameter in self.module.parameters())
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=dist.FileStore(str(path), training.workers),
            rank=training.rank,
            world_size=training.workers,
        )
        self._current = DistributedDataParallel(self.module, **self._ddp_options)
        if training.rank == 0:
            self._forget_others(path.name)

    def _forget_others(self, current: str) -> None:
        """Remove the files of earlier groups."""
        folder = self._training.folder
        for path in folder.glob(".ddp-*") if folder is not None else ():
            if path.name != current:
                with suppress(OSError):
                    os.unlink(path)  # noqa: PTH108 - gone already is well


class EvenSampler:
    """This worker's items of a data set, shuffled anew each epoch, as many on every worker.

    DDP waits for all workers at each step, so the last items that cannot be shared evenly are left
    out; another shuffle brings them in. A resumed epoch has the same order again.
    """

    def __init__(self, training: Training, items: Sized, *, seed: int = 0) -> None:
        self._training = training
        self._count = len(items)
        self._seed = seed

    def __len__(self) -> int:
        return self._count // self._training.workers

    def __iter__(self) -> Iterator[int]:
        training = self._training
        generator = torch.Generator().manual_seed(self._seed + training.epoch)
        order = torch.randperm(self._count, generator=generator).tolist()
        return iter(order[training.rank :: training.workers][: len(self)])
