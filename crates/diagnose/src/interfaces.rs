//! Interfaces that lead to no other node, by their names.

const INNER: [&str; 12] =
    ["docker", "br-", "virbr", "veth", "cni", "flannel", "cali", "lxc", "lxdbr", "podman", "vmnet", "cilium"];

/// Whether an interface joins containers or virtual machines of one host.
pub(crate) fn is_inner(name: &str) -> bool {
    INNER.iter().any(|start| name.starts_with(start))
}
