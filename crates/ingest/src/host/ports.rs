//! Ports of NICs: `ibstat`, `ibstatus`, `ibv_devinfo`, `ibdev2netdev`, `rdma link`, `show_gids`, `ethtool`, `ip link`.

use super::{Context, Told, key_value, leading_float};
use busbw_model::{Fact, HostTool, LinkLayer};

pub(super) fn read(context: &mut Context, text: &str) -> Told {
    device(context, text)
        .or_else(|| interface(text))
        .or_else(|| gid(context, text))
        .or_else(|| ethernet(context, text))
        .or_else(|| member(context, text))
}

/// Lines that begin a device or a port.
fn device(context: &mut Context, text: &str) -> Told {
    let trimmed = text.trim();
    let quoted = |rest: &str| rest.split('\'').next().map(str::to_string);
    let begun = |tool| Some((tool, Vec::new()));
    if let Some(name) = trimmed.strip_prefix("CA '").and_then(quoted) {
        context.begin(HostTool::Ibstat, &name);
        return begun(HostTool::Ibstat);
    }
    if let Some(rest) = trimmed.strip_prefix("Infiniband device '") {
        context.begin(HostTool::Ibstat, &quoted(rest)?);
        context.port = rest.split_once(" port ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        return begun(HostTool::Ibstat);
    }
    if let Some(name) = trimmed.strip_prefix("hca_id:") {
        context.begin(HostTool::IbvDevinfo, name.trim());
        return begun(HostTool::IbvDevinfo);
    }
    let tool = context.tool.filter(|tool| matches!(tool, HostTool::Ibstat | HostTool::IbvDevinfo))?;
    let port =
        trimmed.strip_prefix("Port ").and_then(|rest| rest.strip_suffix(':')).or(trimmed.strip_prefix("port:"))?;
    context.port = Some(port.trim().parse().ok()?);
    begun(tool)
}

/// `mlx5_0 port 1 ==> ens1f0np0 (Up)` and `link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens5f0`.
fn interface(text: &str) -> Told {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        [hca, "port", port, "==>", name, state, ..] => {
            let up = state.eq_ignore_ascii_case("(up)");
            let fact = Fact::Interface { name: name.to_string(), up };
            Some((HostTool::Ibdev2netdev, vec![(format!("{hca}/{port}"), fact)]))
        }
        ["link", hca, "state", state, "physical_state", physical, rest @ ..] if hca.contains('/') => {
            let device = hca.to_string();
            let mut facts = vec![
                (device.clone(), Fact::PortState(capitalised(state))),
                (device.clone(), Fact::PhysicalState(link_state(physical))),
            ];
            if let ["netdev", name, ..] = rest {
                facts.push((device, Fact::Interface { name: name.to_string(), up: *state == "ACTIVE" }));
            }
            Some((HostTool::Ibdev2netdev, facts))
        }
        _ => None,
    }
}

/// A row of `show_gids`, where the address may be missing, or a GID of `ibv_devinfo -v`.
fn gid(context: &Context, text: &str) -> Told {
    let is_gid = |word: &str| word.len() >= 15 && word.matches(':').count() == 7;
    let words: Vec<&str> = text.split_whitespace().collect();
    if let [hca, port, index, gid, rest @ ..] = words.as_slice()
        && is_gid(gid)
    {
        port.parse::<u32>().ok()?;
        let at = rest.iter().position(|word| matches!(*word, "v1" | "v2"));
        let fact = Fact::Gid {
            index: index.parse().ok()?,
            gid: gid.to_string(),
            ipv4: rest.first().filter(|word| word.matches('.').count() == 3).map(|word| word.to_string()),
            roce_version: at.map(|at| if rest[at] == "v2" { 2 } else { 1 }),
            interface: at.and_then(|at| rest.get(at + 1)).map(|word| word.to_string()),
        };
        return Some((HostTool::ShowGids, vec![(format!("{hca}/{port}"), fact)]));
    }
    let rest = text.trim().strip_prefix("GID[").filter(|_| context.is(&[HostTool::IbvDevinfo]))?;
    let (index, rest) = rest.split_once("]:")?;
    let (gid, kind) = rest.split_once(',').unwrap_or((rest, ""));
    let roce_version = if kind.contains("v2") { Some(2) } else { kind.contains("v1").then_some(1) };
    let (gid, index) = (gid.trim().to_string(), index.trim().parse().ok()?);
    let ipv4 = gid.strip_prefix("::ffff:").map(str::to_string);
    Some((HostTool::IbvDevinfo, vec![(name(context), Fact::Gid { index, gid, ipv4, roce_version, interface: None })]))
}

