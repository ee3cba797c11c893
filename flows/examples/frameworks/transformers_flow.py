"""A language model with the Trainer of Transformers. `# laxity` marks the lines that it needs.

python transformers_flow.py
"""

import torch
from transformers import (
    EarlyStoppingCallback,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

import laxity.transformers  # laxity
from laxity import Training, deadline_flow


def make_trainer(folder: str, patience: int) -> Trainer:
    torch.manual_seed(0)
    rows = (torch.randint(64, (256, 1)) + torch.arange(16)) % 64  # numbers that count up
    data = [{"input_ids": row, "labels": row} for row in rows]
    shape = {"vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2}
    arguments = TrainingArguments(
        folder,
        num_train_epochs=4,
        per_device_train_batch_size=8,
        eval_strategy="epoch",
        metric_for_best_model="eval_loss",
        logging_steps=8,
        save_strategy="no",
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
    )
    model = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=0, eos_token_id=0))
    stopping = EarlyStoppingCallback(
        patience, early_stopping_threshold=0.0 if patience > 1 else 9.0
    )
    return Trainer(
        model, arguments, train_dataset=data, eval_dataset=data[:64], callbacks=[stopping]
    )


@deadline_flow(deadline="20m", model="tiny-gpt2", epochs=16, epoch_estimate="2s")
def train(training: Training, patience: int = 9) -> dict[str, float]:
    trainer = make_trainer(str(training.folder), patience)
    laxity.transformers.train(trainer)  # laxity
    weights = sum(part.double().sum().item() for part in trainer.model.parameters())
    return {"steps": trainer.state.global_step, "weights": weights}


if __name__ == "__main__":
    print(train())
