//! The constants of the time model: `constants.toml`, which names the source of each.

use serde::Deserialize;
use std::sync::OnceLock;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constants {
    pub(crate) nccl: Nccl,
    pub(crate) measured: Measured,
    pub(crate) band: Band,
}

impl Constants {
    /// Reads constants in the form of `constants.toml`: for fitting them anew.
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// The text of the constants that busbw is built with.
    pub fn text() -> &'static str {
        include_str!("constants.toml")
    }

    /// The constants that busbw is built with.
    ///
    /// # Panics
    /// Never, as long as the tests pass: one of them parses the text.
    pub fn built_in() -> &'static Constants {
        static BUILT_IN: OnceLock<Constants> = OnceLock::new();
        BUILT_IN.get_or_init(|| match Constants::parse(Constants::text()) {
            Ok(constants) => constants,
            Err(error) => unreachable!("constants.toml is parsed by a test: {error}"),
        })
    }
}

/// A figure per protocol: LL, LL128, Simple.
pub(crate) type PerProtocol = [f64; 3];
/// A figure for one node, two, and more.
pub(crate) type PerNodes = [f64; 3];

/// What NCCL's tuning assumes. Times in us, bandwidths in GB/s.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nccl {
    pub base_tree: PerProtocol,
    pub base_ring: PerProtocol,
    pub nvlink_tree: PerProtocol,
    pub nvlink_ring: PerProtocol,
    pub pcie_tree: PerProtocol,
    pub pcie_ring: PerProtocol,
    pub network_tree: PerProtocol,
    pub network_ring: PerProtocol,
    pub nvls: f64,
    pub nvls_network: f64,
    pub nvls_tree: f64,
    pub nvls_tree_network: f64,
    pub collnet_direct: f64,
    pub collnet_direct_network: f64,
    pub pat_base: f64,
    pub pat_network: f64,
    pub plugin_efa: f64,
    pub plugin_efa_v3: f64,
    pub tree_ll: Vec<f64>,
    pub tree_ll128: Vec<f64>,
    pub tree_simple: Vec<f64>,
    pub ring_ll128: f64,
    pub tree_ll128_share: f64,
    pub tree_share: f64,
    pub simple_tree_share: f64,
    pub ll_max_other: [f64; 2],
    pub ll_max_amd: [f64; 2],
    pub generation: Generations,
}

/// NCCL's constants by generation. Older and consumer GPUs count as the one that NCCL's arrays put them with.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Generations {
    pub volta: PerGeneration,
    pub ampere: PerGeneration,
    pub hopper: PerGeneration,
    pub blackwell: PerGeneration,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PerGeneration {
    /// What NCCL assumes of a link that is sold as `sold_nvlink`.
    pub nvlink: f64,
    pub sold_nvlink: f64,
    pub ll_max: f64,
    /// Channels of the host that `ll_max` was taken from.
    pub ll_channels: f64,
    pub ring_ll128_cap: PerNodes,
    pub tree_ll128_cap: PerNodes,
    pub tree_cap: PerNodes,
    pub nvls_tree_cap: PerNodes,
    pub nvls_efficiency: f64,
    /// Speeds per channel that the graph search tries, on one node and with a network.
    pub steps: Vec<f64>,
    pub network_steps: Vec<f64>,
}

/// A constant fitted on measurements.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fitted {
    pub value: f64,
    /// Where the fit began.
    #[allow(dead_code, reason = "read by whoever fits, kept beside the value it explains")]
    pub prior: f64,
    /// How far the value may move from the prior: one standard deviation of its logarithm.
    #[allow(dead_code, reason = "as prior")]
    pub spread: f64,
}

/// What nine of ten measured times lie between, by size.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Band {
    pub small: Share,
    pub middle: Share,
    pub large: ByKind,
}

/// By what carries the data: links between GPUs alone, NICs that reach GPUs, or the host's memory.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ByKind {
    pub inside: Share,
    pub rdma: Share,
    pub copies: Share,
}

/// Measured times as shares of predicted ones.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Share {
    pub fastest: f64,
    pub slowest: f64,
}

macro_rules! measured {
    ($($name:ident)*) => {
        /// What published measurements show; see `constants.toml` for meaning and unit of each.
        #[derive(Debug, Clone, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Measured { $(pub $name: Fitted,)* }
    };
}

measured! {
    start_ll start_ll128 start_simple launch
    tree_nvlink_ll tree_nvlink_ll128 tree_nvlink_simple ring_nvlink_ll ring_nvlink_ll128 ring_nvlink_simple direct_nvlink
    pcie_ll pcie_ll128 pcie_simple host_memory_ll host_memory_simple
    tree_network_ll tree_network_ll128 tree_network_simple ring_network_ll ring_network_ll128 ring_network_simple
    nvls nvls_tree_network switched_network
    infiniband roce efa efa_v3 slingshot tcpx tcpxo tcp
    exchange exchange_per_rank ramp ramp_exponent
    infiniband_payload roce_payload efa_payload slingshot_payload tcpx_payload tcpxo_payload tcp_payload
    sockets_host staged far_nic
    xgmi volta_nvlink ampere_nvlink hopper_nvlink blackwell_nvlink pcie host_memory host_memory_shared
    hopper_nvls blackwell_nvls tree_nvlink tree_network ll ll128 channel_ll rack_ring point_to_point point_to_point_channel
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_constants_can_be_read() {
        assert_eq!(Constants::parse(Constants::text()).as_ref(), Ok(Constants::built_in()));
    }

    #[test]
    fn every_fitted_constant_is_near_its_prior() {
        let text: toml::Table = Constants::text().parse().unwrap();
        for (name, fitted) in text["measured"].as_table().unwrap() {
            let fitted: Fitted = fitted.clone().try_into().unwrap();
            let moved = (fitted.value / fitted.prior).ln() / fitted.spread;
            assert!(moved.abs() < 3.0, "{name} has moved {moved:.1} standard deviations from its prior");
        }
    }
}
