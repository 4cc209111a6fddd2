# Stands for python:3.13-slim (SUITE trixie) and python:3.11-slim (bookworm) where no registry is asked: Debian's
# Python and pip, at the paths at which a Dockerfile finds those of the public images. See docs/container-images.md.
# It has no module but pip: pip replaces none that Debian's packages have installed.
ARG SUITE
FROM debian:${SUITE}-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates netbase python3 python3-pip python3-venv tzdata \
 && rm -rf /var/lib/apt/lists/* /usr/lib/python3*/EXTERNALLY-MANAGED \
 && find /usr/lib/python3/dist-packages -mindepth 1 -maxdepth 1 ! -name 'pip*' -exec rm -rf {} + \
 && for name in python python3; do ln -s /usr/bin/python3 /usr/local/bin/$name; done \
 && for name in pip pip3; do ln -s /usr/bin/pip3 /usr/local/bin/$name; done
ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
CMD ["python3"]
