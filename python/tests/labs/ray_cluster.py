"""Two nodes of Ray on this machine, until standard input ends; prints their address. For a network of its own."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ray.cluster_utils import Cluster

if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # Sockets' paths are short.
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as directory:
        # Ray writes the cluster's address into the folder `ray` of this one, which it does not make.
        os.environ["RAY_TMPDIR"] = directory
        (Path(directory) / "ray").mkdir()
        head = {"temp_dir": directory, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args={**head, "node_ip_address": "127.0.0.2"})
        try:
            cluster.add_node(node_ip_address="127.0.0.3")
            print(cluster.address, flush=True)
            sys.stdin.read()
        finally:
            cluster.shutdown()
