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
    let mut stream = Stream::default();
    for piece in &play.alone {
        stream.come.extend(piece);
        match connector.poll(&mut stream) {
            Ok(Some(_)) => panic!("a listener without the token is believed"),
            Ok(None) => {}
            Err(_) => break,
        }
    }
    let mut stream = Stream::default();
    for piece in &play.alone {
        stream.come.extend(piece);
        match acceptor.poll(&mut stream) {
            Ok(Some(_)) => panic!("a stranger is let in"),
            Ok(None) => {}
            Err(_) => break,
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
        match connector.poll(&mut left) {
            Ok(token) => believed = token.is_some(),
            Err(_) => return,
        }
        let touched = pass(&mut left, &mut right);
        if !let_in {
            match acceptor.poll(&mut right) {
                Ok(None) => {}
                Ok(Some(payload)) => {
                    assert!(play.same_token && play.same_version && !touched, "a changed handshake is let in");
                    assert_eq!(payload[..], PAYLOAD);
                    let_in = true;
                }
                Err(why) => {
                    let version = matches!(why, Failure::Version(_));
                    assert!(!version || play.same_token, "a version that nobody has proven is told");
                    return;
                }
            }
        }
        pass(&mut right, &mut left);
        if believed {
            break;
        }
    }
    assert!(!believed || let_in, "a connector believes that it was let in");
    assert!(believed || !play.changes.is_empty() || !play.same_token || !play.same_version, "nobody was in the way");
}
