//! Groups, windows and connections, on threads and processes as ranks.

use super::channel::{Carried, Header, INLINE};
use super::{Group, RecvComm, SendComm, ThreadExchange};
use crate::wait::Cores;
use crate::{Cancellation, Error, Exchange, Receiver, Request, Result, Sender, Token};
use std::io::{BufRead, BufReader, Write};
use std::sync::Arc;

/// Runs `body` on `size` threads, each with its group.
fn on_ranks<T: Send>(size: usize, body: impl Fn(Group, Arc<Cancellation>) -> T + Sync) -> Vec<T> {
    let (cancel, token) = (Cancellation::new(), Token::random().unwrap());
    std::thread::scope(|scope| {
        let rank = |mut exchange: ThreadExchange| {
            let (cancel, body) = (Arc::clone(&cancel), &body);
            scope.spawn(move || {
                let group = Group::join(&mut exchange, token, Arc::clone(&cancel), Cores::Shared).unwrap();
                body(group, cancel)
            })
        };
        let threads: Vec<_> = ThreadExchange::among(size, &cancel).into_iter().map(rank).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn patterned(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + salt) as u8).collect()
}

/// Tests until done, or until the job is cancelled or half a minute is over.
fn finish(cancel: &Cancellation, mut test: impl FnMut() -> Result<Option<usize>>) -> usize {
    let start = std::time::Instant::now();
    loop {
        if let Some(len) = test().unwrap() {
            return len;
        }
        cancel.check().unwrap();
        assert!(start.elapsed().as_secs() < 30, "a request is never done");
        std::thread::yield_now();
    }
}

/// Sends messages of all `lens` at once, and checks that they arrive.
fn exchange_messages(group: &mut Group, cancel: &Cancellation, lens: &[usize], in_window: bool) {
    let peer = 1 - group.rank();
    let (mut to, mut from) = group.connect(peer).unwrap();
    let longest = lens.iter().copied().max().unwrap_or(0);
    let windows: Vec<_> = lens.iter().map(|_| group.alloc(longest.max(1)).unwrap()).collect();
    let mut plain: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
    let mut rooms: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len + 3]).collect();
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for (at, len) in lens.iter().copied().enumerate() {
        let place = if in_window { windows[at].as_ptr() } else { plain[at].as_mut_ptr() };
        // SAFETY: both kinds of memory hold `len` bytes, untouched until all requests are done.
        unsafe {
            place.copy_from(patterned(len, at + group.rank()).as_ptr(), len);
            sends.push(to.isend(place, len, at as u32).unwrap().unwrap());
            receives.push(from.irecv(rooms[at].as_mut_ptr(), len + 3, at as u32).unwrap().unwrap());
        }
    }
    for (at, len) in lens.iter().copied().enumerate() {
        let received = finish(cancel, || {
            to.test(sends[at])?;
            from.test(receives[at])
        });
        assert_eq!(received, len);
        assert_eq!(rooms[at][..len], patterned(len, at + peer), "message {at} of {len} bytes");
    }
    for (send, len) in sends.into_iter().zip(lens) {
        assert_eq!(finish(cancel, || to.test(send)), *len);
    }
}

#[test]
fn messages_of_all_sizes_arrive_by_every_way() {
    let lens = [0, 1, 4031, 4032, 4033, 65_536, 131_073, 3 << 20, 5, 700_001, 0];
    for (in_window, refuse) in [(true, false), (true, true), (false, false), (false, true)] {
        on_ranks(2, |mut group, cancel| {
            assert!(group.cross_memory(), "a process may read its own memory");
            if refuse {
                group.refuse_cross_memory();
            }
            exchange_messages(&mut group, &cancel, &lens, in_window);
        });
    }
}

#[test]
fn a_full_connection_takes_more_when_messages_are_done() {
    on_ranks(2, |mut group, cancel| {
        let peer = 1 - group.rank();
        let (mut to, mut from) = group.connect(peer).unwrap();
        for number in 0..1000_u64 {
            let (data, mut room) = (number.to_ne_bytes(), [0; 8]);
            // SAFETY: eight bytes each, which live until both requests are done.
            let (sent, posted) =
                unsafe { (to.isend(data.as_ptr(), 8, 7).unwrap(), from.irecv(room.as_mut_ptr(), 8, 7).unwrap()) };
            finish(&cancel, || to.test(sent.unwrap()));
            assert_eq!(finish(&cancel, || from.test(posted.unwrap())), 8);
            assert_eq!(u64::from_ne_bytes(room), number);
        }
        let data = [1_u8];
        // SAFETY: one byte, copied when it is posted.
        let taken = (0..40).filter(|_| unsafe { to.isend(data.as_ptr(), 1, 0).unwrap().is_some() }).count();
        assert!((1..40).contains(&taken), "{taken} messages are under way");
    });
}

