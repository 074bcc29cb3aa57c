# closeby as an image: Python, what closeby needs to run, and nothing else; without the laboratory, without root,
# on a read-only file system.
#
#     docker build --build-arg COMMIT=$(git rev-parse --short=12 HEAD) --tag registry.example.com/closeby:0.1.0 .

ARG PYTHON=python:3.13-slim-bookworm

FROM ${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build

# What changes seldom comes first: a change of closeby alone installs no package anew.
COPY requirements.lock pyproject.toml ./
COPY deploy/image/locked.py deploy/image/
RUN python deploy/image/locked.py closeby > closeby.lock \
 && python deploy/image/locked.py hatchling > build.lock \
 && python -m venv --without-pip /opt/closeby \
 && python -m pip --python /opt/closeby/bin/python install --require-hashes --only-binary :all: --requirement closeby.lock \
 && python -m venv /build/tools \
 && /build/tools/bin/python -m pip install --require-hashes --requirement build.lock

COPY README.md LICENSE ./
COPY deploy/image/commit.py deploy/image/
COPY src src
# What `closeby --version` shows beside the version; the image has no git.
ARG COMMIT=
RUN CLOSEBY_COMMIT=${COMMIT} /build/tools/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir wheels . \
 && python -m pip --python /opt/closeby/bin/python install --no-deps --no-index wheels/closeby-*.whl \
 && rm -r /opt/closeby/lib/python*/site-packages/closeby/lab \
 && /opt/closeby/bin/python -m compileall -q -f --invalidation-mode unchecked-hash /opt/closeby/lib

FROM ${PYTHON}
LABEL org.opencontainers.image.title=closeby \
      org.opencontainers.image.description="A network-topology-aware scheduler for Kubernetes" \
      org.opencontainers.image.licenses=Apache-2.0
COPY --from=build /opt/closeby /opt/closeby
# Everything is compiled: nothing is written when it runs, and lines of the log come at once.
ENV PATH=/opt/closeby/bin:${PATH} PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/nonexistent
WORKDIR /
USER 65532:65532
ENTRYPOINT ["closeby"]
CMD ["--help"]
