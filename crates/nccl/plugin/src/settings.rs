//! What the environment asks for: NCCL's variables for its own socket transport, and two of ours.

use crate::border::{Failure, Result};
use busbw_transport::tcp::Config;
use std::time::Duration;

/// A peer whose host answers nothing for so long is taken for dead: longer than a switch's port or a bond takes to come back,
/// shorter than the watchdogs of frameworks.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The cores that a process may run on are shared with those of other GPUs, with frameworks and with NCCL's own threads: a
/// helper for each so many at most.
const CORES_PER_HELPER: usize = 4;

/// The transport's settings.
pub(crate) fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Config> {
    let timeout = match variable("BUSBW_NET_TIMEOUT").as_deref().map(str::trim) {
        None | Some("") => Some(TIMEOUT),
        Some(text) => match text.parse::<u32>() {
            Ok(0) => None,
            Ok(seconds) => Some(Duration::from_secs(seconds.into())),
            Err(_) => {
                return Err(Failure::setting(format!(
                    "BUSBW_NET_TIMEOUT={text}: a number of seconds is possible, 0 for the kernel's own patience"
                )));
            }
        },
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let spare_cores = cores / CORES_PER_HELPER;
    Ok(Config { timeout, measured: true, spare_cores, ..Config::from_env(variable)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Result<Config> {
        read(&|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn reads_its_variables() {
        let default = with("", "").unwrap();
        assert_eq!((default.checksum, default.timeout), (false, Some(TIMEOUT)));
        assert!(with("BUSBW_NET_CHECKSUM", "1").unwrap().checksum);
        assert_eq!(with("BUSBW_NET_TIMEOUT", "7").unwrap().timeout, Some(Duration::from_secs(7)));
        assert_eq!(with("BUSBW_NET_TIMEOUT", "0").unwrap().timeout, None);
        assert_eq!(with("NCCL_SOCKET_NTHREADS", "3").unwrap().threads, Some(3));
    }

    #[test]
    fn a_wrong_value_is_named() {
        for (name, value) in [("BUSBW_NET_CHECKSUM", "yes"), ("BUSBW_NET_TIMEOUT", "-1"), ("NCCL_SOCKET_NTHREADS", "x")]
        {
            let failure = with(name, value).unwrap_err();
            assert!(failure.text().contains(&format!("{name}={value}")), "{failure:?}");
        }
    }
}
