//! Runs perftest: starts its programs with fixed arguments, ends them with this process, and reads their output.

use crate::plan::Plan;
use crate::rdma::RdmaEnd;
use busbw_ingest::TextLine;
use busbw_ingest::perftest::PerftestReader;
use busbw_model::{Bytes, LinkLatency, PerfRow, Place};
use busbw_probe::{Program, Root};
use busbw_transport::Cancellation;
use nix::sys::signal::{SigSet, Signal};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Another program may take the free port before perftest listens there.
const TRIES: usize = 3;
/// A round trip is measured so often.
const ROUND_TRIPS: u32 = 1000;
/// A message of a round trip, in bytes.
const SMALL: u64 = 8;

/// What a program of perftest measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Measure {
    /// The client writes into the server's memory.
    Write,
    Read,
    WriteBothWays,
    /// One small write after the other, to and fro.
    Latency,
}

/// One run of perftest, as one side of it is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Perftest {
    pub measure: Measure,
    pub end: RdmaEnd,
    pub size: Bytes,
    pub queue_pairs: u32,
    pub seconds: u32,
}

/// What the client printed, and what its counters say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PerftestFigures {
    pub gbit_s: Option<f64>,
    pub latency: Option<LinkLatency>,
    pub losses: Vec<(String, u64)>,
}

impl Measure {
    fn program(self) -> &'static str {
        match self {
            Measure::Write | Measure::WriteBothWays => "ib_write_bw",
            Measure::Read => "ib_read_bw",
            Measure::Latency => "ib_write_lat",
        }
    }
}

/// What is said where this host lacks a program that measures so.
pub(crate) fn missing(plan: &Plan) -> Option<String> {
    let needed = [if plan.read { Measure::Read } else { Measure::Write }, Measure::Latency];
    let lacking = needed.map(Measure::program).into_iter().find(|program| Program::find(program).is_none());
    lacking.map(is_missing)
}

fn is_missing(program: &str) -> String {
    format!("{program} is missing: install perftest, or measure with --tcp")
}

impl Perftest {
    pub fn program(&self) -> &'static str {
        self.measure.program()
    }

    /// The arguments, but for the server's address.
    fn arguments(&self, port: u16) -> Vec<String> {
        let RdmaEnd { device, port: device_port, gid_index, .. } = &self.end;
        let mut words =
            vec![format!("--ib-dev={device}"), format!("--ib-port={device_port}"), format!("--port={port}")];
        words.extend(gid_index.map(|index| format!("--gid-index={index}")));
        // No warning about frequencies of cores, which a virtual machine does not know.
        words.push("--CPU-freq".into());
        match self.measure {
            Measure::Latency => words.extend([format!("--size={SMALL}"), format!("--iters={ROUND_TRIPS}")]),
            _ => {
                words.extend([format!("--size={}", self.size.0), format!("--qp={}", self.queue_pairs)]);
                // In MiB/s, which has more digits of a slow link than Gbit/s has.
                words.push(format!("--duration={}", self.seconds));
            }
        }
        if self.measure == Measure::WriteBothWays {
            words.push("--bidirectional".into());
        }
        words
    }

    /// Starts the serving side, and gives it once it listens, with where.
    pub fn serve(&self, address: IpAddr, cancel: &Cancellation) -> Result<(Process, SocketAddr), String> {
        let mut ended = String::new();
        for _ in 0..TRIES {
            let port = free_port(address)?;
            let mut process = Process::start(self.program(), &self.arguments(port))?;
            loop {
                if listens(&Root::live(), port) {
                    return Ok((process, SocketAddr::new(address, port)));
                }
                if process.child.try_wait().map_err(|e| e.to_string())?.is_some() {
                    ended = process.end(cancel).err().unwrap_or_else(|| "ended at once".into());
                    break;
                }
                cancel.check().map_err(|error| format!("{} does not listen: {error}", self.program()))?;
                std::thread::sleep(LOOK_EVERY);
            }
        }
        Err(ended)
    }

    /// Runs the client's side to its end.
    pub fn drive(&self, server: SocketAddr, cancel: &Cancellation) -> Result<PerftestFigures, String> {
        let mut arguments = self.arguments(server.port());
        if server.is_ipv6() {
            arguments.push("--ipv6-addr".into());
        }
        arguments.push(server.ip().to_string());
        let printed = Process::start(self.program(), &arguments)?.end(cancel)?;
        figures(&printed).ok_or_else(|| format!("{} printed no result: {}", self.program(), one_line(&printed)))
    }
}

fn figures(printed: &str) -> Option<PerftestFigures> {
    let mut reader = PerftestReader::default();
    for text in printed.lines() {
        reader.feed(&TextLine { place: Place::default(), stream: "", text });
    }
    match reader.finish().pop()?.rows.pop()? {
        PerfRow::Bandwidth { average_gbit_s, .. } => {
            Some(PerftestFigures { gbit_s: Some(average_gbit_s), ..PerftestFigures::default() })
        }
        PerfRow::Latency { typical, average, p99, .. } => {
            let median = typical.or(average)?;
            let latency = Some(LinkLatency { median, p99: p99.unwrap_or(median) });
            Some(PerftestFigures { latency, ..PerftestFigures::default() })
        }
    }
}

/// A port that nobody listens on at `address`.
fn free_port(address: IpAddr) -> Result<u16, String> {
    let listener = TcpListener::bind((address, 0)).and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| format!("no free port on {address}: {error}"))
}

