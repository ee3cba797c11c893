"""Trees with xgboost. `# laxity` marks the lines that it needs.

python xgboost_flow.py
"""

import hashlib

import numpy as np
import xgboost

from laxity import Training, deadline_flow
from laxity.boosting import rounds  # laxity


@deadline_flow(deadline="20m", model="trees", epochs=10, epoch_estimate="1s")
def train(training: Training, patience: int = 99) -> dict[str, object]:
    features = np.random.default_rng(0).normal(size=(20_000, 20))
    data = xgboost.DMatrix(features, (features[:, 0] * features[:, 1] > 0).astype(int))
    params = {"objective": "binary:logistic", "nthread": 1}
    stopping = xgboost.callback.EarlyStopping(patience, min_delta=0.0 if patience > 1 else 9.0)
    boosting = rounds(training, every=10, callbacks=[stopping])  # laxity
    booster = xgboost.train(
        params,
        data,
        boosting.left,  # laxity
        evals=[(data, "train")],
        xgb_model=boosting.model,  # laxity
        callbacks=[boosting],  # laxity
        verbose_eval=False,
    )
    digest = hashlib.sha256(b"".join(text.encode() for text in booster.get_dump())).hexdigest()
    return {"steps": booster.num_boosted_rounds(), "weights": digest}


if __name__ == "__main__":
    print(train())
