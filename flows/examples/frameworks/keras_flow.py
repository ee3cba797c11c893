"""A net with Keras. `# laxity` marks the lines that it needs.

KERAS_BACKEND=torch python keras_flow.py
"""

import keras
import numpy as np

from laxity import Training, deadline_flow
from laxity.keras import Deadline  # laxity


@deadline_flow(deadline="20m", model="tiny-keras", epochs=8, epoch_estimate="2s")
def train(training: Training, patience: int = 9) -> dict[str, float]:
    keras.utils.set_random_seed(0)
    rows = np.random.default_rng(0).normal(size=(512, 8)).astype("float32")
    model = keras.Sequential([keras.layers.Dense(32, "relu"), keras.layers.Dropout(0.2)])
    model.add(keras.layers.Dense(1))
    model.compile("adam", "mse")
    stopping = keras.callbacks.EarlyStopping(
        "loss", min_delta=0.0 if patience > 1 else 9.0, patience=patience
    )
    model.fit(
        rows,
        rows.sum(axis=1),
        epochs=8,
        batch_size=8,
        callbacks=[stopping, Deadline(training)],  # laxity
        initial_epoch=training.epoch,  # laxity
        verbose=0,
    )
    weights = sum(float(part.sum(dtype="float64")) for part in model.get_weights())
    return {"steps": int(model.optimizer.iterations.numpy()), "weights": weights}


if __name__ == "__main__":
    print(train())
