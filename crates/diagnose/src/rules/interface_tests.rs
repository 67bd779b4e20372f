//! Interfaces as NCCL of all versions lists them, good and bad.

use super::*;

fn found(lines: &[&str]) -> Option<(Severity, String)> {
    let run = busbw_ingest::read_bytes(&[("log", lines.join("\n").as_bytes())]).expect("text");
    taken(&Case::new(&run)).into_iter().next().map(|finding| (finding.severity, finding.title))
}

const REFUSED: &str = "gpu-b:7:9 [0] include/socket.h:400 NCCL WARN Call to connect timeout : Connection refused";

#[test]
fn the_interface_that_leads_nowhere_is_named_with_its_address() {
    let cases: [(&[&str], Severity, &str); 8] = [
        (
            &[
                "gpu-a:5:5 [0] NCCL INFO Bootstrap : Using lo:127.0.0.1<0>",
                "gpu-b:7:7 [0] NCCL INFO Bootstrap : Using lo:127.0.0.1<0>",
            ],
            Severity::Warning,
            "NCCL uses lo (127.0.0.1), the loopback",
        ),
        (
            &[
                "gpu-a:5:5 [0] NCCL INFO NET/Socket : Using [0]lo:127.0.0.1<0> [1]ens5:10.9.0.4<0>",
                "gpu-b:7:7 [0] NCCL INFO NET/Socket : Using [0]lo:127.0.0.1<0> [1]ens5:10.9.0.5<0>",
                REFUSED,
            ],
            Severity::Error,
            "NCCL uses lo (127.0.0.1), the loopback",
        ),
        (
            &[
                "gpu-b:7:7 [0] NCCL INFO NET : Using interface lo:127.0.0.1<0>",
                "gpu-b:7:7 [0] NCCL INFO NET : Using interface ens5:10.9.0.5<0>",
                "gpu-b:7:7 [0] NCCL INFO NET/Socket : 2 interfaces found",
                REFUSED,
            ],
            Severity::Error,
            "NCCL uses lo (127.0.0.1), the loopback",
        ),
        (
            &["gpu-a:5:5 [0] NCCL INFO NET : Using interface docker0:172.17.0.1<0>", REFUSED],
            Severity::Error,
            "NCCL uses docker0 (172.17.0.1), an interface of containers",
        ),
        (
            &["gpu-a:5:5 [0] NCCL INFO Bootstrap : Using virbr0:192.168.122.1<0>"],
            Severity::Warning,
            "NCCL uses virbr0 (192.168.122.1), an interface of containers",
        ),
        (
            &[
                "gpu-a:5:5 [0] NCCL INFO Bootstrap : Using [0]tunl0:fe80::5efe:9%tunl0<0> [1]veth0:2001:db8::7<0>",
                "gpu-b:7:9 [0] misc/socket.cc:400 NCCL WARN Connect to fe80::5efe:9%tunl0<4711> failed : Connection timed out",
            ],
            Severity::Error,
            "NCCL uses tunl0 (fe80::5efe:9%tunl0), an interface with a link-local address",
        ),
        (
            &[
                "gpu-a:5:5 [0] NCCL INFO NET/Socket : Using [0]ens5:10.9.0.4<0> [1]veth81a:fe80::2:3%veth81a<0>",
                "gpu-a:5:6 [0] NCCL INFO Channel 00 : 0[18000] -> 1[18000] [send] via NET/Socket/1",
                "gpu-a:5:6 [0] NCCL INFO Call to connect returned Connection timed out, retrying",
            ],
            Severity::Error,
            "NCCL uses veth81a (fe80::2:3%veth81a), an interface of containers",
        ),
        (
            &[
                "gpu-a:5:5 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to ^docker,lo",
                "gpu-a:5:5 [0] NCCL INFO Bootstrap : Using cni0:10.244.0.1<0>",
            ],
            Severity::Warning,
            "NCCL uses cni0",
        ),
    ];
    for (lines, severity, title) in cases {
        let (told, said) = found(lines).unwrap_or_else(|| panic!("{lines:?}"));
        assert_eq!((told, said.starts_with(title)), (severity, true), "{lines:?}: {said}");
    }
}

