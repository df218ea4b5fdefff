# A server for one language pair: docs/serving.md says how it is built and run.
FROM python:3.12-slim
# PyTorch's site has the options for a build without CUDA, which is much smaller.
ARG TORCH="torch"
RUN pip install --no-cache-dir $TORCH
COPY pyproject.toml README.md LICENSE hf_capsule_mt_command.py /package/
COPY hf_capsule_mt /package/hf_capsule_mt
RUN pip install --no-cache-dir "/package[serve]" && rm -r /package
COPY checkpoints/tatoeba-en-de-transformer /models/en-de
RUN useradd --system serve
USER serve
ENV HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
EXPOSE 5000
ENTRYPOINT ["hf-capsule-mt", "serve", "--models", "en-de=/models/en-de", "--host", "0.0.0.0"]
CMD ["--api_keys", "/keys.txt"]
