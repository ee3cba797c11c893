# The service.  docker build -f k8s/images/service.Dockerfile -t laxity:latest .
#
# --build-arg EXTRAS=service,compiled,torch makes an image that also trains the learned policy (manifests/learning).
# What is installed are the exact versions of constraints.txt. The image runs as nobody in particular
# (any user id does), and writes to LAXITY_HOME and /tmp only.
ARG PYTHON=3.11.14-slim-bookworm

FROM python:${PYTHON} AS build
ARG EXTRAS=service,kubernetes,compiled
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY flows/laxity flows/laxity
COPY profiler/laxity_profiler profiler/laxity_profiler
COPY scheduler/laxity_scheduler scheduler/laxity_scheduler
COPY scheduler/laxity_lab scheduler/laxity_lab
COPY k8s/laxity_k8s k8s/laxity_k8s
RUN python -m venv /opt/laxity
RUN /opt/laxity/bin/pip install --no-cache-dir --constraint constraints.txt .[${EXTRAS}]
# Machine code for any processor of this architecture, so that no service compiles as it decides. It
# is used as long as its pages are as old as they were, and images keep whole seconds.
RUN cd /opt/laxity/lib/python*/site-packages && \
    find laxity_scheduler -name '*.py' -exec touch -d 2026-01-01T00:00:00Z {} + && \
    /opt/laxity/bin/python -m compileall -q laxity_scheduler && \
    NUMBA_CACHE_DIR=/opt/laxity/numba NUMBA_CPU_NAME=generic \
    /opt/laxity/bin/python -m laxity_lab.warm

FROM python:${PYTHON}
COPY --from=build /opt/laxity /opt/laxity
RUN useradd --uid 10001 --create-home --home-dir /var/lib/laxity laxity
ENV PATH=/opt/laxity/bin:$PATH \
    LAXITY_HOME=/var/lib/laxity \
    NUMBA_CACHE_DIR=/opt/laxity/numba \
    NUMBA_CPU_NAME=generic \
    LAXITY_LOG_FORMAT=json \
    MLFLOW_CONFIGURE_LOGGING=false \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    MLFLOW_DISABLE_TELEMETRY=true
USER 10001:10001
WORKDIR /var/lib/laxity
EXPOSE 8642
ENTRYPOINT ["laxity"]
CMD ["serve", "--world", "kubernetes", "--host", "0.0.0.0"]
