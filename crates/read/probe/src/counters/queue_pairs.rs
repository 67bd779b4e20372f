//! Queue pairs and the processes that own them, asked from the kernel over RDMA netlink, as `rdma resource show qp` does.

use super::QueuePairs;
use super::jobs::{arguments, shown};
use crate::Root;
use crate::netlink::{self, HEADER, Netlink};
use netlink_packet_core::{NlaBuffer, NlasIterator};
use netlink_sys::protocols::NETLINK_RDMA;
use nix::unistd::{SysconfVar, Uid, User, sysconf};
use std::collections::{BTreeMap, HashMap};
use std::io;

/// Linux, include/uapi/rdma/rdma_netlink.h: `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, …)`.
const NLDEV: u16 = 5 << 10;
const CMD_GET: u16 = NLDEV + 1;
const CMD_RES_QP_GET: u16 = NLDEV + 10;
const ATTR_DEV_INDEX: u16 = 1;
const ATTR_DEV_NAME: u16 = 2;
const ATTR_RES_QP: u16 = 19;
const ATTR_RES_QP_ENTRY: u16 = 20;
const ATTR_RES_STATE: u16 = 27;
const ATTR_RES_PID: u16 = 28;
const ATTR_RES_KERN_NAME: u16 = 29;
/// enum `ib_qp_state` (include/rdma/ib_verbs.h): RESET INIT RTR RTS SQD SQE ERR.
const READY_TO_SEND: u8 = 3;
const SEND_QUEUE_ERROR: u8 = 5;
/// A node has some hundred thousand queue pairs at most, of some hundred bytes; the kernel answers in pieces of 32 KiB.
const MOST_PIECES: usize = 4096;

/// One queue pair, as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuePair {
    device: String,
    owner: Owner,
    state: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Process(u32),
    Kernel(String),
}

/// A socket of RDMA netlink.
#[derive(Debug)]
pub struct QueuePairReader(Netlink);

impl QueuePairReader {
    /// Opens the socket.
    ///
    /// # Errors
    /// The kernel has no RDMA (`ib_core` is not loaded), or forbids such sockets, as containers may.
    pub fn open() -> io::Result<Self> {
        Netlink::open(NETLINK_RDMA).map(QueuePairReader)
    }

    /// The queue pairs of all devices. A device that went away meanwhile has none.
    pub fn read(&mut self) -> io::Result<Vec<QueuePair>> {
        let mut devices = Vec::new();
        self.dump(CMD_GET, None, |payload| devices.extend(device(payload)))?;
        let mut found = Vec::new();
        for (index, name) in devices {
            // One that fails in the middle keeps what it has told.
            let _ = self.dump(CMD_RES_QP_GET, Some(index), |payload| found.extend(queue_pairs(payload, &name)));
        }
        Ok(found)
    }

    /// Asks for a list, and hands over the payload of each message of the answer.
    fn dump(&mut self, command: u16, device: Option<u32>, each: impl FnMut(&[u8])) -> io::Result<()> {
        self.0.list(&request(command, device), MOST_PIECES, error, each)
    }
}

/// A request for a list: header, and the device that it is about.
fn request(command: u16, device: Option<u32>) -> Vec<u8> {
    let mut bytes = netlink::request(command, if device.is_some() { 8 } else { 0 });
    if let Some(index) = device {
        let mut attribute = NlaBuffer::new(&mut bytes[HEADER..]);
        attribute.set_length(8);
        attribute.set_kind(ATTR_DEV_INDEX);
        bytes[HEADER + 4..].copy_from_slice(&index.to_ne_bytes());
    }
    bytes
}

/// The payload of an error begins with a negative errno; zero is an acknowledgement.
fn error(payload: &[u8]) -> io::Result<()> {
    match number(payload).map(u32::cast_signed) {
        Some(0) | None => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
    }
}

/// Calls `each` with kind and value of the attributes in `payload`, as far as they are whole.
fn attributes(payload: &[u8], mut each: impl FnMut(u16, &[u8])) {
    for attribute in NlasIterator::new(payload).map_while(Result::ok) {
        each(attribute.kind(), attribute.value());
    }
}

fn device(payload: &[u8]) -> Option<(u32, String)> {
    let (mut index, mut name) = (None, None);
    attributes(payload, |kind, value| match kind {
        ATTR_DEV_INDEX => index = number(value),
        ATTR_DEV_NAME => name = Some(text(value)),
        _ => {}
    });
    Some((index?, name?))
}

fn queue_pairs(payload: &[u8], device: &str) -> Vec<QueuePair> {
    let mut found = Vec::new();
    attributes(payload, |kind, table| {
        if kind == ATTR_RES_QP {
            attributes(table, |kind, entry| {
                if kind == ATTR_RES_QP_ENTRY {
                    found.push(queue_pair(entry, device));
                }
            });
        }
    });
    found
}

fn queue_pair(entry: &[u8], device: &str) -> QueuePair {
    // What belongs to a process of another PID namespace comes with neither.
    let mut found = QueuePair { device: device.into(), owner: Owner::Kernel(String::new()), state: 0 };
    attributes(entry, |kind, value| match kind {
        ATTR_RES_STATE => found.state = value.first().copied().unwrap_or(0),
        ATTR_RES_PID => found.owner = number(value).map_or_else(|| found.owner.clone(), Owner::Process),
        ATTR_RES_KERN_NAME => found.owner = Owner::Kernel(text(value)),
        _ => {}
    });
    found
}

fn number(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*value.first_chunk()?))
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).trim_end_matches('\0').to_owned()
}

/// Tells who owns queue pairs. Users are remembered, because a directory service may have to be asked.
#[derive(Debug, Default)]
pub struct Owners {
    users: HashMap<u32, Option<String>>,
}

