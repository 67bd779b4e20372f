# An image with busbw, Open MPI, an SSH server and perftest, which examples/kubernetes and other container platforms take:
#
#   make packages && docker build -t registry.example.com/busbw:0.1.0 .
#   docker build --build-arg BASE=nvidia/cuda:12.9.1-runtime-ubuntu24.04 -t … .     with CUDA and NCCL, for --backend nccl
#
# BASE is any image of Debian 12 or Ubuntu 22.04 and later: what your jobs run in is best.
ARG BASE=debian:12-slim
FROM ${BASE}

COPY target/packages/busbw_*.deb /tmp/busbw/
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        openmpi-bin openssh-client openssh-server perftest ethtool iproute2 pciutils /tmp/busbw/*.deb \
    && rm -rf /var/lib/apt/lists/* /tmp/busbw \
    && mkdir -p /run/sshd \
    # The MPI operator mounts keys as files of a secret, and workers are new hosts each time.
    && printf 'StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n' >/etc/ssh/ssh_config.d/busbw.conf \
    && printf 'StrictModes no\n' >/etc/ssh/sshd_config.d/busbw.conf

# A container's user is root, whom Open MPI refuses otherwise.
ENV OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
CMD ["busbw", "check"]
