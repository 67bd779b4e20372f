//! PMI-1 as MPICH's hydra speaks it, and PMI-2 as Slurm does, over the descriptor that each process inherits.
//!
//! PMI-1: one line per message, `cmd=put kvsname=a key=b value=c` (MPICH's src/pmi). PMI-2: six digits of length, then
//! `cmd=kvs-put;key=b;value=c;` (Slurm's src/plugins/mpi/pmi2).

use super::{KEY, Store};
use crate::error::BY_HAND;
use crate::{Error, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Instant;

/// No answer of a store is longer.
const LONGEST: usize = 1 << 20;

/// The inherited descriptor. It stays open until the process ends: the launcher takes its end for the process's.
struct Line {
    fd: RawFd,
    deadline: Instant,
    read: Vec<u8>,
}

impl Line {
    fn new(fd: RawFd, deadline: Instant) -> Result<Self> {
        // SAFETY: only looks at the number; an fd that is not open gives an error.
        if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return Err(Error::variable(
                "PMI_FD",
                &fd.to_string(),
                format!(
                    "is not open, so this rank cannot find the others (a script between the launcher and busbw may have \
                     closed it): start busbw directly, or {BY_HAND}"
                ),
            ));
        }
        Ok(Line { fd, deadline, read: Vec::new() })
    }

    fn borrowed(&self) -> BorrowedFd<'_> {
        // SAFETY: checked to be open in `new`; nothing in this process closes it.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }

    fn send(&self, text: &str) -> Result<()> {
        let mut left = text.as_bytes();
        while !left.is_empty() {
            self.ready(PollFlags::POLLOUT)?;
            match nix::unistd::write(self.borrowed(), left) {
                Ok(count) => left = &left[count..],
                Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => {}
                Err(error) => return Err(Error::system("write to the launcher (PMI_FD)", error.into())),
            }
        }
        Ok(())
    }

    /// Reads until `whole` finds a whole message at the start and says how long it is.
    fn receive(&mut self, whole: impl Fn(&[u8]) -> Option<usize>) -> Result<String> {
        loop {
            if let Some(length) = whole(&self.read) {
                let message: Vec<u8> = self.read.drain(..length).collect();
                return Ok(String::from_utf8_lossy(&message).into_owned());
            }
            self.ready(PollFlags::POLLIN)?;
            let mut bytes = [0; 4096];
            match nix::unistd::read(self.borrowed(), &mut bytes) {
                Ok(0) => {
                    return Err(Error::Join(
                        "the launcher closed its connection to this rank (PMI_FD): look at its output".into(),
                    ));
                }
                Ok(count) if self.read.len() + count <= LONGEST => self.read.extend_from_slice(&bytes[..count]),
                Ok(_) => {
                    return Err(Error::Join("what PMI_FD leads to is no launcher: its answer does not end".into()));
                }
                Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => {}
                Err(error) => return Err(Error::system("read from the launcher (PMI_FD)", error.into())),
            }
        }
    }

    fn ready(&self, what: PollFlags) -> Result<()> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let mut waited = [PollFd::new(self.borrowed(), what)];
            match poll(&mut waited, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
                Ok(0) => {
                    return Err(Error::Join(
                        "the launcher does not answer (PMI_FD): check that every rank was started and still runs"
                            .into(),
                    ));
                }
                Ok(_) => return Ok(()),
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(Error::system("wait for the launcher (PMI_FD)", error.into())),
            }
        }
    }
}

/// The fields of a message.
type Fields = HashMap<String, String>;

