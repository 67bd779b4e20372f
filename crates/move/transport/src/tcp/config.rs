//! How a connection is striped, from NCCL's variables or found by itself.

use crate::wait::Cores;
use crate::{Error, Result};
use std::time::Duration;

/// Settings of the transport. `None` is found by the transport itself.
#[derive(Debug, Clone)]
pub struct Config {
    /// Helper threads per connection (`NCCL_SOCKET_NTHREADS`), at most 16. With 0, whoever calls `test` moves the bytes.
    pub threads: Option<usize>,
    /// Data sockets per helper thread (`NCCL_NSOCKS_PERTHREAD`); threads × sockets is at most 64.
    pub sockets_per_thread: Option<usize>,
    /// Cores of this host that no rank needs, for this rank's helpers: where [`Config::threads`] is `None`, so many
    /// helpers are started, at most 4.
    pub spare_cores: usize,
    /// Whether helpers are not started at first, but one by one, as long as each makes its connection faster: at most 4 for
    /// each, and [`Config::spare_cores`] for all.
    pub measured: bool,
    /// Messages up to this many bytes go whole on the control socket.
    pub inline_up_to: usize,
    /// Longer messages are cut in chunks of at most this many bytes: one for each helper thread, if that is enough.
    pub chunk: usize,
    /// Messages from this many bytes on are sent without a copy, where the kernel can; `usize::MAX` for never.
    pub zero_copy_from: usize,
    /// Whether every message carries a checksum (CRC-32C, which processors compute faster than networks carry bytes), which the receiver looks at. One side that wants it suffices.
    pub checksum: bool,
    /// A peer that answers nothing for so long is taken for dead; `None` leaves that to the kernel, which takes a quarter of
    /// an hour or two hours.
    pub timeout: Option<Duration>,
    /// The traffic class of the packets: DSCP times 4.
    pub traffic_class: Option<u8>,
    /// TCP's congestion control on the sending side, where the kernel has it.
    pub congestion: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            threads: None,
            sockets_per_thread: None,
            spare_cores: 0,
            measured: false,
            inline_up_to: 64 << 10,
            // Over veth pairs, 512 KiB is a fifth faster than 128 KiB, and as fast as 1 MiB.
            chunk: 512 << 10,
            zero_copy_from: 256 << 10,
            checksum: false,
            timeout: None,
            traffic_class: None,
            // BBR measures and paces: over veth pairs and at 100 Gbit/s that costs half the speed. Cubic is Linux's default.
            congestion: "cubic".into(),
        }
    }
}

/// Threads and sockets of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stripes {
    pub threads: usize,
    pub sockets: usize,
}

impl Config {
    /// Most helper threads per connection, as in NCCL.
    pub const MOST_THREADS: usize = 16;
    /// Most data sockets per connection, as in NCCL.
    pub const MOST_SOCKETS: usize = 64;
    /// Clouds cap one flow at 5 to 10 Gbit/s (a fifth to a tenth of the line): sixteen fill every line in use, and cost
    /// nothing measurable where flows are not capped.
    const SOCKETS: usize = 16;
    const HELPERS: usize = 4;
    /// Sockets per connection once descriptors run short.
    const SOCKETS_WHEN_SHORT: usize = 2;

    /// The default, changed by `NCCL_SOCKET_NTHREADS`, `NCCL_NSOCKS_PERTHREAD` and `BUSBW_NET_CHECKSUM` where `variable`
    /// knows them. Where the first two are unset, empty or -2 (NCCL's own word for it), the transport finds a number by itself.
    ///
    /// # Errors
    /// [`Error::Config`] names the variable, its value and the limit.
    pub fn from_env(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let threads = read(variable, "NCCL_SOCKET_NTHREADS", 0, Self::MOST_THREADS)?;
        let sockets_per_thread = read(variable, "NCCL_NSOCKS_PERTHREAD", 1, Self::MOST_SOCKETS)?;
        if let (Some(threads), Some(sockets)) = (threads, sockets_per_thread)
            && threads * sockets > Self::MOST_SOCKETS
        {
            return Err(Error::Config(format!(
                "NCCL_SOCKET_NTHREADS={threads} times NCCL_NSOCKS_PERTHREAD={sockets} is {} sockets; at most {} are possible",
                threads * sockets,
                Self::MOST_SOCKETS
            )));
        }
        Ok(Config { threads, sockets_per_thread, checksum: Self::checksum_from_env(variable)?, ..Config::default() })
    }

    /// Whether `BUSBW_NET_CHECKSUM` asks for checksums.
    ///
    /// # Errors
    /// [`Error::Config`] where it is neither 0 nor 1.
    pub fn checksum_from_env(variable: &dyn Fn(&str) -> Option<String>) -> Result<bool> {
        match variable("BUSBW_NET_CHECKSUM").as_deref().map(str::trim) {
            None | Some("" | "0") => Ok(false),
            Some("1") => Ok(true),
            Some(other) => Err(Error::Config(format!("BUSBW_NET_CHECKSUM={other}: 0 or 1 is possible"))),
        }
    }