impl Owners {
    /// Queue pairs by device and owner, those with the most first.
    pub fn group(&mut self, root: &Root, pairs: &[QueuePair]) -> Vec<QueuePairs> {
        let mut groups: BTreeMap<(&str, &Owner), QueuePairs> = BTreeMap::new();
        for pair in pairs {
            let group = groups.entry((&pair.device, &pair.owner)).or_insert_with(|| self.named(root, pair));
            group.count += 1;
            group.ready += u32::from(pair.state == READY_TO_SEND);
            group.failed += u32::from(pair.state >= SEND_QUEUE_ERROR);
        }
        let mut groups: Vec<QueuePairs> = groups.into_values().collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.count));
        groups
    }

    fn named(&mut self, root: &Root, pair: &QueuePair) -> QueuePairs {
        let mut group = QueuePairs { device: pair.device.clone(), ..QueuePairs::default() };
        let pid = match &pair.owner {
            Owner::Process(pid) => *pid,
            Owner::Kernel(name) => {
                group.owner = if name.is_empty() { "(another container)".into() } else { name.clone() };
                return group;
            }
        };
        group.pid = Some(pid);
        let comm = || root.value(&format!("/proc/{pid}/comm"));
        group.owner = arguments(root, pid).map(|words| shown(&words)).or_else(comm).unwrap_or_default();
        group.user = self.user(root, pid);
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|size| u64::try_from(size).ok());
        let statm = root.value(&format!("/proc/{pid}/statm")).unwrap_or_default();
        let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
        group.memory_kib = pages * page.unwrap_or(4096) / 1024;
        group.cpu_ticks = root.value(&format!("/proc/{pid}/stat")).and_then(|stat| cpu_ticks(&stat)).unwrap_or(0);
        group
    }

    fn user(&mut self, root: &Root, pid: u32) -> Option<String> {
        let status = root.value(&format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        let uid: u32 = line.split_whitespace().next()?.parse().ok()?;
        let name = || User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name);
        self.users.entry(uid).or_insert_with(name).clone().or_else(|| Some(uid.to_string()))
    }
}

/// utime and stime, the 14th and 15th field of `/proc/PID/stat` (proc(5)). The second field may hold blanks.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut behind = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (behind.next()?.parse().ok()?, behind.next()?.parse().ok()?);
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::NetlinkBuffer;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn entry(owner: Vec<u8>, state: u8) -> Vec<u8> {
        attribute(ATTR_RES_QP_ENTRY, &[attribute(ATTR_RES_STATE, &[state]), owner].concat())
    }

    fn answer() -> Vec<u8> {
        let process = |pid: u32| attribute(ATTR_RES_PID, &pid.to_ne_bytes());
        let kernel = attribute(ATTR_RES_KERN_NAME, b"ib_core\0");
        let entries = [entry(process(70), 3), entry(kernel, 3), entry(process(70), 6), entry(vec![], 0)].concat();
        [attribute(ATTR_DEV_INDEX, &[0; 4]), attribute(ATTR_RES_QP, &entries)].concat()
    }

    #[test]
    fn queue_pairs_go_to_their_owners() {
        let folder = tempfile::tempdir().unwrap();
        let process = folder.path().join("proc/70");
        std::fs::create_dir_all(&process).unwrap();
        let files = [
            ("cmdline", "ib_write_bw\0-d\0rxe0\0"),
            ("status", "Name:\tib_write_bw\nUid:\t4294967\t0\t0\t0\n"),
            ("statm", "500 25 3 4 5 6 7"),
            ("stat", "70 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 40 2 0 0 20"),
        ];
        for (name, text) in files {
            std::fs::write(process.join(name), text).unwrap();
        }
        let root = Root::captured(folder.path()).unwrap();
        let groups = Owners::default().group(&root, &queue_pairs(&answer(), "rxe0"));
        let all: Vec<_> = groups.iter().map(|g| (g.pid, g.owner.as_str(), g.count, g.ready, g.failed)).collect();
        let expected = [
            (Some(70), "ib_write_bw -d rxe0", 2, 1, 1),
            (None, "(another container)", 1, 0, 0),
            (None, "ib_core", 1, 1, 0),
        ];
        assert_eq!(all, expected);
        assert_eq!((groups[0].user.as_deref(), groups[0].cpu_ticks), (Some("4294967"), 42));
        assert!(groups[0].memory_kib >= 100);
    }

    #[test]
    fn a_torn_answer_is_read_as_far_as_it_goes() {
        let whole = answer();
        for length in 0..whole.len() {
            let found = queue_pairs(&whole[..length], "rxe0");
            assert!(found.len() <= 4);
        }
        let devices = [attribute(ATTR_DEV_INDEX, &7u32.to_ne_bytes()), attribute(ATTR_DEV_NAME, b"mlx5_0\0")].concat();
        assert_eq!(device(&devices), Some((7, "mlx5_0".into())));
        assert_eq!(device(&devices[..9]), None);
        assert_eq!(device(&attribute(ATTR_DEV_INDEX, &[1])), None);
    }

    #[test]
    fn requests_are_as_the_header_file_says() {
        assert_eq!(request(CMD_GET, None).len(), 16);
        let request = request(CMD_RES_QP_GET, Some(3));
        let message = NetlinkBuffer::new_checked(&request[..]).unwrap();
        assert_eq!((message.length(), message.message_type(), message.flags()), (24, 0x140a, 0x301));
        assert_eq!(message.payload(), attribute(ATTR_DEV_INDEX, &3u32.to_ne_bytes()));
        assert!(error(&(-22i32).to_ne_bytes()).is_err() && error(&[0; 4]).is_ok());
    }
}
