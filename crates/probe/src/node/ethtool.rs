//! Asks the kernel what `ethtool` asks: driver, firmware, sizes of rings (the kernel's include/uapi/linux/ethtool.h).

use busbw_model::node::Rings;
use std::os::fd::AsRawFd;

/// `ETHTOOL_GDRVINFO` and `ETHTOOL_GRINGPARAM`.
const DRIVER: u32 = 0x03;
const RINGS: u32 = 0x10;

/// What the kernel answers; what it does not is none.
#[derive(Default)]
pub(super) struct Answer {
    pub driver: Option<String>,
    pub firmware: Option<String>,
    pub rings: Option<Rings>,
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    rest: [u8; 96],
}

/// `struct ethtool_ringparam`.
#[repr(C)]
#[derive(Default)]
struct RingParameters {
    command: u32,
    rx_most: u32,
    rx_mini_most: u32,
    rx_jumbo_most: u32,
    tx_most: u32,
    rx: u32,
    rx_mini: u32,
    rx_jumbo: u32,
    tx: u32,
}

/// `struct ifreq` with a pointer in its union, whose other members are no longer than 24 bytes.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    data: *mut libc::c_void,
    rest: [u8; 16],
}

pub(super) fn ask(interface: &str) -> Answer {
    let Ok(socket) = std::net::UdpSocket::bind(("0.0.0.0", 0)) else { return Answer::default() };
    let mut info = DriverInfo { command: DRIVER, driver: [0; 32], version: [0; 32], firmware: [0; 32], rest: [0; 96] };
    let known = call(&socket, interface, &mut info);
    let mut rings = RingParameters { command: RINGS, ..RingParameters::default() };
    let has_rings = call(&socket, interface, &mut rings) && rings.rx_most > 0;
    let rings = Rings { rx: rings.rx, rx_most: rings.rx_most, tx: rings.tx, tx_most: rings.tx_most };
    Answer {
        driver: known.then(|| text(&info.driver)).flatten(),
        firmware: known.then(|| text(&info.firmware)).flatten(),
        rings: has_rings.then_some(rings),
    }
}

/// Any socket will do; the kernel fills `data`, whose first word says what it is to hold.
fn call<T>(socket: &std::net::UdpSocket, interface: &str, data: &mut T) -> bool {
    let mut request = Request { name: [0; libc::IFNAMSIZ], data: std::ptr::from_mut(data).cast(), rest: [0; 16] };
    let length = interface.len().min(libc::IFNAMSIZ - 1);
    request.name[..length].copy_from_slice(&interface.as_bytes()[..length]);
    // SAFETY: `request` and what it points to have the layout of SIOCETHTOOL's structures and live through the call.
    unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &mut request) == 0 }
}

fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]).trim().to_owned();
    (!text.is_empty() && text != "N/A").then_some(text)
}
