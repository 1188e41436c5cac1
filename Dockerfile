# The broker and controller image. Spark is not in it: the validator runs where its ledgers are.
FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/holdfast
# dependencies first, so that a change of our own code does not install them again
COPY constraints.txt pyproject.toml ./
RUN /opt/holdfast/bin/python -c "import tomllib; print('\n'.join(tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies']))" > requirements.txt \
    && /opt/holdfast/bin/pip install --no-cache-dir -r requirements.txt -c constraints.txt
COPY . .
RUN /opt/holdfast/bin/pip install --no-cache-dir --no-deps .

FROM python:3.11-slim
# the data folder exists in the image and is ours, so that a new named volume is ours too
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin holdfast \
    && mkdir -p /var/lib/holdfast && chown holdfast:holdfast /var/lib/holdfast
COPY --from=build /opt/holdfast /opt/holdfast
COPY docker/*.properties /etc/holdfast/
ENV PATH=/opt/holdfast/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PYTHONSAFEPATH=1
USER holdfast
WORKDIR /var/lib/holdfast
ENTRYPOINT ["holdfast"]
CMD ["--help"]
