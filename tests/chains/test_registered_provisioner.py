"""A trained provisioner in MLflow: registered with its errors, read back by the bench."""

import json
from pathlib import Path

import pytest

from laxity_profiler.registry.mlflow_registry import Registry
from laxity_profiler.registry.registered_files import read_address
from tests.chains.busy_log import DAY_S, as_swf
from tests.chains.test_provisioner import run_laxity, waves


@pytest.mark.slow
def test_a_registered_provisioner_has_its_errors_and_the_bench_reads_it(
    tmp_path: Path, mlflow_uri: str
) -> None:
    log, model = tmp_path / "waves.swf", tmp_path / "model.npz"
    log.write_text(as_swf(waves(), nodes=8))
    pair = ("--trace", str(log), "--limit", "24h", "--tracking-uri", mlflow_uri)
    train = (
        *("train", "provisioner", *pair, "--model", "boosting", "--out", str(model)),
        *("--starts", "48", "--until", str(60 * DAY_S), "--register", "queue"),
    )
    versions = [run_laxity(*train)[2] for _ in range(2)]
    assert all("registered as queue version 1, the champion" in text for text in versions)
    version = Registry(mlflow_uri).client.get_model_version_by_alias("queue", "champion")
    run = Registry(mlflow_uri).client.get_run(str(version.run_id))
    assert run.data.metrics["held_out/mean_absolute_error_h"] > 0
    assert (run.data.params["kind"], run.data.params["pair_nodes"]) == ("boosting", "1")
    bench = ("bench", "chains", *pair, "--from", str(65 * DAY_S), "--starts", "24", "--json")
    figures = [
        json.loads(run_laxity(*bench, "--model", address)[1])["boosting"]
        for address in (str(model), "models:/queue@champion", "models:/queue/1")
    ]
    assert figures[0] == figures[1] == figures[2]
    code, _, text = run_laxity(*bench, "--model", "models:/queue@best")
    assert (code, "best" in text) == (5, True)
    assert "Traceback" not in text


@pytest.mark.parametrize("address", ["models:/queue", "models:/@a", "models:/queue@", "queue@a"])
def test_an_address_that_names_no_version_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="models:/NAME@ALIAS"):
        read_address(address)
