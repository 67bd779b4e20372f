//! Passes on what a rank prints, whole lines at a time.

use std::io::{BufRead, BufReader, Read, Write};
use std::thread::JoinHandle;

/// A longer line is passed on in pieces.
const LONGEST_LINE: u64 = 1 << 20;

/// A thread that reads one pipe to its end.
pub(super) struct Forwarder(JoinHandle<()>);

impl Forwarder {
    /// Forwards to this process's standard output.
    pub fn to_output(pipe: impl Read + Send + 'static) -> Self {
        Forwarder(std::thread::spawn(move || forward(pipe, || std::io::stdout().lock())))
    }

    /// Forwards to this process's standard error.
    pub fn to_errors(pipe: impl Read + Send + 'static) -> Self {
        Forwarder(std::thread::spawn(move || forward(pipe, || std::io::stderr().lock())))
    }

    pub fn finish(self) {
        // A panic there was printed by the thread itself.
        let _ = self.0.join();
    }
}

fn forward<W: Write>(pipe: impl Read, target: impl Fn() -> W) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        match pipe.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(length) if line.last() != Some(&b'\n') && (length as u64) < LONGEST_LINE => line.push(b'\n'),
            Ok(_) => {}
        }
        // When nobody reads any more, ranks must still be able to write, and to end by themselves.
        let mut target = target();
        let _ = target.write_all(&line).and_then(|()| target.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<Vec<u8>>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().push(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_stay_whole_and_the_last_gets_its_end() {
        let kept = Kept::default();
        forward(&b"one\ntwo \xff\n\nlast"[..], || kept.clone());
        assert_eq!(*kept.0.lock().unwrap(), [&b"one\n"[..], b"two \xff\n", b"\n", b"last\n"]);
    }
}