/// `Settings for eth0:` with its speed, and `2: eth0: <…> mtu 9000`.
fn ethernet(context: &mut Context, text: &str) -> Told {
    let trimmed = text.trim();
    if let Some(device) = trimmed.strip_prefix("Settings for ").and_then(|rest| rest.strip_suffix(':')) {
        context.begin(HostTool::Ethtool, device);
        return Some((HostTool::Ethtool, Vec::new()));
    }
    let setting = key_value(trimmed).filter(|_| context.is(&[HostTool::Ethtool]));
    let fact = match setting {
        Some(("Speed", value)) => Some(Fact::RateGbps(leading_float(value)? / 1000.0)),
        Some(("Link detected", "yes")) => Some(Fact::PhysicalState("LinkUp".to_string())),
        Some(("Link detected", _)) => Some(Fact::PhysicalState("Down".to_string())),
        _ => None,
    };
    if let Some(fact) = fact {
        return Some((HostTool::Ethtool, vec![(context.device.clone(), fact)]));
    }
    let (name, rest) = trimmed.split_once(": <")?;
    let (_, mtu) = rest.split_once(" mtu ")?;
    let name = name.rsplit(' ').next()?.split('@').next()?;
    let mtu = leading_float(mtu)? as u32;
    Some((HostTool::Ip, vec![(name.to_string(), Fact::ActiveMtu(mtu))]))
}

/// `State: Active`, `active_mtu: 1024 (3)`: the members of a port or device.
fn member(context: &mut Context, text: &str) -> Told {
    let tool = context.tool.filter(|tool| matches!(tool, HostTool::Ibstat | HostTool::IbvDevinfo))?;
    let (key, value) = key_value(text)?;
    let fact = match key.to_ascii_lowercase().replace('_', " ").as_str() {
        "state" => Fact::PortState(port_state(value)),
        "physical state" | "phys state" => Fact::PhysicalState(link_state(value)),
        "rate" => Fact::RateGbps(leading_float(value)?),
        "link layer" => Fact::LinkLayer(link_layer(value)?),
        "active mtu" => Fact::ActiveMtu(leading_float(value)? as u32),
        "max mtu" => Fact::MaxMtu(leading_float(value)? as u32),
        "fw ver" | "firmware version" => Fact::Firmware(value.to_string()),
        "active width" => {
            context.section = value.to_string();
            return Some((tool, Vec::new()));
        }
        // `active_speed: 25.0 Gbps (32)` is one lane's, and `active_width: 4X (2)` stands before it.
        "active speed" => {
            let lanes = leading_float(&context.section).unwrap_or(1.0);
            Fact::RateGbps(leading_float(value)? * lanes)
        }
        "ca type" | "node guid" | "port guid" | "transport" | "vendor id" | "port lid" | "base lid" | "sm lid" => {
            return Some((tool, Vec::new()));
        }
        _ => return None,
    };
    Some((tool, vec![(name(context), fact)]))
}

fn name(context: &Context) -> String {
    match context.port {
        Some(port) => format!("{}/{port}", context.device),
        None => context.device.clone(),
    }
}

/// `PORT_ACTIVE (4)`, `4: ACTIVE` and `Active` are one.
fn port_state(value: &str) -> String {
    let value = value.split_once(": ").map_or(value, |(_, state)| state);
    let word = value.split(' ').next().unwrap_or_default().trim_start_matches("PORT_");
    capitalised(word)
}

/// `LINK_UP (5)`, `5: LinkUp` and `LinkUp` are one.
fn link_state(value: &str) -> String {
    let value = value.split_once(": ").map_or(value, |(_, state)| state);
    let word = value.split(' ').next().unwrap_or_default();
    if word.bytes().any(|b| b.is_ascii_lowercase()) {
        return word.to_string();
    }
    word.split('_').map(capitalised).collect()
}

/// `ACTIVE` is `Active`, as ibstat writes it.
pub(crate) fn capitalised(word: &str) -> String {
    let lower = word.to_ascii_lowercase();
    let mut letters = lower.chars();
    letters.next().map_or(String::new(), |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

fn link_layer(value: &str) -> Option<LinkLayer> {
    match value.to_ascii_lowercase().as_str() {
        "infiniband" => Some(LinkLayer::InfiniBand),
        "ethernet" => Some(LinkLayer::Ethernet),
        _ => None,
    }
}
