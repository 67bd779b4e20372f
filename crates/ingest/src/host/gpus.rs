//! GPUs: `nvidia-smi` with its header, `-L`, `-q`, `nvlink -s` and `topo -p2p`.

use super::{Context, Told, key_value, leading_float};
use busbw_model::{Fact, HostTool};

const TOOL: HostTool = HostTool::NvidiaSmi;

pub(super) fn read(context: &mut Context, text: &str) -> Told {
    versions(text)
        .or_else(|| listed(context, text))
        .or_else(|| link(context, text))
        .or_else(|| peer_access(text))
        .or_else(|| queried(context, text))
}

/// `| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2 |`, and `Driver Version : 535.104.05` of `-q`.
fn versions(text: &str) -> Told {
    let after = |words: &str| {
        let rest = text.split_once(words)?.1.trim_start().strip_prefix(':')?.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        (end > 0).then(|| rest[..end].to_string())
    };
    // NCCL's own lines and Python tracebacks speak of CUDA versions too, but not in these words.
    let driver = after("Driver Version").map(|version| (String::new(), Fact::Driver(version)));
    let is_smi = text.contains("Driver Version") || text.trim_start().starts_with("CUDA Version  ");
    let cuda =
        is_smi.then(|| after("CUDA Version")).flatten().map(|version| (String::new(), Fact::CudaDriver(version)));
    let facts: Vec<_> = driver.into_iter().chain(cuda).collect();
    (!facts.is_empty()).then_some((TOOL, facts))
}

/// `GPU 0: NVIDIA A100-SXM4-80GB (UUID: …)`, `|   0  NVIDIA H100 80GB HBM3   On  | 00000000:18:00.0 Off |`, and the
/// `GPU 00000000:18:00.0` that begins a GPU of `-q`.
fn listed(context: &mut Context, text: &str) -> Told {
    let trimmed = text.trim();
    if let Some(rest) = text.strip_prefix("GPU ") {
        if let Some((index, name)) = rest.split_once(": ") {
            index.parse::<u32>().ok()?;
            let name = name.split(" (UUID").next()?.trim();
            context.begin(TOOL, &format!("GPU {index}"));
            return Some((TOOL, vec![(context.device.clone(), Fact::GpuName(name.to_string()))]));
        }
        let is_address = rest.matches(':').count() == 2 && rest.contains('.');
        return is_address.then(|| {
            context.begin(TOOL, rest.trim());
            (TOOL, Vec::new())
        });
    }
    let cell = trimmed.strip_prefix('|')?.split('|').next()?;
    let address = trimmed.split('|').nth(2)?;
    (address.matches(':').count() == 2).then_some(())?;
    let (index, rest) = cell.trim().split_once(' ')?;
    index.parse::<u32>().ok()?;
    let name = rest.trim().trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_end();
    let name = if name.is_empty() { rest.trim() } else { name };
    Some((TOOL, vec![(format!("GPU {index}"), Fact::GpuName(name.to_string()))]))
}

/// `Link 0: 25 GB/s`, `Link 4: <inactive>` below the line of a GPU.
fn link(context: &Context, text: &str) -> Told {
    let rest = text.trim().strip_prefix("Link ").filter(|_| context.is(&[TOOL]))?;
    let (link, rate) = rest.split_once(": ")?;
    let is_rate = rate.contains("GB/s") || rate.contains("inactive");
    let fact = Fact::NvLink { link: link.parse().ok()?, rate_gbs: leading_float(rate) };
    is_rate.then(|| (TOOL, vec![(context.device.clone(), fact)]))
}

/// `GPU0 X OK CNS OK`: a row of `nvidia-smi topo -p2p`.
pub(super) fn peer_access(text: &str) -> Told {
    const STATES: [&str; 8] = ["X", "OK", "CNS", "GNS", "TNS", "NS", "DR", "U"];
    let mut words = text.split_whitespace();
    let device = words.next().filter(|word| word.strip_prefix("GPU").is_some_and(|n| n.parse::<u32>().is_ok()))?;
    let cells: Vec<&str> = words.collect();
    let is_row = cells.len() > 1 && cells.iter().all(|cell| STATES.contains(cell)) && cells.contains(&"X");
    let others = cells.iter().enumerate().filter(|(_, cell)| **cell != "X");
    let fact = |(to, cell): (usize, &&str)| {
        (device.to_string(), Fact::PeerAccess { to: format!("GPU{to}"), status: cell.to_string() })
    };
    is_row.then(|| (TOOL, others.map(fact).collect()))
}

/// Members of `nvidia-smi -q` that tell something: `    Fabric` is a section, `        State : Completed` a member.
fn queried(context: &mut Context, text: &str) -> Told {
    if !context.is(&[TOOL]) {
        return None;
    }
    let Some((key, value)) = key_value(text).filter(|_| text.contains(" : ")) else {
        let is_section =
            text.starts_with("    ") && text.trim().bytes().all(|b| b.is_ascii_alphanumeric() || b == b' ');
        context.section = text.trim().to_string();
        return is_section.then_some((TOOL, Vec::new()));
    };
    let fact = match (context.section.as_str(), key) {
        (_, "Product Name") => Fact::GpuName(value.to_string()),
        ("Fabric", "State") => Fact::FabricState(value.to_string()),
        ("Fabric", "Status") => Fact::FabricStatus(value.to_string()),
        _ => return Some((TOOL, Vec::new())),
    };
    Some((TOOL, vec![(context.device.clone(), fact)]))
}
