//! Asks NCCL's RAS, as `ncclras` does (NCCL 2.24 and later, src/ras/client.cc): lines in, text or JSON out.

use busbw_ingest::read_bytes;
use busbw_model::{RasReport, WatchSource};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// `NCCL_RAS_CLIENT_PORT`.
const PORT: u16 = 28028;
/// For the connection and each line of the greeting.
const GREETING: Duration = Duration::from_secs(2);
/// RAS waits so long for ranks that do not answer (`TIMEOUT`), and once more for the rest.
const LEG: Duration = Duration::from_secs(2);
const LONGEST: u64 = 64 << 20;
const LONGEST_LINE: usize = 1 << 10;

/// Why RAS told nothing.
#[derive(Debug, thiserror::Error)]
pub enum RasError {
    #[error("{0}: no such address")]
    Unknown(String),
    #[error(
        "{address} does not answer: {error}; RAS is on in NCCL 2.24 and later, unless NCCL_RAS_ENABLE=0, and listens where NCCL_RAS_ADDR says, else at localhost:28028 of each host"
    )]
    Unreachable { address: String, error: io::Error },
    #[error("{address} answers `{said}`: that is not NCCL's RAS")]
    Stranger { address: String, said: String },
    #[error("{address} broke off: {error}")]
    Broken { address: String, error: io::Error },
}

/// `HOST:PORT` of what a user gave.
pub fn address(text: &str) -> String {
    let has_port = match text.rsplit_once(':') {
        Some((host, port)) => port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')),
        None => false,
    };
    match (has_port, text.contains(':') && !text.starts_with('[')) {
        (true, _) => text.to_owned(),
        (false, true) => format!("[{text}]:{PORT}"),
        (false, false) => format!("{text}:{PORT}"),
    }
}

