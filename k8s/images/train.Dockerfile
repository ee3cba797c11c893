# What a worker needs: laxity's runtime, MLflow's client and NumPy. Put your training on top:
#
#   docker build -f k8s/images/train.Dockerfile -t laxity-train:latest .
#   FROM laxity-train:latest
#   RUN pip install scikit-learn
#   COPY train.py /train/
#
# For a Prefect work pool, where the flow run itself is the Job, add Prefect:
#   docker build -f k8s/images/train.Dockerfile --build-arg EXTRAS=[flow] -t laxity-train:flow .
ARG PYTHON=3.11.14-slim-bookworm

FROM python:${PYTHON} AS build
ARG EXTRAS=""
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY flows/laxity flows/laxity
COPY profiler/laxity_profiler profiler/laxity_profiler
COPY scheduler/laxity_scheduler scheduler/laxity_scheduler
COPY scheduler/laxity_lab scheduler/laxity_lab
COPY k8s/laxity_k8s k8s/laxity_k8s
RUN python -m venv /opt/laxity
RUN /opt/laxity/bin/pip install --no-cache-dir --constraint constraints.txt .${EXTRAS}

FROM python:${PYTHON}
COPY --from=build --chown=10001:10001 /opt/laxity /opt/laxity
RUN useradd --uid 10001 --create-home --home-dir /train laxity
ENV PATH=/opt/laxity/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    MLFLOW_DISABLE_TELEMETRY=true
USER 10001:10001
WORKDIR /train
CMD ["python", "-m", "laxity.worker"]
