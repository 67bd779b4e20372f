//! What /proc tells of one process, by proc(5).

use crate::Root;
use busbw_model::ProcessState;

/// Ticks of /proc/PID/stat per second: USER_HZ, 100 on every architecture that Linux runs GPUs on.
const TICK_US: u64 = 10_000;

/// Of /proc/PID/stat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    pub state: ProcessState,
    pub parent: u32,
    /// User and system time, in microseconds.
    pub cpu_us: u64,
    /// When it was started, in ticks since the system's start: with the number, this is the process.
    pub started: u64,
    /// As waitpid(2) tells it: of a zombie, where this user may know.
    pub wait_status: i32,
}

impl Stat {
    pub fn read(root: &Root, pid: u32) -> Option<Self> {
        Self::parse(&root.value(&format!("/proc/{pid}/stat"))?)
    }

    /// Fields stand behind the name, which may hold spaces and brackets.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Stat {
            state: state(fields.first()?),
            parent: u32::try_from(number(4)?).ok()?,
            cpu_us: (number(14)? + number(15)?) * TICK_US,
            started: number(22)?,
            wait_status: fields.get(52 - 3).and_then(|code| code.parse().ok()).unwrap_or(0),
        })
    }
}

fn state(letter: &str) -> ProcessState {
    match letter {
        "R" => ProcessState::Running,
        // I is an idle thread of the kernel, W and K are of kernels before 4.
        "S" => ProcessState::Sleeping,
        "D" => ProcessState::Uninterruptible,
        "T" => ProcessState::Stopped,
        "t" => ProcessState::Traced,
        "Z" => ProcessState::Zombie,
        "X" | "x" => ProcessState::Gone,
        _ => ProcessState::Unknown,
    }
}

/// Of /proc/PID/io: `rchar` and `wchar` count what read(2), readv(2) and their kin move, also through sockets; not recv(2) and send(2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Io {
    pub read_chars: u64,
    pub written_chars: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
}

impl Io {
    pub fn read(root: &Root, pid: u32) -> Option<Self> {
        let text = root.value(&format!("/proc/{pid}/io"))?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().parse().ok()
        };
        Some(Io {
            read_chars: field("rchar")?,
            written_chars: field("wchar")?,
            read_bytes: field("read_bytes").unwrap_or(0),
            write_bytes: field("write_bytes").unwrap_or(0),
        })
    }
}

/// How often the main thread waited.
pub fn switches(root: &Root, pid: u32) -> Option<u64> {
    let text = root.value(&format!("/proc/{pid}/status"))?;
    text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
}

/// The number that /proc/PID/syscall begins with. `running` of a thread on a core, -1 of one that waits outside a system call.
pub fn system_call(root: &Root, pid: u32) -> Option<i64> {
    let text = root.value(&format!("/proc/{pid}/syscall"))?;
    text.split_whitespace().next()?.parse().ok()
}

/// Where the main thread waits; `0` where it does not.
pub fn kernel_function(root: &Root, pid: u32) -> Option<String> {
    root.value(&format!("/proc/{pid}/wchan")).filter(|name| name != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_shifts_nothing() {
        let text = "4242 (a) b (c) T 1 4242 4242 0 -1 4194304 100 0 0 0 12 5 0 0 20 0 1 0 9876 1000 200 \
                    18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 9";
        let stat = Stat::parse(text).expect("fields");
        let expected = Stat { state: ProcessState::Stopped, parent: 1, cpu_us: 170_000, started: 9876, wait_status: 9 };
        assert_eq!(stat, expected);
        assert_eq!(Stat::parse("4242 (cut"), None);
    }
}