/// `a=b` items between separators. A value ends at the separator, or, being the last field, at the end.
fn fields(message: &str, separator: char) -> Fields {
    let items = message.trim_end_matches(['\n', '\0']).split(separator);
    items.filter_map(|item| item.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn checked(answer: Fields, command: &str, asked: &str) -> Result<Fields> {
    let get = |name: &str| answer.get(name).map(String::as_str);
    let good = get("cmd") == Some(command) && matches!(get("rc"), None | Some("0"));
    if good {
        return Ok(answer);
    }
    let shown = |name: &str| get(name).map_or(String::new(), |value| format!(" {name}={value}"));
    Err(Error::Join(format!(
        "the launcher answered{}{}{}{} to {:?}: it is no launcher that busbw knows; {BY_HAND}",
        shown("cmd"),
        shown("rc"),
        shown("msg"),
        shown("errmsg"),
        asked.trim_end()
    )))
}

/// A session with hydra.
pub(super) struct Pmi1 {
    line: Line,
    store: String,
}

impl Pmi1 {
    pub fn start(fd: RawFd, deadline: Instant) -> Result<Self> {
        let mut session = Pmi1 { line: Line::new(fd, deadline)?, store: String::new() };
        session.ask("cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init")?;
        let mut answer = session.ask("cmd=get_my_kvsname\n", "my_kvsname")?;
        session.store = answer.remove("kvsname").unwrap_or_default();
        Ok(session)
    }

    fn ask(&mut self, command: &str, answer: &str) -> Result<Fields> {
        self.line.send(command)?;
        let line = self.line.receive(|read| read.iter().position(|&byte| byte == b'\n').map(|end| end + 1))?;
        checked(fields(&line, ' '), answer, command)
    }
}

impl Store for Pmi1 {
    fn put(&mut self, value: &str) -> Result<()> {
        let command = format!("cmd=put kvsname={} key={KEY} value={value}\n", self.store);
        self.ask(&command, "put_result").map(drop)
    }

    fn fence(&mut self) -> Result<()> {
        self.ask("cmd=barrier_in\n", "barrier_out").map(drop)
    }

    fn get(&mut self) -> Result<String> {
        let command = format!("cmd=get kvsname={} key={KEY}\n", self.store);
        Ok(self.ask(&command, "get_result")?.remove("value").unwrap_or_default())
    }

    fn finish(&mut self) -> Result<()> {
        self.ask("cmd=finalize\n", "finalize_ack").map(drop)
    }
}

/// A session with Slurm.
pub(super) struct Pmi2 {
    line: Line,
    job: String,
}

impl Pmi2 {
    pub fn start(fd: RawFd, job: &str, rank: usize, deadline: Instant) -> Result<Self> {
        let mut session = Pmi2 { line: Line::new(fd, deadline)?, job: job.to_owned() };
        // The first question is still PMI-1's, and asks for PMI-2.
        let command = "cmd=init pmi_version=2 pmi_subversion=0\n";
        session.line.send(command)?;
        let line = session.line.receive(|read| read.iter().position(|&byte| byte == b'\n').map(|end| end + 1))?;
        checked(fields(&line, ' '), "response_to_init", command)?;
        session.ask("fullinit", &format!("pmijobid={job};pmirank={rank};threaded=FALSE;"))?;
        Ok(session)
    }

    fn ask(&mut self, command: &str, arguments: &str) -> Result<Fields> {
        let text = format!("cmd={command};{arguments}");
        self.line.send(&format!("{:6}{text}", text.len()))?;
        let length = |read: &[u8]| {
            let digits = std::str::from_utf8(read.get(..6)?).ok()?;
            let length = 6 + digits.trim().parse::<usize>().ok()?;
            (read.len() >= length).then_some(length)
        };
        let answer = self.line.receive(length)?;
        checked(fields(&answer[6..], ';'), &format!("{command}-response"), &text)
    }
}

impl Store for Pmi2 {
    fn put(&mut self, value: &str) -> Result<()> {
        self.ask("kvs-put", &format!("key={KEY};value={value};")).map(drop)
    }

    fn fence(&mut self) -> Result<()> {
        self.ask("kvs-fence", "").map(drop)
    }

    fn get(&mut self) -> Result<String> {
        // -1: any rank may have put it.
        let arguments = format!("jobid={};srcid=-1;key={KEY};", self.job);
        Ok(self.ask("kvs-get", &arguments)?.remove("value").unwrap_or_default())
    }

    fn finish(&mut self) -> Result<()> {
        self.ask("finalize", "").map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    /// Answers each question with the next of `answers`; gives the questions.
    fn launcher(answers: &'static [&'static str]) -> (UnixStream, std::thread::JoinHandle<Vec<String>>) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || {
            let ask = |theirs: &mut UnixStream| {
                let mut bytes = [0; 4096];
                let count = theirs.read(&mut bytes).unwrap();
                String::from_utf8_lossy(&bytes[..count]).into_owned()
            };
            answers
                .iter()
                .map(|answer| {
                    let question = ask(&mut theirs);
                    theirs.write_all(answer.as_bytes()).unwrap();
                    question
                })
                .collect()
        });
        (ours, thread)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn what_hydra_is_asked() {
        let (ours, thread) = launcher(&[
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
            "cmd=my_kvsname kvsname=kvs_7_0_h1\n",
            "cmd=put_result rc=0 msg=success\n",
            "cmd=barrier_out\n",
            "cmd=get_result rc=0 msg=success value=10.0.0.1:7/ab\n",
            "cmd=finalize_ack\n",
        ]);
        let mut session = Pmi1::start(ours.as_raw_fd(), soon()).unwrap();
        session.put("10.0.0.1:7/ab").unwrap();
        session.fence().unwrap();
        assert_eq!(session.get().unwrap(), "10.0.0.1:7/ab");
        session.finish().unwrap();
        let asked = thread.join().unwrap();
        assert_eq!(asked[2], "cmd=put kvsname=kvs_7_0_h1 key=busbw-meeting value=10.0.0.1:7/ab\n");
    }

    #[test]
    fn a_launcher_that_refuses_or_is_none() {
        for (answer, says) in [
            ("cmd=response_to_init pmi_version=9 rc=-1\n", "cmd=response_to_init rc=-1"),
            ("HTTP/1.1 400 Bad Request\n", "no launcher that busbw knows"),
        ] {
            let (ours, thread) = launcher(Box::leak(Box::new([answer])));
            let error = Pmi1::start(ours.as_raw_fd(), soon()).err().unwrap().to_string();
            assert!(error.contains(says) && error.contains("BUSBW_RENDEZVOUS"), "{error}");
            thread.join().unwrap();
        }
        let error = Pmi1::start(1023, soon()).err().unwrap().to_string();
        assert!(error.starts_with("PMI_FD=\"1023\" is not open"), "{error}");
        let (silent, _other) = UnixStream::pair().unwrap();
        let error = Pmi1::start(silent.as_raw_fd(), Instant::now()).err().unwrap().to_string();
        assert!(error.contains("does not answer"), "{error}");
    }
}
