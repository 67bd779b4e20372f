//! What keeps the wire sound, and what it lost: `mlnx_qos`, `ethtool -S`, `ibdiagnet`.

use super::Context;
use super::page::{Page, interface};
use busbw_model::node::NicCounter;

pub(super) const MLNX_QOS: &str = "mlnx_qos";
const STATISTICS: &str = "ethtool -S";
const IBDIAGNET: &str = "ibdiagnet";

pub(super) fn read(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    quality_of_service(context, text, page)
        .or_else(|| counter(context, text, page))
        .or_else(|| stage(context, text, page))
}

/// The command line names the interface, which the output does not: `sudo mlnx_qos -i ens6`, `ethtool -S eth0 | grep phy`.
pub(super) fn asked(context: &mut Context, text: &str, is_prompt: bool) -> Option<()> {
    let known = |word: &&str| [MLNX_QOS, "ethtool"].contains(word);
    let mut words = text.split_whitespace().skip_while(|word| if is_prompt { !known(word) } else { *word == "sudo" });
    let (command, flag) = match words.next().filter(known)? {
        MLNX_QOS => (MLNX_QOS, "-i"),
        _ => (STATISTICS, "-S"),
    };
    let device = words.skip_while(|word| *word != flag).nth(1)?;
    context.begin(command, device);
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

/// Rows of the summary, `-I- Speed / Width checks                0          15`, with warnings and errors; and a link that is
/// not as it should be, `-E- Link: A/U1/P24<-->B/N1/P49 - Unexpected width, actual link width is 2x …`.
fn stage(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    const ITEM: &str = "subnet";
    if text.starts_with("-E- Link: ") {
        let subnet = &mut page.tell(context, IBDIAGNET, "", ITEM).subnet;
        *subnet.entry("Speed / Width checks".to_string()).or_default() += 1;
        return Some(());
    }
    let (stage, counts) = text.strip_prefix("-I- ")?.split_once("  ")?;
    let mut counts = counts.split_whitespace().map(str::parse::<u64>);
    let (Some(Ok(_)), Some(Ok(errors))) = (counts.next(), counts.next()) else { return None };
    page.tell(context, IBDIAGNET, "", ITEM).subnet.insert(stage.to_string(), errors);
    Some(())
}
