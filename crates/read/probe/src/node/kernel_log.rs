//! Xid errors of GPUs, from the kernel's log.

use crate::Root;
use busbw_model::node::{Known, XidLine};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

const LOG: &str = "/dev/kmsg";
/// A record is no longer (`PRINTKRB_RECORD_MAX` of the kernel's printk), and a log has no more of them.
const LONGEST_RECORD: usize = 8192;
const MOST_RECORDS: usize = 1 << 18;
/// More kinds of errors add nothing new.
const MOST_XIDS: usize = 64;

pub(super) fn xids(root: &Root) -> Known<Vec<XidLine>> {
    let read = if root.is_live() { live() } else { root.read(LOG) };
    match read {
        Ok(text) => Known::Known(each_once(text.lines().filter_map(xid))),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Known::Unknown("only root may read the kernel's log here (kernel.dmesg_restrict=1)".into())
        }
        Err(error) => Known::Unknown(format!("{LOG}: {error}")),
    }
}

/// All records that are there now. Each read gives one; EPIPE says that some were overwritten meanwhile.
fn live() -> io::Result<String> {
    let mut log = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(LOG)?;
    let (mut text, mut record) = (String::new(), vec![0; LONGEST_RECORD]);
    for _ in 0..MOST_RECORDS {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(length) if holds_xid(&record[..length]) => text.push_str(&String::from_utf8_lossy(&record[..length])),
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(text)
}

/// The first line of each error of each device: a GPU may repeat one a thousand times, and then fall off the bus.
fn each_once(lines: impl Iterator<Item = XidLine>) -> Vec<XidLine> {
    let mut found: Vec<XidLine> = Vec::new();
    for line in lines {
        let is_known = found.iter().any(|known| known.pci == line.pci && known.code == line.code);
        if !is_known && found.len() < MOST_XIDS {
            found.push(line);
        }
    }
    found
}

fn holds_xid(record: &[u8]) -> bool {
    memchr::memmem::find(record, b"NVRM: Xid").is_some()
}

/// `… NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.`
fn xid(line: &str) -> Option<XidLine> {
    let (_, rest) = line.split_once("NVRM: Xid (PCI:")?;
    let (pci, rest) = rest.split_once("): ")?;
    let (code, text) = rest.split_once(',').unwrap_or((rest, ""));
    Some(XidLine { pci: pci.to_owned(), code: code.trim().parse().ok()?, text: text.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_xid_has_a_device_a_number_and_a_text() {
        let line = "4,1532,99;NVRM: Xid (PCI:0000:17:00): 79, pid=1234, GPU has fallen off the bus.";
        let xid = xid(line).expect("an Xid");
        assert_eq!((xid.pci.as_str(), xid.code), ("0000:17:00", 79));
        assert_eq!(xid.text, "pid=1234, GPU has fallen off the bus.");
        assert!(super::xid("NVRM: GPU at PCI:0000:17:00: GPU-1").is_none());
    }

    #[test]
    fn an_error_behind_many_of_another_kind_is_told() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("dev")).unwrap();
        let line = |code: u32| format!("4,1532,99;NVRM: Xid (PCI:0000:17:00): {code}, pid=1234, text\n");
        std::fs::write(folder.path().join("dev/kmsg"), line(31).repeat(100) + &line(79)).unwrap();
        let found = xids(&Root::captured(folder.path()).unwrap());
        let codes: Vec<u32> = found.get().unwrap().iter().map(|xid| xid.code).collect();
        assert_eq!(codes, [31, 79]);
    }

    /// Whatever this machine allows: an answer or a reason, and no waiting for messages to come.
    #[test]
    fn the_log_of_this_machine_is_read_without_waiting() {
        assert!(match xids(&Root::live()) {
            Known::Known(_) => true,
            Known::Unknown(why) => !why.is_empty(),
        });
    }
}
