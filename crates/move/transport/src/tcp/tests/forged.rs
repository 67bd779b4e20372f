//! What a peer that holds the token may say of its messages, and what is refused: it then writes nowhere.

use super::super::wire::{ChunkHeader, Hello, InlineHeader, PROTOCOL};
use super::*;
use crate::handshake::Connector;
use std::io::Write;

/// The receiving end of a connection of which a test writes the control socket and two data sockets by itself.
fn forged() -> (Vec<TcpStream>, RecvComm) {
    let net = net(config(0, 2));
    let mut listener = net.listen(0).unwrap();
    let handle = listener.handle();
    let token = handle.token().unwrap();
    let mut accepted = None;
    let sockets = (0..=2).map(|index| {
        let (inline_up_to, connection, purpose, checksum) = (16, 7, 42, handle.checksum());
        let hello = Hello { index, data_sockets: 2, inline_up_to, connection, purpose, checksum };
        let mut socket = TcpStream::connect(handle.address()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut connector = Connector::new(PROTOCOL, hello.to_bytes().to_vec(), move |_| Ok(token)).unwrap();
        until(|| {
            accepted = accepted.take().or_else(|| listener.accept().unwrap());
            connector.poll(&mut socket).unwrap()
        });
        socket.set_nonblocking(false).unwrap();
        socket
    });
    let sockets = sockets.collect();
    let (mut receive, _) = until(|| accepted.take().or_else(|| listener.accept().unwrap()));
    receive.set_peer_name("rank 3 on host b");
    (sockets, receive)
}

/// A chunk of message 0: which data socket brings it, its offset, length and total.
type Chunk = (usize, u64, u32, u64);

fn send(sockets: &mut [TcpStream], (socket, offset, len, total): Chunk) {
    let header = ChunkHeader { message: 0, offset, total, len, tag: 4, sum: 0 };
    sockets[socket].write_all(&header.to_bytes(false)).unwrap();
    sockets[socket].write_all(&vec![9; len.min(200) as usize]).unwrap();
}

#[test]
fn chunks_that_cannot_be_are_refused_and_name_the_peer() {
    let cases: [(&[Chunk], &str); 9] = [
        (&[(1, 0, 60, 100), (2, 60, 40, 100)], ""),
        (&[(1, 60, 40, 100), (2, 0, 60, 100)], ""),
        (&[(1, 0, 60, 100), (2, 40, 60, 100)], "bytes 40 to 100 of message 0 twice"),
        (&[(1, 0, 60, 100), (1, 0, 60, 100)], "bytes 0 to 60 of message 0 twice"),
        (&[(1, 0, 101, 100)], "a chunk that lies outside of message 0"),
        (&[(1, 50, 51, 100)], "a chunk that lies outside of message 0"),
        (&[(1, u64::MAX, 1, 100)], "a chunk that lies outside of message 0"),
        (&[(1, 0, 101, 101)], "message 0 of 101 bytes where 100 bytes were expected"),
        (&[(1, 0, 50, 100), (2, 50, 10, 60)], "message 0 of 60 bytes, and before of 100"),
    ];
    for (chunks, says) in cases {
        let (mut sockets, mut receive) = forged();
        let mut room = vec![0_u8; 200];
        // SAFETY: the room lives until the connection is dropped, of which only the first half is posted.
        let request = unsafe { receive.irecv(room.as_mut_ptr(), 100, 4) }.unwrap().unwrap();
        for chunk in chunks {
            send(&mut sockets, *chunk);
            // Taken in before the next comes, which may be on another socket.
            let seen = Instant::now();
            while seen.elapsed() < Duration::from_millis(50) && receive.test(request).is_ok() {}
        }
        let found = until(|| {
            receive.test(request).map_or_else(|error| Some(error.to_string()), |size| size.map(|_| String::new()))
        });
        drop(receive);
        if says.is_empty() {
            assert_eq!((found.as_str(), &room[..100]), ("", &[9; 100][..]), "{chunks:?}");
        } else {
            assert!(found.starts_with("rank 3 on host b (127.0.0.1:") && found.contains(says), "{chunks:?}: {found}");
        }
        assert!(room[100..].iter().all(|byte| *byte == 0), "{chunks:?} wrote behind the room");
    }
}

#[test]
fn a_message_that_comes_both_ways_is_refused() {
    let (mut sockets, mut receive) = forged();
    let mut room = vec![0_u8; 100];
    // SAFETY: the room lives until the connection is dropped.
    let request = unsafe { receive.irecv(room.as_mut_ptr(), 100, 4) }.unwrap().unwrap();
    send(&mut sockets, (1, 0, 10, 100));
    until(|| {
        assert_eq!(receive.test(request).unwrap(), None);
        (receive.received() == 10).then_some(())
    });
    sockets[0].write_all(&InlineHeader { message: 0, len: 100, tag: 4, sum: 0 }.to_bytes(false)).unwrap();
    let error = until(|| receive.test(request).err());
    assert!(error.to_string().contains("bytes 0 to 100 of message 0 twice"), "{error}");
}