/// Whether anything listens on a port. To ask by connecting would be taken for the client.
fn listens(root: &Root, port: u16) -> bool {
    let of = |table: &str| {
        let text = root.value(table).unwrap_or_default();
        text.lines().any(|line| {
            let mut cells = line.split_whitespace().skip(1);
            let local = cells.next().and_then(|local| u16::from_str_radix(local.rsplit(':').next()?, 16).ok());
            // 0A is LISTEN (`include/net/tcp_states.h` of Linux).
            local == Some(port) && cells.nth(1) == Some("0A")
        })
    };
    of("/proc/net/tcp") || of("/proc/net/tcp6")
}

/// A program of perftest that runs. Killed when dropped, and when this process dies.
pub(crate) struct Process {
    program: &'static str,
    child: Child,
    printed: Vec<JoinHandle<String>>,
}

impl Process {
    fn start(program: &'static str, arguments: &[String]) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let prepare = || {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            // This process waits for signals in a thread, and blocks them in all others.
            SigSet::empty().thread_set_mask()?;
            Ok(())
        };
        // SAFETY: between fork and exec, the closure makes two system calls; it allocates nothing and takes no lock.
        unsafe { command.pre_exec(prepare) };
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => is_missing(program),
            _ => format!("cannot start {program}: {error}"),
        })?;
        let mut printed: Vec<JoinHandle<String>> = Vec::new();
        printed.extend(child.stdout.take().map(read));
        printed.extend(child.stderr.take().map(read));
        Ok(Process { program, child, printed })
    }

    /// Waits for its end, and gives what it printed.
    pub fn end(mut self, cancel: &Cancellation) -> Result<String, String> {
        let status = loop {
            if let Some(status) = self.child.try_wait().map_err(|e| format!("cannot wait for {}: {e}", self.program))? {
                break status;
            }
            if let Err(error) = cancel.check() {
                return Err(format!("{} was ended: {error}", self.program));
            }
            std::thread::sleep(LOOK_EVERY);
        };
        let printed: Vec<String> = self.printed.drain(..).map(|reader| reader.join().unwrap_or_default()).collect();
        self.judge(status, &printed)
    }

    fn judge(&self, status: ExitStatus, printed: &[String]) -> Result<String, String> {
        let [out, err] = printed else { return Err(format!("{}: no output", self.program)) };
        if status.success() {
            return Ok(out.clone());
        }
        let said = if err.trim().is_empty() { out } else { err };
        Err(format!("{} failed: {}", self.program, one_line(said)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended before; both calls then only say so.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read until an error is still worth showing.
        let _ = pipe.by_ref().take(1 << 20).read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The lines that say something, as one of at most 200 characters.
fn one_line(said: &str) -> String {
    let telling = said.lines().map(str::trim).filter(|line| {
        !line.is_empty() && !line.starts_with("WARNING") && !line.bytes().all(|b| b == b'-') && !line.starts_with('*')
    });
    telling.collect::<Vec<_>>().join("; ").chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::Micros;

    fn perftest(measure: Measure) -> Perftest {
        let end = RdmaEnd {
            device: "mlx5_0".into(),
            port: 1,
            gid_index: Some(3),
            rate_gbit_s: None,
            hardware: true,
            quality_of_service: None,
        };
        Perftest { measure, end, size: Bytes(65536), queue_pairs: 4, seconds: 1 }
    }

    #[test]
    fn command_lines() {
        let common = "--ib-dev=mlx5_0 --ib-port=1 --port=4711 --gid-index=3 --CPU-freq";
        for (measure, program, behind) in [
            (Measure::Write, "ib_write_bw", "--size=65536 --qp=4 --duration=1"),
            (Measure::Read, "ib_read_bw", "--size=65536 --qp=4 --duration=1"),
            (Measure::WriteBothWays, "ib_write_bw", "--size=65536 --qp=4 --duration=1 --bidirectional"),
            (Measure::Latency, "ib_write_lat", "--size=8 --iters=1000"),
        ] {
            let test = perftest(measure);
            assert_eq!((test.program(), test.arguments(4711).join(" ")), (program, format!("{common} {behind}")));
        }
    }

    #[test]
    fn results_are_read() {
        let bandwidth = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n \
                         65536      2176             0.00               98.31               0.000725\n";
        assert_eq!(figures(bandwidth).unwrap().gbit_s, Some(98.31));
        let latency = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    \
                       t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]\n \
                       8       1000          1.01           9.31         1.07                1.10             0.10         \
                       1.31                    9.31\n";
        let expected = LinkLatency { median: Micros(1.07), p99: Micros(1.31) };
        assert_eq!(figures(latency).unwrap().latency, Some(expected));
        assert_eq!(figures(" Couldn't connect to 10.1.1.1:4711\n"), None);
    }

    #[test]
    fn sees_who_listens() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc/net")).unwrap();
        let table = "  sl  local_address rem_address   st tx_queue\n   0: 00000000:1267 00000000:0000 0A 0:0\n   \
                     1: 0100007F:1268 0100007F:A000 01 0:0\n";
        std::fs::write(folder.path().join("proc/net/tcp"), table).unwrap();
        let root = Root::captured(folder.path()).unwrap();
        assert!(listens(&root, 4711));
        assert!(!listens(&root, 4712), "connected, not listening");
    }

    #[test]
    fn what_a_program_says_becomes_one_line() {
        let said =
            "WARNING: no frequency\n Completion with error at client\n\n Failed status 12: wr_id 0 syndrom 0x81\n";
        assert_eq!(one_line(said), "Completion with error at client; Failed status 12: wr_id 0 syndrom 0x81");
    }
}
