//! The RDMA guest itself: it boots, has the devices that it promises, and runs busbw.

use crate::support::command::BUSBW;
use crate::support::guest::Guest;
use crate::support::skip::needed;
use std::path::Path;

#[test]
fn the_guest_has_rdma_devices_and_runs_busbw() {
    let cross = "before=$(cat /sys/class/net/d1/statistics/rx_packets)
        ping -q -c 3 -W 10 10.1.1.2 >&2 && echo $(($(cat /sys/class/net/d1/statistics/rx_packets) - before))";
    let lines = ["ibv_devinfo -v", &format!("{BUSBW} --version"), cross, "echo lost >&2; exit 7"];
    let steps = needed!(Guest::run(&[Path::new(BUSBW)], lines));
    let [devices, version, crossed, failed] = steps;

    for (device, address) in [("rxe0", "10.1.1.1"), ("rxe1", "10.1.1.2")] {
        let (_, device) = devices.stdout.split_once(&format!("hca_id:\t{device}\n")).expect(&devices.stdout);
        assert!(device.contains(&format!("GID[  1]:\t\t::ffff:{address}, RoCE v2")), "{}", devices.stdout);
        assert!(device.contains("PORT_ACTIVE"), "{}", devices.stdout);
    }
    assert_eq!((version.status, version.stdout.trim_end()), (0, concat!("busbw ", env!("CARGO_PKG_VERSION"))));
    let packets: u64 = crossed.stdout.trim().parse().expect(&crossed.stderr);
    assert!(packets >= 3, "what goes to 10.1.1.2 crosses the cable, but only {packets} packets did");
    assert_eq!((failed.status, failed.stdout.as_str(), failed.stderr.as_str()), (7, "", "lost\n"));
}
