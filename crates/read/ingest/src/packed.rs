//! Inputs that were compressed with gzip or zstd: read as they are unpacked, so that memory stays bounded.

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// Text grows by this at most, where there is much of it: gzip packs NCCL's logs to a tenth or less, and what grows by more has the
/// same line over and over, or is made to keep its reader busy.
const MOST_GROWTH: u64 = 300;
/// The window of zstd's highest level: what a frame asks to be kept in memory.
const LARGEST_WINDOW: u64 = 128 << 20;
/// What may grow by more than that.
const ALWAYS: u64 = 256 << 20;

/// Whether an input that begins so is packed.
pub(crate) fn is_packed(start: &[u8]) -> bool {
    start.starts_with(GZIP) || start.starts_with(ZSTD)
}

/// The text of an input that is packed.
pub(crate) fn unpacked<'a>(packed: impl Read + Send + 'a) -> Box<dyn Read + Send + 'a> {
    let taken = Arc::new(AtomicU64::new(0));
    let mut input = BufReader::new(Taken { reader: packed, taken: Arc::clone(&taken) });
    // What cannot be read here cannot be read there either.
    let is_gzip = input.fill_buf().is_ok_and(|start| start.starts_with(GZIP));
    let text: Box<dyn Read + Send + 'a> =
        if is_gzip { Box::new(MultiGzDecoder::new(input)) } else { Box::new(Zstd::new(input)) };
    Box::new(Bounded { text, taken, given: 0 })
}

/// Counts what is taken of the packed input.
struct Taken<R> {
    reader: R,
    taken: Arc<AtomicU64>,
}

impl<R: Read> Read for Taken<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.taken.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Ends with an error where a little input becomes very much text.
struct Bounded<'a> {
    text: Box<dyn Read + Send + 'a>,
    taken: Arc<AtomicU64>,
    given: u64,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.text.read(buffer).map_err(damaged)?;
        self.given += count as u64;
        let most = self.taken.load(Ordering::Relaxed).saturating_mul(MOST_GROWTH).max(ALWAYS);
        if self.given > most {
            return Err(io::Error::other(format!(
                "unpacks to more than {MOST_GROWTH} times its size, as no log does; unpack it, and give the part that matters"
            )));
        }
        Ok(count)
    }
}

fn damaged(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::Interrupted => error,
        kind => {
            io::Error::new(kind, format!("cannot be unpacked ({error}); see whether it is whole: gzip -t, zstd -t"))
        }
    }
}

/// Frames one after the other, as `cat` and pzstd leave them.
struct Zstd<R> {
    input: R,
    frame: FrameDecoder,
    is_within: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(input: R) -> Self {
        let mut frame = FrameDecoder::new();
        frame.set_max_window_size(LARGEST_WINDOW);
        Zstd { input, frame, is_within: false }
    }

    /// Goes on to the next frame that has text; false at the end of the input.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.frame.reset(&mut self.input) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    io::copy(&mut (&mut self.input).take(length.into()), &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.is_within || self.begin()? {
            self.is_within = true;
            if !self.frame.is_finished() && self.frame.can_collect() < buffer.len() {
                let wanted = BlockDecodingStrategy::UptoBytes(buffer.len());
                self.frame.decode_blocks(&mut self.input, wanted).map_err(io::Error::other)?;
            }
            let count = self.frame.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            self.is_within = !self.frame.is_finished();
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(text).unwrap();
        packed.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        compress_to_vec(text, CompressionLevel::Fastest)
    }

    fn read(packed: &[u8]) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        unpacked(packed).read_to_end(&mut text).map(|_| text)
    }

    #[test]
    fn members_and_frames_are_read_one_after_the_other() {
        let text: Vec<u8> =
            (0..50_000u32).flat_map(|n| format!("host:1:2 [0] NCCL INFO line {n}\n").into_bytes()).collect();
        let (first, second) = text.split_at(1_000_003);
        let skipped = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc";
        for packed in [
            gzip(&text),
            [gzip(first), gzip(second)].concat(),
            zstd(&text),
            [&zstd(first)[..], skipped, &zstd(b""), &zstd(second)].concat(),
        ] {
            assert_eq!(read(&packed).unwrap(), text);
        }
        assert!(!is_packed(&text) && is_packed(&gzip(b"")) && is_packed(&zstd(b"")));
    }

    #[test]
    fn a_packed_log_is_read_as_the_log() {
        let line = b"host:1:2 [0] NCCL INFO NCCL version 2.27.7+cuda12.4\n";
        for packed in [gzip(line), zstd(line)] {
            let run = crate::read_bytes(&[("run.log", &packed)]).unwrap();
            assert_eq!((run.nccl.versions.len(), run.inputs[0].lines), (1, 1));
        }
    }

    #[test]
    fn what_is_cut_off_is_an_error_that_says_so() {
        for packed in [gzip(&[b'x'; 5000]), zstd(b"some words, and others, that do not repeat")] {
            let error = read(&packed[..packed.len() - 6]).unwrap_err().to_string();
            assert!(error.starts_with("cannot be unpacked ("), "{error}");
        }
    }

    #[test]
    fn a_bomb_ends_with_an_error() {
        let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
        (0..400).for_each(|_| bomb.write_all(&[b'\n'; 1 << 20]).unwrap());
        let bomb = bomb.finish().unwrap();
        let mut text = unpacked(&bomb[..]);
        let error = io::copy(&mut text, &mut io::sink()).unwrap_err().to_string();
        assert!(error.contains("more than 300 times its size"), "{} bytes: {error}", bomb.len());
    }
}
