//! The model of ways to average gradients, for `busbw.advisor` and `busbw.torch.traffic`.

use crate::failure::Failure;
use busbw_model::{Bytes, GBps};
use busbw_predict::gradients::{self, Shape, Speeds, TopK, Way};
use pyo3::{PyResult, pyclass, pyfunction, pymethods};

/// The time of one way of averaging, as a function of the network's speed.
///
/// Attributes: `mode`, `fixed_s` (seconds that do not depend on the network's bandwidth), `network_bytes` (what leaves a host).
#[pyclass(frozen, module = "busbw.advisor")]
#[derive(Clone, Copy)]
pub struct Estimate(gradients::Estimate);

#[pymethods]
impl Estimate {
    #[new]
    fn new(mode: &str, fixed_s: f64, network_bytes: f64) -> PyResult<Self> {
        Ok(Estimate(gradients::Estimate { way: way(mode)?, fixed_s, network_bytes }))
    }

    #[getter]
    fn mode(&self) -> &'static str {
        self.0.way.name()
    }

    #[getter]
    fn fixed_s(&self) -> f64 {
        self.0.fixed_s
    }

    #[getter]
    fn network_bytes(&self) -> f64 {
        self.0.network_bytes
    }

    /// The time over a network of so many GB/s.
    fn seconds(&self, network_gbs: f64) -> f64 {
        self.0.seconds(GBps(network_gbs))
    }

    /// The network speed, GB/s, below which this is faster than `other`: infinity where it always is, 0 where it never is.
    fn pays_below_gbs(&self, other: &Self) -> f64 {
        self.0.pays_below(&other.0).0
    }

    fn __repr__(&self) -> String {
        format!("Estimate({:?}, {}, {})", self.mode(), self.0.fixed_s, self.0.network_bytes)
    }
}

/// The times of averaging so many bytes of float32 gradients in every way that the ranks allow; the first is plain. `speeds` are
/// those of host, selection and addition in GB/s, and the latency in µs.
#[pyfunction]
pub fn gradient_estimates(
    shape: (u32, u32),
    nbytes: u64,
    speeds: (f64, f64, f64, f64),
    ratio: f64,
    value_bytes: u32,
) -> Vec<Estimate> {
    let (host, select, add, latency_us) = speeds;
    let speeds = Speeds { host: GBps(host), select: GBps(select), add: GBps(add), latency_us };
    let found = gradients::estimates(shape_of(shape), Bytes(nbytes), &speeds, TopK { ratio, value_bytes });
    found.into_iter().map(Estimate).collect()
}

/// The bytes that leave a host of (hosts, ranks of each), for so many bytes of gradients and of a rank's message of top-k.
#[pyfunction]
pub fn gradient_traffic(mode: &str, shape: (u32, u32), nbytes: f64, message_bytes: f64) -> PyResult<f64> {
    Ok(way(mode)?.network_bytes(shape_of(shape), nbytes, message_bytes))
}

fn shape_of((hosts, ranks_per_host): (u32, u32)) -> Shape {
    Shape { hosts, ranks_per_host }
}

fn way(name: &str) -> Result<Way, Failure> {
    let found = Way::ALL.into_iter().find(|way| way.name() == name);
    found.ok_or_else(|| Failure::value(format!("mode {name}: choose one of {}", Way::ALL.map(Way::name).join(", "))))
}
