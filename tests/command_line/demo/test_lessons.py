import subprocess
import sys

import numpy as np

from examples.demo.digits import (
    PIXELS,
    Classifier,
    Floats,
    load_digits,
    make_lesson,
    shift_images,
)


def some(rows: int = 600) -> Floats:
    return load_digits()[:rows]


def test_the_data_are_read_without_importing_scikit_learn() -> None:
    code = (
        "import sys; from examples.demo.digits import load_digits; rows = load_digits(); "
        "assert 'sklearn' not in sys.modules; print(rows.shape, rows[:, :64].max())"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert said.stdout == "(1797, 65) 1.0\n"


def test_no_image_is_trained_on_and_tested_on() -> None:
    rows = load_digits()
    images, unseen = make_lesson(rows)

    assert images.shape == (9 * (len(rows) - len(unseen)), PIXELS + 1)
    assert not {row.tobytes() for row in unseen} & {row.tobytes() for row in images}


def test_a_moved_image_keeps_its_label_and_loses_one_edge() -> None:
    image = np.zeros((1, PIXELS + 1))
    image[0, 7] = 1.0  # right end of the first line
    image[0, 0] = 0.5  # left end of it
    image[0, PIXELS] = 3.0

    moved = shift_images(image, 1, 0)

    assert moved[0, 1] == 0.5
    assert moved[0, :PIXELS].sum() == 0.5
    assert moved[0, PIXELS] == 3.0


def test_the_classifier_learns_to_read() -> None:
    rows = some(900)
    model = Classifier(32)

    losses = [model.train(rows[200:], passes=6, seed=epoch) for epoch in range(5)]

    assert losses[-1] < losses[0] / 2
    assert model.accuracy(rows[:200]) > 0.85


def test_the_same_seed_trains_the_same_model() -> None:
    first, second = Classifier(16), Classifier(16)

    for model in (first, second):
        model.train(some(200), passes=1, seed=3)

    assert np.array_equal(first.w1, second.w1)