/// Asks for the status, as JSON where RAS has it.
///
/// # Errors
/// Nobody is there, or it is not RAS. What comes is bounded, in time and in size.
pub fn ask(address: &str) -> Result<String, RasError> {
    let name = address.to_owned();
    let mut found = address.to_socket_addrs().map_err(|_| RasError::Unknown(name.clone()))?;
    let first = found.next().ok_or_else(|| RasError::Unknown(name.clone()))?;
    let connected = TcpStream::connect_timeout(&first, GREETING).and_then(|stream| {
        stream.set_read_timeout(Some(GREETING))?;
        stream.set_write_timeout(Some(GREETING))?;
        Ok(stream)
    });
    let mut stream = connected.map_err(|error| RasError::Unreachable { address: name.clone(), error })?;
    let mut say =
        |line: &str| say(&mut stream, line).map_err(|error| RasError::Broken { address: name.clone(), error });
    let greeting = say("CLIENT PROTOCOL 2\n")?;
    if !greeting.to_ascii_uppercase().starts_with("SERVER PROTOCOL ") {
        let said = greeting.chars().filter(|c| !c.is_control()).take(40).collect();
        return Err(RasError::Stranger { address: name, said });
    }
    say(&format!("TIMEOUT {}\n", LEG.as_secs()))?;
    // Earlier versions say `ERROR: Unknown command`, and go on with text.
    say("SET FORMAT json\n")?;
    let broken = |error| RasError::Broken { address: name.clone(), error };
    stream.write_all(b"VERBOSE STATUS\n").map_err(broken)?;
    let mut answer = Vec::new();
    let until = Instant::now() + LEG * 2 + GREETING;
    let mut block = vec![0; 64 << 10];
    while (answer.len() as u64) < LONGEST {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        stream.set_read_timeout(Some(left)).map_err(broken)?;
        match stream.read(&mut block) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&block[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // What came so far is worth reading.
            Err(_) if !answer.is_empty() => break,
            Err(error) => return Err(broken(error)),
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Says a line; the line that is answered.
fn say(stream: &mut TcpStream, line: &str) -> io::Result<String> {
    stream.write_all(line.as_bytes())?;
    let mut answer = Vec::new();
    let mut byte = [0];
    while answer.len() < LONGEST_LINE && stream.read(&mut byte)? > 0 {
        if byte[0] == b'\n' {
            return Ok(String::from_utf8_lossy(&answer).into_owned());
        }
        answer.push(byte[0]);
    }
    if answer.is_empty() {
        Err(io::ErrorKind::UnexpectedEof.into())
    } else {
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// What an answer says; none where it is no report.
pub fn read(text: &str) -> Option<RasReport> {
    read_bytes(&[("ras.txt", text.as_bytes())]).ok()?.ras_reports.pop()
}

/// A communicator's hash, and of each kind of operation the least and the most that a rank launched.
pub type Counts = (String, Vec<(String, u64, u64)>);

/// How far each communicator is: the same numbers twice are no progress. None where a report has no counts, as text has none while
/// all ranks agree.
pub fn progress(report: &RasReport) -> Option<Vec<Counts>> {
    let communicators: Vec<Counts> = report
        .communicators
        .iter()
        .map(|comm| {
            let counts = comm.launched.iter().map(|launched| {
                let least = launched.shares.iter().map(|share| share.value).min().unwrap_or(0);
                (launched.operation.clone(), least, launched.most())
            });
            (comm.hash.clone(), counts.collect::<Vec<_>>())
        })
        .collect();
    communicators.iter().any(|(_, counts)| !counts.is_empty()).then_some(communicators)
}

/// What a report says in a line, for those who look on.
pub fn summary(report: &RasReport) -> String {
    let ranks = report
        .communicators
        .iter()
        .filter_map(|comm| comm.size)
        .chain(report.groups.iter().map(|group| group.ranks))
        .max();
    let most = report.communicators.iter().flat_map(|comm| &comm.launched).map(|launched| launched.most()).max();
    let differ =
        report.communicators.iter().flat_map(|comm| &comm.launched).filter(|launched| launched.differs()).count();
    let most = most.map_or("no counts (ranks agree)".to_owned(), |most| format!("operation {most}"));
    format!(
        "{} ranks, {most}, ranks differ in {differ} kinds of operations, {} processes do not answer",
        ranks.unwrap_or(0),
        report.lost_processes.len()
    )
}

/// How RAS as a source is told of.
pub fn source(asked: &Result<String, RasError>) -> WatchSource {
    let (told, detail) = match asked {
        Ok(_) => (true, "how many collectives each rank launched, and which processes answer".to_owned()),
        Err(error) => (false, error.to_string()),
    };
    WatchSource { name: "ras".into(), told, detail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead as _;
    use std::net::TcpListener;

    #[test]
    fn the_port_is_nccls_unless_it_is_given() {
        for (text, expected) in [
            ("h1", "h1:28028"),
            ("h1:5", "h1:5"),
            ("10.0.0.1", "10.0.0.1:28028"),
            ("fd77::1", "[fd77::1]:28028"),
            ("[fd77::1]:5", "[fd77::1]:5"),
        ] {
            assert_eq!(address(text), expected);
        }
    }

    /// A server that answers each line by the next of `answers`, and closes.
    fn server(answers: &[&str]) -> String {
        let answers: Vec<String> = answers.iter().map(|answer| (*answer).to_owned()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a client");
            let mut lines = io::BufReader::new(stream.try_clone().expect("a descriptor")).lines();
            for answer in answers {
                let _ = (lines.next(), (&stream).write_all(answer.as_bytes()));
            }
        });
        address
    }

    #[test]
    fn an_answer_is_read_and_strangers_are_told() {
        let report = "NCCL version 2.27.7 compiled with CUDA 12.8\n\nErrors\n======\n\n#0-0 (27a079b828ff1a75) MISMATCH\n  \
                      Communicator ranks have different collective operation counts\n  7 ranks have launched up to operation 90\n  \
                      1 rank has launched up to operation 7\n  Rank 3 -- GPU 3 managed by process 9 on node 10.0.0.1\n";
        let address = server(&["SERVER PROTOCOL 2\n", "OK\n", "ERROR: Unknown command\n", report]);
        let said = ask(&address).expect("an answer");
        assert_eq!(said, report);
        let report = read(&said).expect("a report");
        assert!(progress(&report).is_some(), "{report:?}");
        let garbage = server(&["HTTP/1.1 400 Bad Request\r\n\x1b[31m\n"]);
        let refused = ask(&garbage).expect_err("no RAS").to_string();
        assert!(
            refused.contains("HTTP/1.1 400 Bad Request` : that") || refused.contains("that is not NCCL's RAS"),
            "{refused}"
        );
        let closed = server(&[]);
        assert!(matches!(ask(&closed), Err(RasError::Broken { .. })));
        let unused = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string();
        assert!(matches!(ask(&unused), Err(RasError::Unreachable { .. })));
        assert!(matches!(ask("no such host:1"), Err(RasError::Unknown(_))));
    }
}
