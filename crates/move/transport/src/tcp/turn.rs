//! How many bytes one pass over a lane's sockets moves.

use std::time::{Duration, Instant};

/// The turns of one lane. Where its thread comes back at once, they are short, so that it gets to its other work while the
/// bytes are in the caches. Where it was away for long, because others had its core, they make up for it.
#[derive(Default)]
pub(super) struct Turn {
    ended: Option<Instant>,
}

impl Turn {
    /// What fits a core's cache.
    const SHORT: usize = 256 << 10;
    /// What sixteen sockets of a busy host have taken meanwhile.
    const LONG: usize = 8 << 20;
    /// Longer than a reduction of a chunk takes, shorter than a scheduler's slice.
    const AWAY: Duration = Duration::from_micros(500);

    /// Bytes after which the pass that begins now should end.
    pub fn begin(&self) -> usize {
        let away = self.ended.is_some_and(|ended| ended.elapsed() > Self::AWAY);
        if away { Self::LONG } else { Self::SHORT }
    }

    /// The pass ends now.
    pub fn end(&mut self) {
        self.ended = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_makes_up_for_a_long_absence() {
        let mut turn = Turn::default();
        assert_eq!(turn.begin(), Turn::SHORT);
        turn.end();
        std::thread::sleep(2 * Turn::AWAY);
        assert_eq!(turn.begin(), Turn::LONG);
    }
}
