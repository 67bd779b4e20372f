//! Ports of NICs: `ibstat`, `ibstatus`, `ibv_devinfo`, `ibdev2netdev`, `rdma link`, `show_gids`, `ethtool`, `ip link`.

use super::page::{Page, interface, port, rdma};
use super::{Context, key_value, leading_float};
use busbw_model::LinkLayer;
use busbw_model::node::{Gid, GidKind, RdmaPort};

const IBSTAT: &str = "ibstat";
const IBV_DEVINFO: &str = "ibv_devinfo";
const ETHTOOL: &str = "ethtool";

pub(super) fn read(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    begins(context, text)
        .or_else(|| joined(context, text, page))
        .or_else(|| gid(context, text, page))
        .or_else(|| ethernet(context, text, page))
        .or_else(|| member(context, text, page))
}

/// Lines that begin a device or a port.
fn begins(context: &mut Context, text: &str) -> Option<()> {
    let trimmed = text.trim();
    if let Some(name) = trimmed.strip_prefix("CA '").and_then(|rest| rest.strip_suffix('\'')) {
        context.begin(IBSTAT, name);
    } else if let Some(rest) = trimmed.strip_prefix("Infiniband device '") {
        let (name, rest) = rest.split_once("' port ")?;
        context.begin(IBSTAT, trimmed);
        context.device = name.to_string();
        context.port = Some(rest.split(' ').next()?.parse().ok()?);
    } else if let Some(name) = trimmed.strip_prefix("hca_id:") {
        context.begin(IBV_DEVINFO, name.trim());
    } else {
        let rest = match context.command {
            IBSTAT => trimmed.strip_prefix("Port ")?.strip_suffix(':')?,
            IBV_DEVINFO => trimmed.strip_prefix("port:")?,
            _ => return None,
        };
        context.port = Some(rest.trim().parse().ok()?);
    }
    Some(())
}

/// `mlx5_0 port 1 ==> ens1f0np0 (Up)` and `link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens5f0`.
fn joined(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        [device, "port", number, "==>", name, state @ ("(Up)" | "(Down)"), ..] => {
            let number = number.parse().ok()?;
            let facts = page.tell(context, "ibdev2netdev", name, "");
            let interface = interface(facts, name);
            interface.state = state.trim_matches(['(', ')']).to_ascii_lowercase();
            interface.rdma = Some(format!("{device}/{number}"));
            // An Ethernet port is down with its interface; InfiniBand's carries data without one.
            if !name.starts_with("ib") {
                let facts = page.tell(context, "ibdev2netdev", &format!("{device}/{number}"), "port state");
                let port = port(facts, device, number);
                if port.state.is_empty() {
                    port.state = if *state == "(Up)" { "ACTIVE" } else { "DOWN" }.to_string();
                }
            }
        }
        ["link", hca, about @ ..] => {
            // The kernel tells prefix and addresses of an InfiniBand port before its state.
            let value = |key: &str| about.iter().position(|word| *word == key).and_then(|at| about.get(at + 1));
            let (state, physical) = (value("state")?, value("physical_state")?);
            let (device, number) = hca.split_once('/')?;
            let facts = page.tell(context, "rdma link", hca, "port state");
            let port = port(facts, device, number.parse().ok()?);
            port.state = port_state(state);
            port.physical_state = Some(link_state(physical));
            if let Some(name) = value("netdev") {
                let interface = interface(facts, name);
                interface.state = if *state == "ACTIVE" { "up" } else { "down" }.to_string();
                interface.rdma = Some(hca.to_string());
            }
        }
        _ => return None,
    }
    Some(())
}

/// A row of `show_gids`, where the address may be missing, or a GID of `ibv_devinfo -v`.
fn gid(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    const ITEM: &str = "RoCE v2 GID";
    let is_gid = |word: &str| word.len() >= 15 && word.matches(':').count() == 7;
    let kind = |is_v2: bool| if is_v2 { GidKind::RoceV2 } else { GidKind::IbOrRoceV1 };
    let words: Vec<&str> = text.split_whitespace().collect();
    if let [hca, number, index, gid, rest @ ..] = words.as_slice()
        && is_gid(gid)
    {
        let (number, index) = (number.parse().ok()?, index.parse().ok()?);
        let version = rest.iter().position(|word| matches!(*word, "v1" | "v2"));
        let interface = version.and_then(|at| rest.get(at + 1)).map(|word| word.to_string());
        let kind = kind(version.is_some_and(|at| rest[at] == "v2"));
        let facts = page.tell(context, "show_gids", &format!("{hca}/{number}"), ITEM);
        set_gid(port(facts, hca, number), Gid { index, gid: gid.to_string(), kind, interface });
        return Some(());
    }
    let rest = text.trim().strip_prefix("GID[").filter(|_| context.command == IBV_DEVINFO)?;
    let (index, rest) = rest.split_once("]:")?;
    let (gid, version) = rest.split_once(',').unwrap_or((rest, ""));
    let gid = Gid {
        index: index.trim().parse().ok()?,
        gid: gid.trim().to_string(),
        kind: kind(version.contains("v2")),
        interface: None,
    };
    set_gid(port(page.tell(context, IBV_DEVINFO, &name(context)?, ITEM), &context.device, context.port?), gid);
    Some(())
}

/// An entry of the table; a later tool may know more of it.
fn set_gid(port: &mut RdmaPort, gid: Gid) {
    port.gids.retain(|known| known.index != gid.index);
    port.gids.push(gid);
}

