# The operator's image: Python, its locked dependencies and Trainyard. It runs without root and writes nothing.
#   docker build -t trainyard/operator:0.1.0 .
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md ./
COPY requirements requirements
COPY tools/image tools/image
COPY src src
RUN sh tools/image/assemble.sh /opt/trainyard

FROM python:3.13-slim
COPY --from=build /opt/trainyard /opt/trainyard
ENV PATH=/opt/trainyard/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/nonexistent
USER 65532:65532
ENTRYPOINT ["trainyard"]
CMD ["operator"]