/// A bridge of containers beside the right interface does no harm to an address that lies elsewhere.
#[test]
fn a_failure_of_another_address_is_not_the_interfaces() {
    let bridge = "gpu-a:5:5 [0] NCCL INFO NET/Socket : Using [0]ens5:10.9.0.4<0> [1]docker0:172.17.0.1<0>";
    for (address, severity) in [("10.9.0.5", Severity::Warning), ("172.17.0.2", Severity::Error)] {
        let failed = format!(
            "gpu-a:5:6 [0] misc/socket.cc:480 NCCL WARN socketStartConnect: Connect to {address}<4711> failed : Connection refused"
        );
        assert_eq!(found(&[bridge, &failed]).map(|(told, _)| told), Some(severity), "{address}");
    }
}

#[test]
fn a_list_of_names_to_leave_out_admits_loopback() {
    let lines = [
        "gpu-a:5:5 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to ^docker0",
        "gpu-a:5:5 [0] NCCL INFO Bootstrap : Using lo:127.0.0.1<0>",
        "gpu-b:7:7 [0] NCCL INFO Bootstrap : Using lo:127.0.0.1<0>",
    ];
    let run = busbw_ingest::read_bytes(&[("log", lines.join("\n").as_bytes())]).expect("text");
    let finding = taken(&Case::new(&run)).remove(0);
    assert!(finding.remedy[0].contains("NCCL_SOCKET_IFNAME=^docker0,lo"), "{:?}", finding.remedy);
    assert!(finding.explanation.contains("=^docker0 excludes"), "{}", finding.explanation);
}

#[test]
fn what_leads_to_others_or_needs_no_others_is_right() {
    let cases: [&[&str]; 8] = [
        &["gpu-a:5:5 [0] NCCL INFO Bootstrap : Using lo:127.0.0.1<0>"],
        &["gpu-a:5:5 [0] NCCL INFO NET/Socket : Using [0]ens5:10.9.0.4<0> [1]usb0:fe80::2:3%usb0<0>"],
        // PyTorch's store, which is no connection of NCCL's.
        &[
            "gpu-a:5:5 [0] NCCL INFO Bootstrap : Using lo:127.0.0.1<0>",
            "failed to connect to 10.9.0.4:29500: timed out",
        ],
        &[
            "pod-0:5:5 [0] NCCL INFO Bootstrap : Using veth0:2001:db8::7<0>",
            "pod-1:7:7 [0] NCCL INFO Bootstrap : Using veth0:2001:db8::8<0>",
            REFUSED,
        ],
        &["gpu-a:5:5 [0] NCCL INFO NET/Socket : Using [0]ens5:10.9.0.4<0> [1]lo:127.0.0.1<0>", REFUSED],
        &[
            "gpu-a:5:5 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to br-",
            "gpu-a:5:5 [0] NCCL INFO Bootstrap : Using br-data:10.9.0.4<0>",
        ],
        &[
            "gpu-a:5:5 [0] NCCL INFO NET/Socket : Using [0]ens5:10.9.0.4<0> [1]veth81a:fe80::2:3%veth81a<0>",
            "gpu-a:5:6 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        ],
        &[
            "gpu-a:5:5 [0] NCCL INFO Bootstrap : Using lo:127.0.0.1<0>",
            "gpu-a:5:6 [0] NCCL INFO Channel 00 : 0[1a000] -> 1[1c000] via SHM/direct/direct",
        ],
    ];
    for lines in cases {
        assert_eq!(found(lines), None, "{lines:?}");
    }
}

#[test]
fn an_address_that_was_never_filled_in_comes_of_a_name_that_does_not_exist() {
    let error = "ncclSocketInit: connecting to address  with family 31744 is neither AF_INET(2) nor AF_INET6(10)";
    let setting = "gpu-a:5:5 [3] NCCL INFO NCCL_SOCKET_IFNAME set by environment to bond7";
    let warning = format!("gpu-a:5:6 [3] misc/socket.cc:9 NCCL WARN {error}");
    let cases = [
        (vec![setting, &warning], Some(Code::NetWrongInterface)),
        (vec![setting, "Last error:", error], Some(Code::NetWrongInterface)),
        (vec!["Last error:", error], Some(Code::NetUnreachable)),
        (vec![setting], None),
    ];
    for (lines, code) in cases {
        let run = busbw_ingest::read_bytes(&[("log", lines.join("\n").as_bytes())]).expect("text");
        let found = without_address(&Case::new(&run));
        assert_eq!(found.first().map(|finding| finding.code), code, "{lines:?}");
        let named = found.iter().all(|f| f.code != Code::NetWrongInterface || f.title.contains("bond7"));
        assert!(named, "{found:?}");
    }
}
