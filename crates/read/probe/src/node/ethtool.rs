//! Asks the kernel what `ethtool` asks: driver, firmware, sizes of rings.

use crate::ethtool::{Request, socket};
use busbw_model::node::Rings;

/// Linux, include/uapi/linux/ethtool.h.
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GRINGPARAM: u32 = 0x10;

/// What the kernel answers; what it does not is none.
#[derive(Default)]
pub(super) struct Answer {
    pub driver: Option<String>,
    pub firmware: Option<String>,
    pub rings: Option<Rings>,
}

pub(super) fn ask(interface: &str) -> Answer {
    let Some(socket) = socket() else { return Answer::default() };
    // struct ethtool_drvinfo: cmd, then driver, version and firmware of 32 bytes each, and more.
    let mut info = Request::new(ETHTOOL_GDRVINFO, 196);
    let known = info.send(&socket, interface).is_some();
    let text = |at| Some(info.text(at, 32)).filter(|text| known && !text.is_empty() && text != "N/A");
    // struct ethtool_ringparam: cmd, the most of rx, rx_mini, rx_jumbo and tx, then what they are.
    let mut rings = Request::new(ETHTOOL_GRINGPARAM, 36);
    let known = rings.send(&socket, interface).is_some() && rings.get(4) > 0;
    let rings = Rings { rx: rings.get(20), rx_most: rings.get(4), tx: rings.get(32), tx_most: rings.get(16) };
    Answer { driver: text(4), firmware: text(68), rings: known.then_some(rings) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every machine has `lo`, which has no rings; the other is on none.
    #[test]
    fn what_the_kernel_does_not_answer_is_none() {
        assert!(ask("lo").rings.is_none());
        let absent = ask("absent0");
        assert!(absent.driver.is_none() && absent.firmware.is_none() && absent.rings.is_none());
    }
}
