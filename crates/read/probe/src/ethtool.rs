//! Asks a network driver through the kernel, as `ethtool` does (include/uapi/linux/ethtool.h and sockios.h).

use nix::sys::socket::{AddressFamily, SockFlag, SockType};
use std::os::fd::{AsRawFd, OwnedFd};

const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// A socket to ask by; any will do.
pub(crate) fn socket() -> Option<OwnedFd> {
    nix::sys::socket::socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).ok()
}

/// A request of ethtool's: 32-bit words in memory that is aligned for the 64-bit ones behind them.
pub(crate) struct Request {
    words: Vec<u64>,
}

impl Request {
    /// Room for `length` bytes and a reserve: a driver whose number of counters grows just now writes them all.
    pub fn new(command: u32, length: usize) -> Self {
        let mut request = Request { words: vec![0; 2 * length.div_ceil(8) + 1024] };
        request.put(0, command);
        request
    }

    /// Writes a 32-bit word at a byte that is a multiple of four.
    pub fn put(&mut self, at: usize, value: u32) {
        let (word, shift) = (at / 8, (at % 8) * 8);
        let mut bytes = self.words[word].to_ne_bytes();
        bytes[shift / 8..shift / 8 + 4].copy_from_slice(&value.to_ne_bytes());
        self.words[word] = u64::from_ne_bytes(bytes);
    }

    /// The 32-bit word at a byte.
    pub fn get(&self, at: usize) -> u32 {
        let bytes = self.bytes(at, 4);
        u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    /// The 64-bit words from a byte that is a multiple of eight.
    pub fn words(&self, from: usize, count: usize) -> &[u64] {
        &self.words[from / 8..from / 8 + count]
    }

    /// The text in a field, as far as its first zero.
    pub fn text(&self, from: usize, length: usize) -> String {
        let bytes = self.bytes(from, length);
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
    }

    fn bytes(&self, from: usize, length: usize) -> Vec<u8> {
        let words = self.words[from / 8..].iter().flat_map(|word| word.to_ne_bytes());
        words.skip(from % 8).take(length).collect()
    }

    /// Asks; none where the kernel or the driver does not answer.
    pub fn send(&mut self, socket: &OwnedFd, interface: &str) -> Option<()> {
        // SAFETY: zeroes are a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let name = interface.as_bytes();
        // One byte stays zero, the end of the name.
        if name.len() >= request.ifr_name.len() {
            return None;
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name) {
            *to = (*from).cast_signed();
        }
        request.ifr_ifru.ifru_data = self.words.as_mut_ptr().cast();
        // SAFETY: ifr_name ends in a zero, and ifru_data points to memory of this request with room for the answer: the
        // kernel copies at most what the command's structure and the count in it say, rounded to the driver's own count,
        // for which there is a reserve.
        let answer = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
        (answer == 0).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lie_where_the_kernel_looks() {
        let mut request = Request::new(7, 16);
        request.put(4, 9);
        request.put(8, 11);
        assert_eq!((request.get(0), request.get(4), request.get(8), request.get(12)), (7, 9, 11, 0));
        request.put(8, u32::from_ne_bytes(*b"mlx5"));
        assert_eq!((request.text(8, 32).as_str(), request.text(8, 3).as_str()), ("mlx5", "mlx"));
        assert_eq!(request.words(8, 1)[0].to_ne_bytes()[..4], *b"mlx5");
    }
}
