//! The page of each finding code, from `docs/findings/`.

use busbw_model::Code;

/// What a code means, how NCCL shows it, how to confirm it and how to fix it, as Markdown.
///
/// ```
/// let page = busbw_diagnose::page(busbw_model::Code::GdrDisabled);
/// assert!(page.starts_with("# gdr.disabled") && page.contains("nvidia-peermem"));
/// ```
pub fn page(code: Code) -> &'static str {
    macro_rules! page {
        ($name:literal) => {
            include_str!(concat!("../../../docs/findings/", $name, ".md"))
        };
    }
    match code {
        Code::NetSocketFallback => page!("net.socket-fallback"),
        Code::NetWrongInterface => page!("net.wrong-interface"),
        Code::NetUnreachable => page!("net.unreachable"),
        Code::NetPlugin => page!("net.plugin"),
        Code::GdrDisabled => page!("gdr.disabled"),
        Code::PcieAcs => page!("pcie.acs"),
        Code::NicFar => page!("nic.far"),
        Code::NicUnused => page!("nic.unused"),
        Code::PcieDegraded => page!("pcie.degraded"),
        Code::TopoVirtualized => page!("topo.virtualized"),
        Code::P2pDisabled => page!("p2p.disabled"),
        Code::NvlinkFabric => page!("nvlink.fabric"),
        Code::FabricCongestion => page!("fabric.congestion"),
        Code::RoceConfig => page!("roce.config"),
        Code::IbTransportError => page!("ib.transport-error"),
        Code::LimitsMemlock => page!("limits.memlock"),
        Code::LimitsShm => page!("limits.shm"),
        Code::LimitsFiles => page!("limits.files"),
        Code::EnvOverride => page!("env.override"),
        Code::ChannelsTooFew => page!("channels.too-few"),
        Code::VersionMismatch => page!("version.mismatch"),
        Code::GpuDuplicate => page!("gpu.duplicate"),
        Code::GpuError => page!("gpu.error"),
        Code::HangMismatch => page!("hang.mismatch"),
        Code::RankFailed => page!("rank.failed"),
        Code::PeerDied => page!("peer.died"),
        Code::MpiLaunch => page!("mpi.launch"),
        Code::NicRate => page!("nic.rate"),
        Code::StragglerNode => page!("straggler.node"),
        Code::SocketTuning => page!("socket.tuning"),
        Code::DataCorruption => page!("data.corruption"),
        Code::OkAsExpected => page!("ok.as-expected"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_its_parts() {
        const PARTS: [&str; 4] = ["## How NCCL shows it", "## How to confirm", "## How to fix", "## Sources"];
        for (code, name, _) in Code::ALL {
            let page = page(code);
            assert!(page.starts_with(&format!("# {name}: ")), "{name}");
            assert!(PARTS.iter().all(|part| page.contains(part)), "{name}");
        }
    }
}
