//! The transport over this host's loopback interface, both ends in one process.

mod both_ways;
mod forged;
mod listening;

use super::*;
use crate::transport::{Receiver, Request, Sender};
use crate::{interfaces, wait};
use proptest::prelude::*;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Calls `step` until it gives something; a test that would hang fails instead.
fn until<T>(mut step: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(done) = step() {
            return done;
        }
        assert!(Instant::now() < deadline, "nothing came for a minute");
        std::thread::yield_now();
    }
}

fn loopback() -> Vec<Interface> {
    interfaces::choose(&interfaces::list().unwrap(), Some("=lo"), Some("AF_INET")).unwrap()
}

fn net(config: Config) -> Net {
    let token = Token::from_bytes([7; 16]);
    Net::new(loopback(), config, token, Cancellation::new(), wait::Cores::Own).unwrap()
}

fn pair(net: &Net) -> (SendComm, RecvComm) {
    let mut listener = net.listen(0).unwrap();
    let mut connecting = net.connect(0, &listener.handle(), 42).unwrap();
    join(&mut connecting, &mut listener)
}

/// Both ends of a connection for purpose 42, polled in turn: neither is there without the other.
fn join(connecting: &mut Connecting, listener: &mut Listener) -> (SendComm, RecvComm) {
    let mut accepted = None;
    let sender = until(|| {
        accepted = accepted.take().or_else(|| listener.accept().unwrap());
        connecting.poll().unwrap()
    });
    let (receiver, purpose) = until(|| accepted.take().or_else(|| listener.accept().unwrap()));
    assert_eq!(purpose, 42);
    (sender, receiver)
}

fn config(threads: usize, sockets: usize) -> Config {
    Config { threads: Some(threads), sockets_per_thread: Some(sockets), ..Config::default() }
}

fn content(message: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ message.wrapping_mul(97)) as u8).collect()
}

/// Sends messages of these sizes into rooms that are `spare` bytes larger, as many at once as there is room for.
fn carry(send: &mut SendComm, receive: &mut RecvComm, sizes: &[usize], spare: usize) {
    carry_while(send, receive, sizes, spare, |_, _| {});
}

/// The same, with something else between the steps.
fn carry_while(
    send: &mut SendComm,
    receive: &mut RecvComm,
    sizes: &[usize],
    spare: usize,
    mut meanwhile: impl FnMut(&mut SendComm, &mut RecvComm),
) {
    let messages: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(i, &len)| content(i, len)).collect();
    let mut rooms: Vec<Vec<u8>> = sizes.iter().map(|&len| vec![0xAA; len + spare]).collect();
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    let (mut sent, mut received) = (0, 0);
    until(|| {
        meanwhile(send, receive);
        while let Some(message) = messages.get(sends.len()) {
            // SAFETY: the messages live until every request is done.
            match unsafe { send.isend(message.as_ptr(), message.len(), sends.len() as u32) }.unwrap() {
                Some(request) => sends.push(request),
                None => break,
            }
        }
        while let Some(room) = rooms.get_mut(receives.len()) {
            // SAFETY: the rooms live, untouched, until every request is done.
            match unsafe { receive.irecv(room.as_mut_ptr(), room.len(), receives.len() as u32) }.unwrap() {
                Some(request) => receives.push(request),
                None => break,
            }
        }
        while let Some(size) = sends.get(sent).and_then(|&request| send.test(request).unwrap()) {
            assert_eq!(size, sizes[sent]);
            sent += 1;
        }
        while let Some(size) = receives.get(received).and_then(|&request| receive.test(request).unwrap()) {
            assert_eq!(size, sizes[received]);
            received += 1;
        }
        (sent == messages.len() && received == rooms.len()).then_some(())
    });
    for (message, room) in messages.iter().zip(&rooms) {
        assert!(room[..message.len()] == message[..], "a message of {} bytes changed", message.len());
    }
}

#[test]
fn carries_messages_of_every_size() {
    let sizes = [0, 1, 8, 15, 16, 17, 1000, 65535, 65536, 65537, 131_072, 131_073, 1 << 20, (5 << 20) + 3, 0, 7];
    for (threads, sockets) in [(0, 1), (0, 3), (0, 16), (1, 2), (3, 4)] {
        let net = net(config(threads, sockets));
        let (mut send, mut receive) = pair(&net);
        for spare in [0, 5, 100_000] {
            carry(&mut send, &mut receive, &sizes, spare);
        }
    }
}

