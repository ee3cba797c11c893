"""A language model trained with Transformers, as any such script is: nothing in it knows laxity.

    laxity run --deadline 10m -- python transformers_script.py --output_dir out
    laxity run --deadline 10m --resume-args "--resume_from_checkpoint out" -- python transformers_script.py --output_dir out

The Trainer reports its progress by itself. With `enable_jit_checkpoint` it saves at SIGTERM, at any
step. The model is tiny and random, so nothing is downloaded.
"""

import argparse
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint


class Counting:
    """Rows of numbers that count up from a random one."""

    def __init__(self, rows: int, length: int = 32, words: int = 64) -> None:
        first = torch.randint(words, (rows, 1), generator=torch.Generator().manual_seed(0))
        self.rows = (first + torch.arange(length)) % words

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--max_steps", type=int, default=400)
    parser.add_argument("--resume_from_checkpoint", metavar="FOLDER")
    options = parser.parse_args()
    set_seed(0)
    no_dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)  # as newer models
    shape = {"vocab_size": 64, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**shape, **no_dropout))
    arguments = TrainingArguments(
        options.output_dir,
        max_steps=options.max_steps,
        per_device_train_batch_size=8,
        logging_steps=10,
        save_strategy="no",
        enable_jit_checkpoint=True,
        use_cpu=not torch.cuda.is_available(),
        report_to="none",
    )
    trainer = Trainer(model, arguments, train_dataset=Counting(4_000))
    folder = options.resume_from_checkpoint
    last = get_last_checkpoint(folder) if folder and Path(folder).is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