/// `Settings for eth0:` with its speed, and `2: eth0: <…> mtu 9000 … state UP`.
fn ethernet(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    let trimmed = text.trim();
    if let Some(device) = trimmed.strip_prefix("Settings for ").and_then(|rest| rest.strip_suffix(':')) {
        context.begin(ETHTOOL, device);
        return Some(());
    }
    if let Some((key @ ("Speed" | "Duplex" | "Link detected"), value)) = key_value(trimmed)
        && context.command == ETHTOOL
    {
        let item = match key {
            "Duplex" => "interface",
            "Link detected" => "interfaces",
            _ => "",
        };
        let interface = interface(page.tell(context, ETHTOOL, &context.device, item), &context.device);
        match key {
            "Speed" => interface.speed_mbps = leading_float(value).map(|speed| speed as u64),
            "Duplex" => interface.duplex = Some(value.to_ascii_lowercase()),
            _ => interface.state = if value == "yes" { "up" } else { "down" }.to_string(),
        }
        return Some(());
    }
    let (name, rest) = trimmed.split_once(": <")?;
    let (_, behind) = rest.split_once(" mtu ")?;
    let name = name.rsplit(' ').next()?.split('@').next()?;
    let mtu = leading_float(behind)? as u32;
    let state = behind.split_once(" state ").and_then(|(_, state)| state.split(' ').next());
    let interface = interface(page.tell(context, "ip link", name, "interfaces"), name);
    interface.mtu = Some(mtu);
    interface.state = state.unwrap_or("unknown").to_ascii_lowercase();
    Some(())
}

/// `State: Active`, `active_mtu: 1024 (3)`: the members of a port or device.
fn member(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    let command = Some(context.command).filter(|command| matches!(*command, IBSTAT | IBV_DEVINFO))?;
    let (key, value) = key_value(text)?;
    let key = key.to_ascii_lowercase().replace('_', " ");
    match key.as_str() {
        "fw ver" | "firmware version" | "ca type" | "board id" | "system image guid" | "sys image guid" => {
            let item = if key.contains('w') { "firmware" } else { "" };
            let device = rdma(page.tell(context, command, &context.device, item), &context.device);
            let (known, value) = match key.as_str() {
                "ca type" => (&mut device.hca_type, value.to_string()),
                "board id" => (&mut device.board, value.to_string()),
                "fw ver" | "firmware version" => (&mut device.firmware, value.to_string()),
                _ => (&mut device.system_guid, value.trim_start_matches("0x").replace(':', "")),
            };
            *known = Some(value);
        }
        "active width" => context.section = value.to_string(),
        "node guid" | "port guid" | "transport" | "vendor id" | "port lid" | "base lid" | "sm lid" => {}
        _ => {
            let item = match key.as_str() {
                "state" => "port state",
                "rate" | "active speed" => "rate",
                "active mtu" => "active MTU",
                "physical state" | "phys state" | "link layer" | "max mtu" => "",
                _ => return None,
            };
            let number = context.port?;
            let facts = page.tell(context, command, &name(context)?, item);
            of_port(port(facts, &context.device, number), &key, value, &context.section)?;
        }
    }
    Some(())
}

fn of_port(port: &mut RdmaPort, key: &str, value: &str, width: &str) -> Option<()> {
    match key {
        "state" => port.state = port_state(value),
        "link layer" => port.link_layer = link_layer(value),
        "rate" => port.rate_gbps = Some(leading_float(value)?),
        // `active_speed: 25.0 Gbps (32)` is one lane's, and `active_width: 4X (2)` stands before it.
        "active speed" => port.rate_gbps = Some(leading_float(value)? * leading_float(width).unwrap_or(1.0)),
        "active mtu" => port.active_mtu = Some(leading_float(value)? as u32),
        "max mtu" => port.max_mtu = Some(leading_float(value)? as u32),
        _ => port.physical_state = Some(link_state(value)),
    }
    Some(())
}

/// `mlx5_0/1`, once the port is known.
fn name(context: &Context) -> Option<String> {
    Some(format!("{}/{}", context.device, context.port?))
}

/// `PORT_ACTIVE (4)`, `4: ACTIVE` and `Active` are one, and ibstat's `Initializing` is `INIT`.
fn port_state(value: &str) -> String {
    let value = value.split_once(": ").map_or(value, |(_, state)| state);
    let word = value.split(' ').next().unwrap_or_default().trim_start_matches("PORT_").to_ascii_uppercase();
    if word == "INITIALIZING" { "INIT".to_string() } else { word }
}

/// `LINK_UP (5)`, `5: LinkUp` and `LinkUp` are one.
fn link_state(value: &str) -> String {
    let value = value.split_once(": ").map_or(value, |(_, state)| state);
    let word = value.split(' ').next().unwrap_or_default();
    if word.bytes().any(|b| b.is_ascii_lowercase()) {
        return word.to_string();
    }
    let capitalised = |part: &str| part[..1].to_string() + &part[1..].to_ascii_lowercase();
    word.split('_').filter(|part| part.is_ascii() && !part.is_empty()).map(capitalised).collect()
}

fn link_layer(value: &str) -> Option<LinkLayer> {
    match value.to_ascii_lowercase().as_str() {
        "infiniband" => Some(LinkLayer::InfiniBand),
        "ethernet" => Some(LinkLayer::Ethernet),
        _ => None,
    }
}