#[test]
fn helpers_that_come_and_go_lose_nothing() {
    use super::growth::Advice::{Grow, Shrink};
    let (grow, shrink) = ([Grow; 5], [Shrink; 5]);
    let advice: Vec<_> = [Grow, Grow, Shrink, Grow, Shrink, Shrink].into_iter().chain(grow).chain(shrink).collect();
    for zero_copy_from in [1, usize::MAX] {
        let net = net(Config { zero_copy_from, ..config(0, 16) });
        let (mut send, mut receive) = pair(&net);
        let sizes: Vec<usize> = (0..200).map(|i| i * 3001).collect();
        let mut steps = 0;
        carry_while(&mut send, &mut receive, &sizes, 77, |send, receive| {
            send.workers().follow(advice[steps % advice.len()]).unwrap();
            receive.workers().follow(advice[(steps + steps / 7) % advice.len()]).unwrap();
            steps += 1;
        });
    }
}

#[test]
fn helpers_that_are_found_by_measuring_lose_nothing() {
    let net = net(Config { measured: true, spare_cores: 3, ..Config::default() });
    let (mut send, mut receive) = pair(&net);
    // Long enough for several windows of either end; what is advised depends on this machine.
    let sizes: Vec<usize> = (0..48).map(|i| (4 << 20) + i * 1001).collect();
    (0..3).for_each(|_| carry(&mut send, &mut receive, &sizes, 77));
}

#[test]
fn carries_more_messages_than_fit_at_once() {
    for threads in [0, 2] {
        let net = net(config(threads, 4));
        let (mut send, mut receive) = pair(&net);
        let sizes: Vec<usize> = (0..500).map(|i| if i % 7 == 0 { 200_000 } else { i * 13 }).collect();
        carry(&mut send, &mut receive, &sizes, 0);
        carry(&mut send, &mut receive, &sizes, 64);
    }
}

#[test]
fn carries_both_ways_at_once_between_threads() {
    let (left, right) = (net(config(0, 4)), net(config(2, 2)));
    let mut listeners = (left.listen(0).unwrap(), right.listen(0).unwrap());
    let (to_right, at_right) = join(&mut left.connect(0, &listeners.1.handle(), 42).unwrap(), &mut listeners.1);
    let (to_left, at_left) = join(&mut right.connect(0, &listeners.0.handle(), 42).unwrap(), &mut listeners.0);
    let exchange = |mut send: SendComm, mut receive: RecvComm, salt: usize| {
        let len = 3 << 20;
        for round in 0..8 {
            let message = content(round + salt, len);
            let mut room = vec![0; len];
            // SAFETY: both live until both requests are done.
            let posted = unsafe {
                (send.isend(message.as_ptr(), len, 0).unwrap(), receive.irecv(room.as_mut_ptr(), len, 0).unwrap())
            };
            let (sent, received) = (posted.0.unwrap(), posted.1.unwrap());
            until(|| (send.test(sent).unwrap().is_some() & receive.test(received).unwrap().is_some()).then_some(()));
            assert!(room == content(round + 100 - salt, len));
        }
        (send, receive)
    };
    std::thread::scope(|scope| {
        // Each side keeps its ends until both are through.
        let other = scope.spawn(|| exchange(to_left, at_right, 100));
        let own = exchange(to_right, at_left, 0);
        drop((own, other.join().unwrap()));
    });
}

#[test]
fn requests_are_done_in_order() {
    let net = net(config(0, 2));
    let (mut send, mut receive) = pair(&net);
    let (long, short) = (vec![1_u8; 8 << 20], [2_u8; 8]);
    let (mut long_room, mut short_room) = (vec![0_u8; 8 << 20], [0_u8; 8]);
    // SAFETY: all of them live until the requests are done.
    let (first, second) = unsafe {
        send.isend(long.as_ptr(), long.len(), 0).unwrap().unwrap();
        send.isend(short.as_ptr(), short.len(), 0).unwrap().unwrap();
        let first = receive.irecv(long_room.as_mut_ptr(), long_room.len(), 0).unwrap().unwrap();
        (first, receive.irecv(short_room.as_mut_ptr(), short_room.len(), 0).unwrap().unwrap())
    };
    // The short message overtakes the long one on the wire; its request does not.
    assert_eq!(receive.test(second).unwrap(), None);
    until(|| {
        send.test(Request(1)).unwrap();
        receive.test(second).unwrap()
    });
    assert_eq!(receive.test(first).unwrap(), Some(8 << 20));
    assert_eq!(receive.test(first).unwrap(), Some(8 << 20));
    assert_eq!(short_room, short);
}

