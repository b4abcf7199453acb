# The service of `corag serve`, on a CPU:
#   docker build -t corag .
#   docker run -p 8384:8384 -e CORAG_API_KEY=... corag
# With an index: docker build --build-arg EXTRAS=models,serve,index ..., docker run -v ./my-index:/index ... corag --index /index
FROM python:3.12-slim AS build
ARG EXTRAS=models,serve
WORKDIR /src
COPY . .
# PyTorch without CUDA, which is ten times as large; the other packages from PyPI.
RUN python -m venv /venv \
    && TORCH="$(grep -m 1 '^torch==' constraints.txt)" \
    && /venv/bin/pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "$TORCH" \
    && /venv/bin/pip install --no-cache-dir --constraint constraints.txt ".[$EXTRAS]"

FROM python:3.12-slim
COPY --from=build /venv /venv
RUN useradd --create-home --uid 1000 corag
USER 1000
WORKDIR /home/corag
EXPOSE 8384
HEALTHCHECK --start-period=60s CMD ["/venv/bin/python", "-c", \
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8384/health')"]
ENTRYPOINT ["/venv/bin/corag", "serve", "--host", "0.0.0.0"]