fn one_message(from: &mut RecvComm, to: &mut SendComm, cancel: &Cancellation, room: usize, tag: u32) -> Result<()> {
    let mut bytes = vec![0_u8; 16];
    // SAFETY: sixteen bytes, copied when posted, and at most sixteen received while `bytes` lives.
    let receive = unsafe {
        to.isend(bytes.as_ptr(), 16, 1)?;
        from.irecv(bytes.as_mut_ptr(), room, tag)?
    };
    while from.test(receive.unwrap_or(Request(0)))?.is_none() {
        cancel.check()?;
    }
    Ok(())
}

#[test]
fn a_message_that_does_not_fit_its_receive_is_an_error() {
    for (room, tag) in [(15, 1), (16, 2)] {
        let errors = on_ranks(2, |mut group, cancel| {
            let (mut to, mut from) = group.connect(1 - group.rank()).unwrap();
            one_message(&mut from, &mut to, &cancel, room, tag).unwrap_err()
        });
        let expected = format!("sent 16 bytes with tag 1 instead of at most {room} bytes with tag {tag}");
        for error in errors {
            assert!(matches!(error, Error::Mismatch { .. }) && error.to_string().contains(&expected), "{error}");
        }
    }
}

/// The header is the peer's: what no slot, window or chunk holds is refused before a byte is moved.
#[test]
fn a_message_that_cannot_be_is_refused() {
    let lies = [
        (INLINE + 1, 0, Carried::Inline as u32),
        (1 << 20, 0, Carried::Inline as u32),
        (16, u64::MAX - 7, Carried::Window as u32),
        (16, u64::MAX - 7, Carried::Cross as u32),
        (16, 0, Carried::Staged as u32),
        (16, 0, 77),
        (16, 0, Carried::Window as u32),
    ];
    for (len, offset, carried) in lies {
        let errors = on_ranks(2, |mut group, _| {
            let (to, mut from) = group.connect(1 - group.rank()).unwrap();
            let mut room = vec![0_u8; 2 << 20];
            // SAFETY: the room lives longer than the connection is tested.
            let receive = unsafe { from.irecv(room.as_mut_ptr(), room.len(), 1) }.unwrap().unwrap();
            to.publish(Header { len: len as u64, window: 0, offset, tag: 1, carried });
            loop {
                if let Some(error) = from.test(receive).err() {
                    return error;
                }
            }
        });
        for error in errors {
            assert!(matches!(error, Error::Protocol { .. }), "{len} bytes by way {carried}: {error}");
        }
    }
}

#[test]
fn only_peers_are_connected() {
    let errors =
        on_ranks(2, |mut group, _| [group.rank(), 2].map(|peer| group.connect(peer).err().unwrap().to_string()));
    assert_eq!(errors[1][0], "local rank 1 of 2 cannot be connected to local rank 1");
    assert_eq!(errors[0][1], "local rank 0 of 2 cannot be connected to local rank 2");
}

#[test]
fn windows_are_found_by_any_address_inside_and_no_other() {
    on_ranks(2, |mut group, _| {
        let peer = 1 - group.rank();
        let board = group.board(64).unwrap();
        let buffer = group.alloc(3 << 20).unwrap();
        let inside = buffer.as_ptr().wrapping_add(1000);
        let named = group.name(inside, 100).unwrap();
        let beyond = group.name(inside, 4 << 20).unwrap();
        assert_eq!((named.offset, beyond.window), (1000, super::Named::PLAIN));
        // SAFETY: own memory; the peer looks at it after both have written, and the board's parts are this rank's alone.
        unsafe {
            inside.write(group.rank() as u8 + 1);
            board.part(group.rank()).cast::<u64>().write_volatile(named.window);
        }
        let (to, from) = (board.part(peer).cast::<u64>(), board.part(peer));
        // SAFETY: as above; the peer writes its window's number once.
        group.wait_for(peer, || unsafe { to.read_volatile() != 0 }).unwrap();
        // SAFETY: as above.
        let theirs = super::Named { window: unsafe { from.cast::<u64>().read_volatile() }, offset: 1000 };
        let place = group.reach(peer, theirs, 100).unwrap().unwrap();
        // SAFETY: mapped, and written before the number.
        assert_eq!(usize::from(unsafe { place.as_ptr().read() }), peer + 1);
        let error = group.reach(peer, theirs, 4 << 20).err().unwrap().to_string();
        assert!(error.contains("that are not there"), "{error}");
        for (offset, bytes) in [(u64::MAX, 1), (u64::MAX, 0), (1, usize::MAX), (4 << 20, 1), (5 << 20, 0)] {
            let named = super::Named { offset, ..theirs };
            assert!(group.reach(peer, named, bytes).is_err(), "{bytes} bytes at {offset}");
        }
        let error = group.reach(peer, super::Named { window: 99, offset: 0 }, 1).err().unwrap().to_string();
        assert!(error.contains("of window 99"), "{error}");

        // What was reached stays mapped after its owner has freed it.
        let mut came = 0;
        let mut meet = || {
            came += 1;
            // SAFETY: as above, of the second number.
            unsafe { board.part(group.rank()).cast::<u64>().add(1).write_volatile(came) };
            // SAFETY: as above.
            group.wait_for(peer, || unsafe { to.add(1).read_volatile() >= came }).unwrap();
        };
        meet();
        drop(buffer);
        group.name([0_u8].as_ptr(), 1).unwrap();
        meet();
        assert!(group.reach(peer, theirs, 100).is_err());
        // SAFETY: still mapped.
        assert_eq!(usize::from(unsafe { place.as_ptr().read() }), peer + 1);
    });
}

