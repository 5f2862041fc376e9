# For CPUs:  docker build --tag=aninfonce . && docker run --rm --volume="$PWD/runs:/runs" aninfonce --workdir=/runs/one
# For GPUs:  docker build --build-arg=EXTRAS=gpu --tag=aninfonce . && docker run --rm --gpus=all aninfonce --help
FROM python:3.12-slim
ARG EXTRAS=
WORKDIR /aninfonce_jax
COPY . .
RUN pip install --no-cache-dir ".${EXTRAS:+[${EXTRAS}]}"
ENV PYTHONUNBUFFERED=1
WORKDIR /
ENTRYPOINT ["aninfonce"]
