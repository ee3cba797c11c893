"""Two scheduled deployments, served from this folder: `python -m vision.deploy`."""

from datetime import timedelta

from prefect import serve

from .train import train_vision

if __name__ == "__main__":
    serve(
        train_vision.to_deployment("nightly", cron="0 2 * * *", parameters={"deadline": "4h"}),
        train_vision.to_deployment(
            "large", interval=timedelta(hours=6), parameters={"model": "large"}
        ),
    )
