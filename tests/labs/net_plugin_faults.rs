//! NCCL's network plugin between hosts, of several NICs or with a network that fails: hosts of a lab, with this program as NCCL on each.

use crate::support::lab::NetLab;
use crate::support::plugin::{Handle, Plugin, content, until, warnings};
use crate::support::skip::needed;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Which part a process plays, and where it connects to.
const PART: &str = "BUSBW_TEST_PART";
const HANDLE: &str = "BUSBW_TEST_HANDLE";
/// Which NIC it uses.
const DEVICE: &str = "BUSBW_TEST_DEVICE";
/// At 1 Gbit/s, seconds of messages.
const MESSAGES: usize = 160;
const SIZE: usize = 4 << 20;

/// This program on a host, playing a part. Killed when dropped.
struct Peer {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Peer {
    fn start(lab: &NetLab, host: usize, part: &str, variables: &[(&str, &str)]) -> Self {
        let mut command: Command = lab.exec(host, std::env::current_exe().expect("the test knows its file"));
        command.args(["--exact", &format!("labs::net_plugin_faults::{part}"), "--nocapture", "--test-threads", "1"]);
        for name in ["NCCL_SOCKET_FAMILY", "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD", "BUSBW_NET_CHECKSUM"] {
            command.env_remove(name);
        }
        command.env("NCCL_SOCKET_IFNAME", "eth").env(PART, part).envs(variables.iter().copied());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        Peer { child, lines }
    }

    /// What follows in the next line that begins so.
    fn next(&mut self, begins: &str) -> String {
        let mut seen = Vec::new();
        for line in self.lines.by_ref().lines().map_while(Result::ok) {
            if let Some(rest) = line.strip_prefix(begins) {
                return rest.trim().to_owned();
            }
            seen.push(line);
        }
        panic!("the peer never said {begins}, but {seen:?}");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A receiver on host 1 and a sender on host 2, once some messages have come.
fn transfer(lab: &NetLab, variables: &[(&str, &str)]) -> (Peer, Peer) {
    let mut receiver = Peer::start(lab, 1, "receives", variables);
    let handle = receiver.next("handle");
    let sender = Peer::start(lab, 2, "sends", &[variables, &[(HANDLE, handle.as_str())]].concat());
    receiver.next("received 10 ");
    (receiver, sender)
}

#[test]
fn a_cable_cut_for_a_second_costs_no_more() {
    let lab = needed!(NetLab::up(2, &["--rate", "1gbit"]));
    let (mut receiver, mut sender) = transfer(&lab, &[]);
    lab.link_down(2);
    std::thread::sleep(Duration::from_secs(1));
    lab.link_up(2);
    receiver.next("all received");
    sender.next("all sent");
}

#[test]
fn a_cable_cut_for_ever_ends_both_sides() {
    let lab = needed!(NetLab::up(2, &["--rate", "1gbit"]));
    let (mut receiver, mut sender) = transfer(&lab, &[("BUSBW_NET_TIMEOUT", "3")]);
    lab.link_down(2);
    for (peer, names) in [(&mut receiver, "10.77.0.2:"), (&mut sender, "10.77.0.1:")] {
        let error = peer.next("error");
        assert!(error.contains("ncclRemoteError") && error.contains("does not answer any more"), "{error}");
        assert!(error.contains(names), "{error}");
    }
}

#[test]
fn a_host_that_cannot_be_reached_is_an_error() {
    let lab = needed!(NetLab::up(2, &[]));
    let mut receiver = Peer::start(&lab, 1, "receives", &[]);
    let handle = receiver.next("handle");
    lab.link_down(1);
    let mut sender = Peer::start(&lab, 2, "sends", &[("BUSBW_NET_TIMEOUT", "2"), (HANDLE, &handle)]);
    let error = sender.next("error");
    assert!(error.contains("connect to 10.77.0.1:") && error.contains("from eth0 (10.77.0.2)"), "{error}");
}

#[test]
fn each_nic_carries_its_own() {
    let lab = needed!(NetLab::up(2, &["--nics", "2"]));
    for device in ["0", "1"] {
        let mut receiver = Peer::start(&lab, 1, "receives", &[(DEVICE, device)]);
        let handle = receiver.next("handle");
        let mut sender = Peer::start(&lab, 2, "sends", &[(DEVICE, device), (HANDLE, &handle)]);
        receiver.next("all received");
        let sent = sender.next("all sent");
        let carried: Vec<u64> = sent.split(' ').map(|bytes| bytes.parse().expect("a count of bytes")).collect();
        let of_device = carried[usize::from(device == "1")];
        let others: u64 = carried.iter().sum::<u64>() - of_device;
        // The last messages may still lie in the sockets; what else a NIC sends (neighbour discovery) is little.
        assert!(of_device >= (MESSAGES * SIZE / 2) as u64 && others < SIZE as u64, "device {device}: {carried:?}");
    }
}

/// What this host's NICs have sent since `before`.
fn sent_since(before: &[u64]) -> Vec<u64> {
    let counter = |nic: usize| format!("/sys/class/net/eth{nic}/statistics/tx_bytes");
    let now = (0..2).map_while(|nic| std::fs::read_to_string(counter(nic)).ok()?.trim().parse::<u64>().ok());
    now.zip(before).map(|(now, before)| now - before).collect()
}

fn device() -> i32 {
    std::env::var(DEVICE).map_or(0, |device| device.parse().expect("a device's number"))
}

fn hex(handle: &Handle) -> String {
    handle.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Handle {
    std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hexadecimal digits"))
}

/// Plays the part of this name, unless the tests as such are run; says how it ended.
fn plays(part: &str, play: impl FnOnce(&Plugin) -> Result<(), busbw_nccl_abi::NcclResult>) {
    if std::env::var(PART).is_ok_and(|own| own == part) {
        let plugin = Plugin::start().expect("the plugin starts");
        if let Err(result) = play(&plugin) {
            println!("\nerror {result} {}", warnings().join("; "));
        }
    }
}

#[test]
fn receives() {
    plays("receives", |plugin| {
        let (listener, handle) = plugin.listen_on(device());
        println!("\nhandle {}", hex(&handle));
        let receiver = until("a connection", || plugin.accept(listener).transpose())?;
        let mut room = vec![0; SIZE];
        for message in 0..MESSAGES {
            let request = plugin.irecv(receiver, &mut room, 0)?.expect("nothing else is under way");
            until("a message", || plugin.test(request).transpose())?;
            assert!(room == content(message % 4, SIZE), "message {message} is not what was sent");
            println!("\nreceived {message} ");
        }
        println!("\nall received");
        Ok(())
    });
}

#[test]
fn sends() {
    plays("sends", |plugin| {
        let handle = from_hex(&std::env::var(HANDLE).expect("a handle"));
        let before = sent_since(&[0, 0]);
        let sender = until("a connection", || plugin.connect_from(device(), &handle).transpose())?;
        let contents: Vec<Vec<u8>> = (0..4).map(|message| content(message, SIZE)).collect();
        for message in 0..MESSAGES {
            let request = plugin.isend(sender, &contents[message % 4], 0)?.expect("nothing else is under way");
            until("a send", || plugin.test(request).transpose())?;
        }
        let carried: Vec<String> = sent_since(&before).iter().map(u64::to_string).collect();
        println!("\nall sent {}", carried.join(" "));
        Ok(())
    });
}
