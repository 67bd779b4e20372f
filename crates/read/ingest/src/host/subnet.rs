//! What the tools of an InfiniBand subnet find: `ibdiagnet`, `iblinkinfo`, `ibqueryerrors`, `sminfo`.

use super::Context;
use super::page::Page;

const ITEM: &str = "subnet";
const LINKS: &str = "Speed / Width checks";
const MANAGER: &str = "Subnet Manager";

/// Checks have the names of ibdiagnet's stages where it makes them, too.
pub(super) fn read(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    stage(context, text, page)
        .or_else(|| link(context, text, page))
        .or_else(|| counters(context, text, page))
        .or_else(|| manager(context, text, page))
}

/// Rows of ibdiagnet's summary, `-I- Speed / Width checks                0          15`, with warnings and errors.
fn stage(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    let (stage, counts) = text.strip_prefix("-I- ")?.split_once("  ")?;
    let mut counts = counts.split_whitespace().map(str::parse::<u64>);
    let (Some(Ok(_)), Some(Ok(errors))) = (counts.next(), counts.next()) else { return None };
    page.tell(context, "ibdiagnet", "", ITEM).subnet.insert(stage.to_string(), errors);
    Some(())
}

/// A link that is not as it should be: of ibdiagnet `-E- Link: A/U1/P24<-->B/N1/P49 - Unexpected width, actual link width is 2x …`, of iblinkinfo
/// `10   21[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>      40    1[  ] "node3 HCA-2" ( Could be 53.125 Gbps)`.
fn link(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    let is_row = text.contains("] ==( ") && text.contains(")==> ");
    let (command, is_slow) = match is_row {
        true => ("iblinkinfo", text.contains("( Could be ")),
        false => ("ibdiagnet", text.starts_with("-E- Link: ").then_some(true)?),
    };
    let subnet = &mut page.tell(context, command, "", if is_slow { ITEM } else { "" }).subnet;
    *subnet.entry(LINKS.to_string()).or_default() += u64::from(is_slow);
    Some(())
}

/// `Errors for "node1 HCA-1"` and its ports, `   GUID 0x1070fd0300b1a2c4 port 1: [SymbolErrorCounter == 1231] [LinkDownedCounter == 12]`; at the end
/// `##          812 ports checked, 0 ports have errors beyond threshold` (infiniband-diags' `ibqueryerrors.c`).
fn counters(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    const COMMAND: &str = "ibqueryerrors";
    if let Some(port) = text.trim_start().strip_prefix("GUID 0x").and_then(|rest| Some(rest.split_once(" port ")?.1)) {
        // What the tool sums up of a switch is of no port.
        let is_one = port.starts_with(|c: char| c.is_ascii_digit()) && port.split('[').skip(1).any(is_error);
        let ports = match context.command {
            COMMAND => format!("ports of {}", context.device),
            _ => "ports".into(),
        };
        return is_one.then(|| *page.tell(context, COMMAND, "", ITEM).subnet.entry(ports).or_default() += 1);
    }
    if let Some(node) = text.strip_prefix("Errors for ").and_then(|rest| rest.strip_suffix('"')?.split_once('"')) {
        context.begin(COMMAND, node.1);
        return Some(());
    }
    let (_, bad) = text.strip_prefix("##  ")?.split_once(" ports checked, ")?;
    if bad.strip_suffix(" ports have errors beyond threshold")? == "0" {
        page.tell(context, COMMAND, "", ITEM).subnet.insert("ports".into(), 0);
    }
    Some(())
}

/// Whether a counter of ibqueryerrors', `PortXmitWait == 4711]`, counts errors: these count what waits, and what has no place to go, on sound links.
fn is_error(counter: &str) -> bool {
    const SOUND: [&str; 3] = ["PortXmitWait", "PortRcvSwitchRelayErrors", "VL15Dropped"];
    counter.split_once(" == ").is_some_and(|(name, _)| !SOUND.contains(&name))
}

/// `sminfo: sm lid 1 sm guid 0x2c90300a1b2c4, activity count 4711 priority 14 state 3 SMINFO_MASTER` (infiniband-diags' `sminfo.c`).
fn manager(context: &Context, text: &str, page: &mut Page) -> Option<()> {
    let (_, state) = text.strip_prefix("sminfo: sm lid ")?.split_once(" state ")?;
    let is_master = state.ends_with("SMINFO_MASTER");
    // Others stand by.
    let others = page.tell(context, "sminfo", "", ITEM).subnet.entry(MANAGER.to_string()).or_insert(1);
    *others = u64::from(!is_master).min(*others);
    Some(())
}
