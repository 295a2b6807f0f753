# The service on PostgreSQL: small, not root, with a health check. compose.yaml uses it.
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir -c constraints.txt '.[postgres]'

FROM python:3.11-slim
COPY --from=build /venv /venv
RUN useradd --system --uid 10001 --no-create-home adats
USER adats
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 OPENBLAS_NUM_THREADS=1
EXPOSE 8000
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
ENTRYPOINT ["adats"]
CMD ["serve", "--db", "postgresql:///", "--host", "0.0.0.0", "--port", "8000"]
