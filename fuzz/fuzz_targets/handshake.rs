//! The handshake of both ends of a connection: against any bytes, and against each other through somebody who changes bytes on
//! their way.
//!
//! Beyond not panicking: nobody is let in who does not hold the token, and what an acceptor is told with a proof is what the
//! connector said.

#![no_main]

use busbw_transport::Token;
use busbw_transport::handshake::{Acceptor, Connector, Failure, Protocol};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};

const PROTOCOL: Protocol = Protocol { magic: *b"busbwfuz", version: 3, payload: 5 };
const PAYLOAD: [u8; 5] = *b"hello";

#[derive(Arbitrary, Debug)]
struct Play {
    /// What comes to each end where there is no other end, in pieces.
    alone: Vec<Vec<u8>>,
    offer: Vec<u8>,
    same_token: bool,
    same_version: bool,
    /// Which byte of all that pass is changed, and how.
    changes: Vec<(u16, u8)>,
}

/// An end's stream: what has come, and what it said.
#[derive(Default)]
struct Stream {
    come: VecDeque<u8>,
    said: Vec<u8>,
}

impl Read for Stream {
    fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        match self.come.read(block)? {
            0 if !block.is_empty() => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.said.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fuzz_target!(|play: Play| {
    alone(&play);
    together(&play);
});

fn ends(play: &Play) -> Option<(Connector, Acceptor)> {
    let token = |same: bool| Token::from_bytes([if same { 7 } else { 8 }; 16]);
    let version = PROTOCOL.version + u16::from(!play.same_version);
    let connecting = token(play.same_token);
    let connector = Connector::new(PROTOCOL, PAYLOAD.to_vec(), move |_| Ok(connecting)).ok()?;
    let acceptor = Acceptor::new(Protocol { version, ..PROTOCOL }, token(true), &play.offer).ok()?;
    Some((connector, acceptor))
}

fn alone(play: &Play) {
    let Some((mut connector, mut acceptor)) = ends(play) else { return };
    let (mut to_connector, mut to_acceptor) = (Stream::default(), Stream::default());
    for piece in &play.alone {
        to_connector.come.extend(piece);
        assert!(!matches!(connector.poll(&mut to_connector), Ok(Some(_))), "a listener without the token is believed");
        to_acceptor.come.extend(piece);
        match acceptor.poll(&mut to_acceptor) {
            Ok(Some(_)) => panic!("a stranger is let in"),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

fn together(play: &Play) {
    let Some((mut connector, mut acceptor)) = ends(play) else { return };
    let (mut left, mut right) = (Stream::default(), Stream::default());
    let mut passed = 0;
    let mut changed = false;
    let mut pass = |from: &mut Stream, to: &mut Stream| {
        for byte in from.said.drain(..) {
            let change =
                play.changes.iter().find(|(at, _)| usize::from(*at) % 256 == passed).map_or(0, |(_, how)| *how);
            changed |= change != 0;
            to.come.push_back(byte ^ change);
            passed += 1;
        }
        changed
    };
    let (mut believed, mut let_in) = (false, false);
    for _ in 0..6 {
        let at_connector = connector.poll(&mut left);
        let touched = pass(&mut left, &mut right);
        believed |= matches!(at_connector, Ok(Some(_)));
        let at_acceptor = acceptor.poll(&mut right);
        if let Ok(Some(payload)) = &at_acceptor {
            assert!(play.same_token && play.same_version && !touched, "a changed handshake is let in");
            assert_eq!(payload[..], PAYLOAD);
            let_in = true;
        }
        if matches!(at_acceptor, Err(Failure::Version(_))) {
            assert!(play.same_token, "a version that nobody has proven is told");
        }
        let touched = pass(&mut right, &mut left);
        if at_connector.is_err() || at_acceptor.is_err() || let_in && believed {
            break;
        }
        if !touched && play.same_token && play.same_version {
            continue;
        }
    }
    assert!(!believed || let_in, "a connector believes that it was let in");
    assert!(!believed || play.same_token && play.same_version);
}
