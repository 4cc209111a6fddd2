# The operator's image: Python, its locked dependencies and Trainyard; no shell tools are needed, no root, nothing is written.
#   docker build -t trainyard/operator:0.1.0 .
FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements/build.lock requirements/runtime.lock requirements/
RUN python -m venv /opt/trainyard \
 && /opt/trainyard/bin/python -m pip install --no-cache-dir --require-hashes -r requirements/runtime.lock \
 && python -m pip install --no-cache-dir --require-hashes -r requirements/build.lock
COPY pyproject.toml README.md ./
COPY src src
RUN python -m pip wheel --no-cache-dir --no-deps --no-build-isolation -w dist . \
 && /opt/trainyard/bin/python -m pip install --no-cache-dir --no-deps --no-index dist/*.whl \
 && /opt/trainyard/bin/python -m compileall -q /opt/trainyard/lib

FROM python:3.13-slim
COPY --from=build /opt/trainyard /opt/trainyard
ENV PATH=/opt/trainyard/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/nonexistent
USER 65532:65532
ENTRYPOINT ["trainyard"]
CMD ["operator"]