    /// Checks what a caller set by hand.
    pub(super) fn check(&self) -> Result<()> {
        let threads = self.threads.unwrap_or(0);
        let sockets = self.sockets_per_thread.unwrap_or(1);
        if threads > Self::MOST_THREADS || sockets == 0 || threads.max(1) * sockets > Self::MOST_SOCKETS {
            return Err(Error::Config(format!(
                "{threads} helper threads with {sockets} sockets each: at most {} threads and {} sockets in all are \
                 possible, and at least one socket",
                Self::MOST_THREADS,
                Self::MOST_SOCKETS
            )));
        }
        if self.chunk == 0 || self.chunk > 1 << 30 || self.inline_up_to > 1 << 30 {
            return Err(Error::Config("chunks and inline messages are of 1 byte to 1 GiB".into()));
        }
        Ok(())
    }

    /// Most helpers of a connection that finds their number by measuring; `None` for one that does not.
    pub(super) fn most_measured(&self, cores: Cores) -> Option<usize> {
        let measured = self.measured && self.threads.is_none() && cores == Cores::Own;
        measured.then(|| self.spare_cores.min(Self::HELPERS)).filter(|most| *most > 0)
    }

    /// Threads and sockets of a new connection. `sockets_left` is how many more descriptors may be opened.
    pub(super) fn stripes(&self, cores: Cores, sockets_left: usize) -> Stripes {
        let threads = self.threads.unwrap_or(match cores {
            Cores::Own if !self.measured => self.spare_cores.min(Self::HELPERS),
            _ => 0,
        });
        let lanes = threads.max(1);
        let sockets = match self.sockets_per_thread {
            Some(per_thread) => (per_thread * lanes).min(Self::MOST_SOCKETS),
            None if sockets_left <= 2 * Self::SOCKETS => Self::SOCKETS_WHEN_SHORT.max(lanes),
            None => Self::SOCKETS.max(lanes),
        };
        Stripes { threads, sockets }
    }
}

fn read(variable: &dyn Fn(&str) -> Option<String>, name: &str, least: usize, most: usize) -> Result<Option<usize>> {
    let Some(text) = variable(name) else { return Ok(None) };
    let text = text.trim();
    if text.is_empty() || text == "-2" {
        return Ok(None);
    }
    match text.parse() {
        Ok(value) if (least..=most).contains(&value) => Ok(Some(value)),
        _ => Err(Error::Config(format!("{name}={text}: a whole number from {least} to {most} is possible"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(threads: &'static str, sockets: &'static str) -> Result<Config> {
        Config::from_env(&|name| {
            Some(match name {
                "NCCL_SOCKET_NTHREADS" => threads.into(),
                "NCCL_NSOCKS_PERTHREAD" => sockets.into(),
                _ => return None,
            })
        })
    }

    #[test]
    fn reads_nccls_variables() {
        for (threads, sockets, stripes) in [
            ("", "", Stripes { threads: 2, sockets: 16 }),
            ("-2", "-2", Stripes { threads: 2, sockets: 16 }),
            ("0", "3", Stripes { threads: 0, sockets: 3 }),
            ("4", "", Stripes { threads: 4, sockets: 16 }),
            ("", "8", Stripes { threads: 2, sockets: 16 }),
            ("16", "4", Stripes { threads: 16, sockets: 64 }),
            (" 2 ", "1", Stripes { threads: 2, sockets: 2 }),
        ] {
            let config = Config { spare_cores: 2, ..from(threads, sockets).unwrap() };
            assert_eq!(config.stripes(Cores::Own, 1000), stripes, "{threads:?} {sockets:?}");
        }
    }

    #[test]
    fn a_wrong_value_is_named_with_its_limit() {
        for (threads, sockets, says) in [
            ("17", "", "NCCL_SOCKET_NTHREADS=17: a whole number from 0 to 16"),
            ("many", "", "NCCL_SOCKET_NTHREADS=many"),
            ("-1", "", "NCCL_SOCKET_NTHREADS=-1"),
            ("", "0", "NCCL_NSOCKS_PERTHREAD=0: a whole number from 1 to 64"),
            ("", "65", "NCCL_NSOCKS_PERTHREAD=65"),
            ("9", "8", "NCCL_SOCKET_NTHREADS=9 times NCCL_NSOCKS_PERTHREAD=8 is 72 sockets; at most 64"),
        ] {
            let error = from(threads, sockets).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn finds_its_stripes_by_itself() {
        let config = Config { spare_cores: 9, ..Config::default() };
        assert_eq!(config.stripes(Cores::Own, 1000), Stripes { threads: 4, sockets: 16 });
        assert_eq!(config.stripes(Cores::Shared, 1000), Stripes { threads: 0, sockets: 16 });
        assert_eq!(config.stripes(Cores::Shared, 20), Stripes { threads: 0, sockets: 2 });
        assert_eq!(Config::default().stripes(Cores::Own, 1000), Stripes { threads: 0, sockets: 16 });
    }
}
