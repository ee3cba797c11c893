"""Trees with LightGBM. `# laxity` marks the lines that it needs.

python lightgbm_flow.py
"""

import lightgbm
import numpy as np

from laxity import Training, deadline_flow
from laxity.boosting import rounds  # laxity


@deadline_flow(deadline="20m", model="light-trees", epochs=10, epoch_estimate="1s")
def train(training: Training, patience: int = 99) -> dict[str, object]:
    features = np.random.default_rng(0).normal(size=(20_000, 20))
    data = lightgbm.Dataset(features, (features[:, 0] * features[:, 1] > 0).astype(int))
    params = {"objective": "binary", "num_threads": 1, "verbose": -1, "deterministic": True}
    stopping = lightgbm.early_stopping(patience, min_delta=0.0 if patience > 1 else 9.0)
    boosting = rounds(training, every=10, callbacks=[stopping])  # laxity
    booster = lightgbm.train(
        params,
        data,
        boosting.left,  # laxity
        valid_sets=[data.create_valid(features[:5_000], data.label[:5_000])],
        init_model=boosting.model,  # laxity
        callbacks=[boosting],  # laxity
    )
    return {"steps": booster.num_trees(), "weights": float(booster.predict(features).sum())}


if __name__ == "__main__":
    print(train())