/// Connects to every listener of this process that has one of our names, without or with a wrong token.
struct WithStrays {
    inner: ThreadExchange,
    strays: Vec<std::os::fd::OwnedFd>,
}

impl Exchange for WithStrays {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let all = self.inner.all_gather(mine)?;
        if self.strays.is_empty() {
            for name in &all {
                let silent = super::socket::connect_to(name, "a listener", 1)?;
                let wrong = super::socket::connect_to(name, "a listener", 1)?;
                super::socket::send(&wrong, &[7; Token::PROOF + 8], None, "a listener")?;
                let closed = super::socket::connect_to(name, "a listener", 1)?;
                drop(closed);
                self.strays.extend([silent, wrong]);
            }
        }
        Ok(all)
    }
}

#[test]
fn strays_are_dropped() {
    let (cancel, token) = (Cancellation::new(), Token::random().unwrap());
    std::thread::scope(|scope| {
        for inner in ThreadExchange::among(3, &cancel) {
            let cancel = Arc::clone(&cancel);
            scope.spawn(move || {
                let mut exchange = WithStrays { inner, strays: Vec::new() };
                let mut group = Group::join(&mut exchange, token, cancel, Cores::Shared).unwrap();
                assert_eq!(group.board(8).unwrap().size(), 3);
            });
        }
    });
}

#[test]
fn a_group_leaves_no_descriptor_behind() {
    // Other tests open and close descriptors meanwhile; a leak of one per round would stand out all the same.
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    for _ in 0..200 {
        on_ranks(2, |mut group, _| {
            let buffer = group.alloc(4096).unwrap();
            group.name(buffer.as_ptr(), 1).unwrap();
            // Last, for it waits until the peer has come as far.
            group.connect(1 - group.rank()).unwrap();
        });
    }
    assert!(open() < before + 150, "{before} descriptors before, {} after", open());
}

/// The exchange of two processes over the pipes of one.
struct Pipes<R, W> {
    rank: usize,
    from: R,
    to: W,
}

impl<R: BufRead, W: Write> Exchange for Pipes<R, W> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        2
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let digits: String = mine.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.to, "\nbytes:{digits}").unwrap();
        let mut line = String::new();
        while !line.starts_with("bytes:") {
            line.clear();
            assert!(self.from.read_line(&mut line).unwrap() > 0, "the other process has ended");
        }
        let digits = line.trim().trim_start_matches("bytes:").as_bytes();
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
        let theirs = digits.chunks(2).map(byte).collect();
        let mut all = vec![mine.to_vec(), theirs];
        all.rotate_right(self.rank);
        Ok(all)
    }
}

const CHILD: &str = "BUSBW_TEST_SHM_CHILD";
const TOKEN: [u8; 16] = [5; 16];

/// The other process of `a_process_...`; does nothing when it is run as a test.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let mut pipes = Pipes { rank: 1, from: BufReader::new(std::io::stdin()), to: std::io::stdout() };
    let cancel = Cancellation::new();
    let mut group = Group::join(&mut pipes, Token::from_bytes(TOKEN), Arc::clone(&cancel), Cores::Shared).unwrap();
    exchange_messages(&mut group, &cancel, &[10, 100_000, 3 << 20], true);
    exchange_messages(&mut group, &cancel, &[10, 100_000, 3 << 20], false);
    pipes.all_gather(&[]).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(30));
}

#[test]
fn a_process_exchanges_messages_and_its_end_is_noticed() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["shm::tests::child", "--exact", "--nocapture"]).env(CHILD, "1");
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (from, to) = (BufReader::new(child.stdout.take().unwrap()), child.stdin.take().unwrap());
    let mut pipes = Pipes { rank: 0, from, to };
    let cancel = Cancellation::new();
    let mut group = Group::join(&mut pipes, Token::from_bytes(TOKEN), Arc::clone(&cancel), Cores::Shared).unwrap();
    exchange_messages(&mut group, &cancel, &[10, 100_000, 3 << 20], true);
    exchange_messages(&mut group, &cancel, &[10, 100_000, 3 << 20], false);
    pipes.all_gather(&[]).unwrap();
    child.kill().unwrap();
    let error = group.wait_for(1, || false).unwrap_err().to_string();
    let expected = format!("local rank 1 (process {}) closed the connection", child.id());
    assert!(error.starts_with(&expected), "{error}");
    assert_eq!(cancel.reason().map(|reason| reason.starts_with(&expected)), Some(true));
    child.wait().unwrap();
}