#[test]
fn a_message_that_disagrees_with_its_room_is_an_error() {
    for (len, tag, says) in [
        (9_usize, 4_u32, "message 0 of 9 bytes where 8 bytes were expected"),
        (100_000, 4, "message 0 of 100000 bytes where 8 bytes were expected"),
        (8, 5, "message 0 with tag 5 where tag 4 was expected"),
    ] {
        for threads in [0, 1] {
            let net = net(config(threads, 2));
            let (mut send, mut receive) = pair(&net);
            receive.set_peer_name("rank 3 on host b");
            let (message, mut room) = (vec![0; len], vec![0; 8]);
            // SAFETY: both live until the connection is dropped.
            let error = unsafe {
                send.isend(message.as_ptr(), len, tag).unwrap();
                receive.irecv(room.as_mut_ptr(), 8, 4).unwrap();
                until(|| {
                    send.test(Request(0)).unwrap();
                    receive.test(Request(0)).err()
                })
            };
            assert!(matches!(error, Error::Mismatch { .. }));
            let text = error.to_string();
            assert!(text.contains("rank 3 on host b (127.0.0.1:") && text.contains(says), "{text}");
            // It stays unusable, and says the same.
            assert_eq!(receive.test(Request(0)).unwrap_err().to_string(), text);
        }
    }
}

#[test]
fn a_peer_that_closes_is_named() {
    for threads in [0, 2] {
        let net = net(config(threads, 3));
        for len in [8, 300_000] {
            let (send, mut receive) = pair(&net);
            receive.set_peer_name("rank 1");
            let mut room = vec![0; len];
            // SAFETY: the room lives until the connection is dropped.
            unsafe { receive.irecv(room.as_mut_ptr(), len, 0) }.unwrap();
            assert_eq!(receive.test(Request(0)).unwrap(), None);
            drop(send);
            let error = until(|| receive.test(Request(0)).err());
            assert!(matches!(error, Error::Closed { .. }) && error.to_string().starts_with("rank 1 (127.0.0.1:"));

            let (mut send, receive) = pair(&net);
            drop(receive);
            let message = vec![0; len];
            let error = until(|| {
                // SAFETY: the message lives until the connection is dropped.
                let posted = unsafe { send.isend(message.as_ptr(), len, 0) };
                posted.and_then(|request| request.map_or(Ok(None), |request| send.test(request))).err()
            });
            assert!(matches!(error, Error::Closed { .. }), "{error}");
        }
    }
}

#[test]
fn what_was_sent_before_closing_still_arrives() {
    for threads in [0, 2] {
        // So few bytes fit into the kernel's buffers, and sending by copy ends there.
        let net = net(Config { zero_copy_from: usize::MAX, ..config(threads, 4) });
        for len in [8, 90_000] {
            let (mut send, mut receive) = pair(&net);
            let (message, mut room) = (content(1, len), vec![0; len]);
            // SAFETY: both live until their requests are done.
            unsafe {
                send.isend(message.as_ptr(), len, 0).unwrap();
                until(|| send.test(Request(0)).unwrap());
                drop(send);
                receive.irecv(room.as_mut_ptr(), len, 0).unwrap();
            }
            assert_eq!(until(|| receive.test(Request(0)).unwrap()), len);
            assert!(room == message);
        }
    }
}

#[test]
fn sockets_have_the_traffic_class_and_are_watched() {
    let option = |socket: &OwnedFd, level, option| {
        let (mut value, mut len) = (-1_i32, size_of::<i32>() as libc::socklen_t);
        // SAFETY: the value and its length are of this stack.
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &mut len) };
        value
    };
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(listener) = std::net::TcpListener::bind(address) else { continue };
        let peer = listener.local_addr().unwrap();
        let socket = OwnedFd::from(TcpStream::connect(peer).unwrap());
        settle(&socket, &Config::default(), peer);
        assert_eq!(option(&socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 0);
        let timeout = Some(Duration::from_secs(20));
        settle(&socket, &Config { traffic_class: Some(0xB8), timeout, ..Config::default() }, peer);
        let class = if peer.is_ipv4() {
            option(&socket, libc::IPPROTO_IP, libc::IP_TOS)
        } else {
            option(&socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
        };
        assert_eq!((class, option(&socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE)), (0xB8, 5));
        assert_eq!(option(&socket, libc::IPPROTO_TCP, libc::TCP_KEEPCNT), 3);
    }
}

