//! What keeps the wire sound, and what it lost: `mlnx_qos`, `ethtool -S`, `mlxlink`.

use super::page::{Page, interface, port};
use super::{Context, MOST_OF_A_KIND, key_value, leading_float};
use busbw_model::LinkLayer;
use busbw_model::node::NicCounter;

pub(super) const MLNX_QOS: &str = "mlnx_qos";
pub(super) const MLXLINK: &str = "mlxlink";
/// What begins the name of a device that the input does not name: they are counted.
const UNNAMED: &str = "<device ";
const STATISTICS: &str = "ethtool -S";

pub(super) fn read(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    quality_of_service(context, text, page)
        .or_else(|| counter(context, text, page))
        .or_else(|| link(context, text, page))
}

/// The command line names the device, which the output does not: `sudo mlnx_qos -i ens6`, `ethtool -S eth0 | grep phy`, `mlxlink -d mlx5_0 -p 1 -m`.
pub(super) fn asked(context: &mut Context, text: &str, is_prompt: bool) -> Option<()> {
    let known = |word: &&str| [MLNX_QOS, "ethtool", MLXLINK].contains(word);
    let names = text.split_whitespace().map(|word| word.strip_prefix("/usr/bin/").unwrap_or(word));
    let mut words = names.skip_while(|word| if is_prompt { !known(word) } else { *word == "sudo" });
    let (command, flag) = match words.next().filter(known)? {
        MLNX_QOS => (MLNX_QOS, "-i"),
        MLXLINK => (MLXLINK, "-d"),
        _ => (STATISTICS, "-S"),
    };
    let words: Vec<&str> = words.collect();
    let value = |flag: &str| words.iter().skip_while(|word| **word != flag).nth(1);
    // Of a loop nobody knows which device comes first.
    let device = value(flag)?;
    context.begin(command, &if device.contains('$') { unnamed(1) } else { device.to_string() });
    context.port = value("-p").and_then(|port| port.parse().ok()).or(Some(1));
    Some(())
}

/// `Priority trust state: dscp`, and below `PFC configuration:` a row `enabled     0   0   0   1   0   0   0   0`
/// (`pretty_print` of mlnx-tools' mlnx_qos).
fn quality_of_service(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    const ITEM: &str = "QoS";
    if let Some(trust) = text.trim().strip_prefix("Priority trust state: ") {
        if context.command != MLNX_QOS || !context.section.is_empty() {
            context.begin(MLNX_QOS, "");
        }
        context.section = trust.to_string();
        let facts = page.tell(context, MLNX_QOS, &context.device, ITEM);
        interface(facts, &context.device).trust = Some(trust.to_string());
        return Some(());
    }
    let mut words = text.split_whitespace();
    (context.command == MLNX_QOS && words.next() == Some("enabled")).then_some(())?;
    let switched_on = (0..).zip(words).filter(|(_, enabled)| *enabled == "1").map(|(priority, _)| priority).collect();
    interface(page.tell(context, MLNX_QOS, &context.device, ITEM), &context.device).pfc_priorities = Some(switched_on);
    Some(())
}

/// `     rx_discards_phy: 585` below `NIC statistics:`. Counters of queues and of what went well are left out.
fn counter(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    if text == "NIC statistics:" {
        if context.command != STATISTICS || !context.section.is_empty() {
            context.begin(STATISTICS, "");
        }
        context.section = text.to_string();
        return Some(());
    }
    let (name, count) = text.trim().split_once(": ").filter(|_| context.command == STATISTICS)?;
    (name.ends_with("_phy") || name == "rx_out_of_buffer").then_some(())?;
    let count: u64 = count.parse().ok()?;
    let counters =
        &mut interface(page.tell(context, STATISTICS, &context.device, "counters"), &context.device).counters;
    let rise = counters.get(name).map(|before| count.saturating_sub(before.count));
    counters.insert(name.to_string(), NicCounter { count, rise });
    Some(())
}

/// `State                           : Active`, `Speed : IB-NDR`, `Recommendation : Cable is unplugged` (`mlxlink` of NVIDIA's firmware tools, MFT).
/// Of a loop over devices each state begins the next one.
fn link(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    if text.trim() == "Operational Info" && context.command != MLXLINK {
        context.begin(MLXLINK, &unnamed(1));
        context.port = Some(1);
        return Some(());
    }
    let (key, value) = key_value(text).filter(|_| context.command == MLXLINK)?;
    let item = match key {
        "State" => "port state",
        "Speed" => "rate",
        "Recommendation" => "link",
        "Physical state" | "Width" => "",
        _ => return None,
    };
    // It shows links of GPUs as well.
    let number = context.port.filter(|_| !context.device.contains("netir"))?;
    if key == "State" && !context.section.is_empty() {
        take_next(context)?;
    }
    let port =
        port(page.tell(context, MLXLINK, &format!("{}/{number}", context.device), item), &context.device, number);
    match key {
        "State" => {
            port.state = if value == "Active" { "ACTIVE" } else { "DOWN" }.to_string();
            context.section = value.to_string();
        }
        "Physical state" if port.state == "DOWN" => port.physical_state = Some(value.to_string()),
        // Of InfiniBand it tells a lane's speed, and how many lanes there are below.
        "Speed" if value.starts_with("IB-") => {
            port.link_layer = Some(LinkLayer::InfiniBand);
            context.section = value.to_string();
        }
        "Speed" => {
            if let Some(rate) = leading_float(value) {
                (port.rate_gbps, port.link_layer) = (Some(rate), Some(LinkLayer::Ethernet));
            }
        }
        "Width" => {
            let lane = context.section.strip_prefix("IB-").and_then(lane_gbps);
            port.rate_gbps = lane.zip(leading_float(value)).map(|(lane, lanes)| lane * lanes).or(port.rate_gbps);
        }
        "Recommendation" => {
            let is_sound = ["No issue was observed", "N/A"].contains(&value);
            port.trouble = (!is_sound).then(|| value.to_string());
        }
        _ => {}
    }
    Some(())
}

fn unnamed(number: u32) -> String {
    format!("{UNNAMED}{number}>")
}

/// Goes on to the next device, where they have no names; none where no host has so many.
fn take_next(context: &mut Context) -> Option<()> {
    let Some(number) = context.device.strip_prefix(UNNAMED).and_then(|rest| rest.strip_suffix('>')) else {
        return Some(());
    };
    let next = number.parse::<u32>().ok()? + 1;
    if next > MOST_OF_A_KIND {
        context.command = "";
        return None;
    }
    context.device = unnamed(next);
    Some(())
}

/// Gbit/s of a lane of InfiniBand.
fn lane_gbps(name: &str) -> Option<f64> {
    Some(match name {
        "SDR" => 2.5,
        "DDR" => 5.0,
        "QDR" | "FDR10" => 10.0,
        "FDR" => 14.0,
        "EDR" => 25.0,
        "HDR" => 50.0,
        "NDR" => 100.0,
        "XDR" => 200.0,
        _ => return None,
    })
}
