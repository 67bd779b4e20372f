//! Passes on what a rank prints, whole lines at a time.

use std::io::{BufRead, BufReader, Read, Write};
use std::thread::JoinHandle;

/// A longer line is passed on in pieces.
const LONGEST_LINE: u64 = 1 << 20;

/// A thread that reads one pipe to its end.
pub(crate) struct Forwarder(JoinHandle<()>);

impl Forwarder {
    /// Forwards to this process's standard output.
    pub fn to_output(pipe: impl Read + Send + 'static) -> Self {
        Self::to(pipe, |line| pass_on(line, std::io::stdout().lock()))
    }

    /// Forwards to this process's standard error.
    pub fn to_errors(pipe: impl Read + Send + 'static) -> Self {
        Self::to(pipe, |line| pass_on(line, std::io::stderr().lock()))
    }

    /// Hands lines to `take`.
    pub fn to(pipe: impl Read + Send + 'static, take: impl FnMut(&[u8]) + Send + 'static) -> Self {
        Forwarder(std::thread::spawn(move || forward(pipe, take)))
    }

    /// Passes bytes on as they come, and hands them to `take`.
    pub fn raw(
        mut pipe: impl Read + Send + 'static,
        mut target: impl Write + Send + 'static,
        take: impl Fn(&[u8]) + Send + 'static,
    ) -> Self {
        Forwarder(std::thread::spawn(move || {
            let mut block = vec![0; 64 << 10];
            loop {
                match pipe.read(&mut block) {
                    Ok(0) => return,
                    Ok(length) => {
                        pass_on(&block[..length], &mut target);
                        take(&block[..length]);
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
            }
        }))
    }

    pub fn finish(self) {
        // A panic there was printed by the thread itself.
        let _ = self.0.join();
    }

    /// Whether the pipe has come to its end.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

/// When nobody reads any more, ranks must still be able to write, and to end by themselves.
pub(crate) fn pass_on(line: &[u8], mut target: impl Write) {
    let _ = target.write_all(line).and_then(|()| target.flush());
}

fn forward(pipe: impl Read, mut take: impl FnMut(&[u8])) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        match pipe.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(length) if line.last() != Some(&b'\n') && (length as u64) < LONGEST_LINE => line.push(b'\n'),
            Ok(_) => {}
        }
        take(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_whole_and_the_last_gets_its_end() {
        let mut kept = Vec::new();
        forward(&b"one\ntwo \xff\n\nlast"[..], |line| kept.push(line.to_owned()));
        assert_eq!(kept, [&b"one\n"[..], b"two \xff\n", b"\n", b"last\n"]);
    }
}