#[test]
fn groups_are_matched_by_tag() {
    for threads in [0, 2] {
        let net = net(config(threads, 3));
        let (mut send, mut receive) = pair(&net);
        let messages: Vec<Vec<u8>> = (0..4).map(|i| content(i, i * 60_000)).collect();
        let mut rooms = vec![vec![0_u8; 200_000]; 4];
        let group: Vec<GroupedRoom> = (0..)
            .zip(&mut rooms)
            .map(|(tag, room)| GroupedRoom { data: room.as_mut_ptr(), len: room.len(), tag })
            .collect();
        // SAFETY: all of them live until the requests are done.
        let request = unsafe { receive.irecv_group(&group) }.unwrap().unwrap();
        for tag in [2_usize, 0, 3, 1] {
            // SAFETY: as above.
            unsafe { send.isend(messages[tag].as_ptr(), messages[tag].len(), tag as u32) }.unwrap().unwrap();
        }
        until(|| {
            send.test(Request(3)).unwrap();
            receive.test(request).unwrap()
        });
        assert_eq!(receive.sizes(request, 4).collect::<Vec<_>>(), [0, 60_000, 120_000, 180_000]);
        assert!(messages.iter().zip(&rooms).all(|(message, room)| room[..message.len()] == message[..]));
    }
}

#[test]
fn a_group_that_makes_no_sense_is_refused() {
    let net = net(config(0, 2));
    let (_send, mut receive) = pair(&net);
    let mut memory = vec![0_u8; 8];
    let mut room = |tag| GroupedRoom { data: memory.as_mut_ptr(), len: 8, tag };
    for (rooms, says) in [
        (vec![], "0 of them"),
        ((0..9).map(&mut room).collect(), "9 of them; 1 to 8 are possible"),
        (vec![room(4), room(5), room(4)], "two have the tag 4"),
    ] {
        // SAFETY: nothing is posted.
        let error = unsafe { receive.irecv_group(&rooms) }.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    // And a message that none of a group's rooms is for, or one that another has had.
    for (tags, says) in [([4, 6], "tag 6 where tag 4 or 5 was expected"), ([4, 4], "tag 4, which message 0 has had")] {
        let (mut send, mut receive) = pair(&net);
        let group = [room(4), room(5)];
        // SAFETY: the memory lives until the connection is dropped.
        let error = unsafe {
            receive.irecv_group(&group).unwrap();
            for tag in tags {
                send.isend([1, 2].as_ptr(), 2, tag).unwrap();
            }
            until(|| receive.test(Request(1)).err()).to_string()
        };
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn works_over_ipv6() {
    // NCCL never chooses ::1, so the interface is made by hand.
    let lo = Interface { address: "::1".parse().unwrap(), prefix_len: 128, ..loopback().remove(0) };
    if TcpStream::connect("[::1]:1").is_err_and(|error| error.kind() != std::io::ErrorKind::ConnectionRefused) {
        eprintln!("not run: this machine has no IPv6");
        return;
    }
    let net = Net::new(vec![lo], config(0, 2), Token::from_bytes([7; 16]), Cancellation::new(), Cores::Own).unwrap();
    let (mut send, mut receive) = pair(&net);
    carry(&mut send, &mut receive, &[8, 300_000], 0);
}

#[test]
fn gives_up_zero_copy_where_the_kernel_copies() {
    let net = net(Config { zero_copy_from: 1, ..config(0, 2) });
    let (mut send, mut receive) = pair(&net);
    assert!(send.zero_copy());
    carry(&mut send, &mut receive, &[70_000, 1 << 20, 1 << 20], 0);
    assert!(!send.zero_copy(), "loopback copies what is sent by reference");
    carry(&mut send, &mut receive, &[70_000, 1 << 20], 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_messages_arrive_in_order_and_equal(
        sizes in prop::collection::vec(0_usize..400_000, 1..40),
        (threads, sockets) in (0_usize..3, 1_usize..5),
        (inline_up_to, chunk) in (0_usize..100_000, 1000_usize..200_000),
        spare in prop_oneof![Just(0_usize), 0_usize..200_000],
    ) {
        let net = net(Config { inline_up_to, chunk, ..config(threads, sockets) });
        let (mut send, mut receive) = pair(&net);
        carry(&mut send, &mut receive, &sizes, spare);
    }
}
