//! What goes wrong on networks, and what NCCL learns about it: never a hang, never wrong data.
use crate::plugin::{Handle, Object, Plugin, content, until, warnings};
use crate::recorder::Recorder;
use crate::support;
use busbw_nccl_abi::NcclResult;
use busbw_nccl_abi::net::HANDLE_BYTES;
use busbw_transport::tcp;
use std::io::ErrorKind::ConnectionReset;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Names the part that a process of its own plays: settings hold for a whole process.
const PART: &str = "BUSBW_TEST_PART";

/// Bytes that a connecting socket sends before its messages: an opening, a proof and what it says of itself.
const GREETING: usize = 26 + 32 + 26;
/// Bytes that a listener answers to an opening.
const CHALLENGE: usize = 28;

/// A process that plays the part of the same name as a test of this file, with more in the environment.
fn process(part: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test knows its file"));
    command.args(["--exact", &format!("here::faults::{part}"), "--nocapture", "--test-threads", "1"]);
    support::clean(&mut command);
    command.env("NCCL_SOCKET_IFNAME", "=lo").env(PART, part).envs(variables.iter().copied());
    command
}

/// Plays this test in a process of its own: true there, where it is to go on.
fn is_alone(variables: &[(&str, &str)]) -> bool {
    let thread = std::thread::current();
    let part = thread.name().and_then(|name| name.rsplit("::").next()).expect("a test's thread has its name");
    if std::env::var(PART).is_ok_and(|own| own == part) {
        return true;
    }
    let output = process(part, variables).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    false
}

/// Goes on in a process of this test's own, with these variables.
macro_rules! alone {
    ($($variable:expr),*) => {
        if !is_alone(&[$($variable),*]) {
            return;
        }
    };
}

fn address(handle: &Handle) -> SocketAddr {
    tcp::Handle::from_bytes(handle).expect("a handle").address()
}

#[test]
fn strangers_and_garbage_are_dropped_and_logged() {
    alone!();
    let plugin = Plugin::start().unwrap();
    let (listener, handle) = plugin.listen();
    let _silent = TcpStream::connect(address(&handle)).unwrap();
    drop(TcpStream::connect(address(&handle)).unwrap());
    let mut browser = TcpStream::connect(address(&handle)).unwrap();
    browser.write_all(b"GET / HTTP/1.1\r\nHost: example.org\r\nUser-Agent: scanner/1.0\r\n\r\n").unwrap();
    // What sockets said that were let in, once more; and the same but for one byte, wherever it stands.
    let greeting = greeting(&plugin);
    let replayed = (0..=greeting.len()).map(|at| {
        let mut damaged = greeting.clone();
        damaged.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 0x10);
        said(&handle, &damaged)
    });
    let replayed: Vec<TcpStream> = replayed.collect();
    let pair = plugin.join(listener, &handle);
    assert_eq!(plugin.carry(pair, &content(1, 300_000)).unwrap(), content(1, 300_000));
    replayed.into_iter().for_each(|socket| drop(refused(&plugin, listener, socket)));
    assert!(warnings().iter().all(|line| line.starts_with("NET/busbw : dropped ") && line.contains("127.0.0.1")));
    assert_eq!(browser.read(&mut [0; 1]).unwrap_or(0), 0);
    plugin.close(pair);
    plugin.close_listen(listener);
    // All but the silent one, which had ten seconds.
    let strangers = greeting.len() + 3;
    let told = format!("NET/busbw : dropped {strangers} connections in all that were not let in");
    assert_eq!(warnings().last(), Some(&told), "{:?}", warnings());
    assert!(warnings().len() < 8, "{:?}", warnings());
}

/// What a socket sent for its handshake, and was let in with.
fn greeting(plugin: &Plugin) -> Vec<u8> {
    let (listener, handle) = plugin.listen();
    let recorder = Recorder::before(address(&handle));
    let pair = plugin.join(listener, &redirected(&handle, recorder.address));
    plugin.close(pair);
    recorder.recorded().swap_remove(1)[0][..GREETING].to_vec()
}

#[test]
fn the_token_of_a_handle_never_travels_and_what_was_recorded_lets_nobody_in() {
    alone!();
    let plugin = Plugin::start().unwrap();
    let (listener, handle) = plugin.listen();
    let recorder = Recorder::before(address(&handle));
    let pair = plugin.join(listener, &redirected(&handle, recorder.address));
    assert_eq!(plugin.carry(pair, &content(1, 300_000)).unwrap(), content(1, 300_000));
    plugin.close(pair);
    let recorded = recorder.recorded();
    assert_eq!(recorded.len(), 17, "a control socket and sixteen others");
    assert!(recorder.has_seen(&content(1, 300_000)[..1000]) && !recorder.has_seen(&handle[26..42]));
    // Every socket again, all at once: if one were let in, the listener would give a connection.
    let replayed = recorded.iter().map(|[there, _]| said(&handle, &there[..GREETING]));
    for socket in replayed.collect::<Vec<_>>() {
        let answer = refused(&plugin, listener, socket);
        assert!(answer.len() <= CHALLENGE, "no proof: {answer:?}");
    }
}

/// A connection that says this.
fn said(handle: &Handle, bytes: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(address(handle)).unwrap();
    socket.write_all(bytes).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// What a connection shows until it is dropped, while the listener gives none.
fn refused(plugin: &Plugin, listener: Object, mut socket: TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    until("the end of a connection", || {
        assert_eq!(plugin.accept(listener), Ok(None));
        let ended = socket.read_to_end(&mut answer).map_or_else(|error| error.kind() == ConnectionReset, |_| true);
        ended.then_some(answer.clone())
    })
}

/// The handle, leading elsewhere on this host.
fn redirected(handle: &Handle, to: SocketAddr) -> Handle {
    let mut handle = *handle;
    handle[6..8].copy_from_slice(&to.port().to_le_bytes());
    assert_eq!(address(&handle), to, "the form of handles has changed");
    handle
}

/// The result of a small message and of a long one, through a proxy that flips the byte at `at` after the greeting.
fn carried_damaged(plugin: &Plugin, at: usize, message: &[u8]) -> Result<Vec<u8>, NcclResult> {
    let (listener, handle) = plugin.listen();
    let through = redirected(&handle, Recorder::changing(address(&handle), GREETING + at).address);
    let pair = plugin.join(listener, &through);
    let carried = plugin.carry(pair, message);
    plugin.close(pair);
    carried
}

#[test]
fn a_flipped_byte_is_found_by_checksums() {
    alone!(("BUSBW_NET_CHECKSUM", "1"));
    let plugin = Plugin::start().unwrap();
    for len in [8, 300_000] {
        let message = content(1, len);
        // Each field of the header, and the message's first and last bytes.
        for at in [0, 8, 12, 16, 20, 23, 36, 39, 40, 47].into_iter().filter(|at| *at < 24 + len) {
            let seen = warnings().len();
            // A byte behind what a connection carries is never flipped: then the message must be right.
            match carried_damaged(&plugin, at, &message) {
                Ok(carried) => assert!(carried == message, "byte {at} of {len} was changed in silence"),
                Err(result) => {
                    assert_eq!(result, NcclResult::REMOTE_ERROR);
                    let told = warnings()[seen..].join("\n");
                    assert!(told.contains("message") && told.contains("127.0.0.1:"), "{told}");
                    assert!(told.contains("was damaged on its way"), "{told}");
                }
            }
        }
    }
    // Every message that is long enough to hold the byte is found damaged.
    for at in [30, 20_000] {
        assert_eq!(carried_damaged(&plugin, at, &content(1, 60_000)), Err(NcclResult::REMOTE_ERROR));
    }
}

#[test]
fn without_checksums_the_same_byte_goes_unnoticed() {
    // Or the test above would show nothing.
    alone!();
    let plugin = Plugin::start().unwrap();
    let message = content(1, 60_000);
    assert!(carried_damaged(&plugin, 20_000, &message).unwrap() != message);
    assert!(carried_damaged(&plugin, 1 << 30, &message).unwrap() == message);
}

#[test]
fn one_side_that_wants_checksums_suffices() {
    alone!();
    let mut peer = Peer::start("receives", &[("BUSBW_NET_CHECKSUM", "1")]);
    let handle = peer.handle();
    let plugin = Plugin::start().unwrap();
    let through = redirected(&handle, Recorder::changing(address(&handle), GREETING + 20_000).address);
    let sender = until("a connection", || plugin.connect(&through).unwrap());
    let message = content(1, 60_000);
    let _ = plugin.isend(sender, &message, 0).unwrap();
    let told = peer.next("warning");
    assert!(told.contains("message 0 from 127.0.0.1:") && told.contains("was damaged on its way"), "{told}");
}

#[test]
fn a_receiver_that_is_killed_is_named() {
    alone!();
    for len in [8, 1 << 20] {
        let mut peer = Peer::start("receives", &[]);
        let handle = peer.handle();
        let plugin = Plugin::start().unwrap();
        let sender = until("a connection", || plugin.connect(&handle).unwrap());
        let message = content(0, len);
        let mut request = None;
        let mut sent = 0;
        let result = until("the end of the connection", || {
            let step = match request {
                None => plugin.isend(sender, &message, 0).map(|posted| request = posted),
                Some(posted) => plugin.test(posted).map(|done| {
                    if done.is_some() {
                        request = None;
                        sent += 1;
                    }
                }),
            };
            if sent == 3 {
                peer.kill();
            }
            step.err()
        });
        assert_eq!(result, NcclResult::REMOTE_ERROR);
        let told = warnings().pop().unwrap();
        assert!(told.contains(&address(&handle).to_string()) && told.contains("closed the connection"), "{told}");
    }
}

#[test]
fn a_sender_that_is_killed_is_named() {
    alone!();
    let plugin = Plugin::start().unwrap();
    let (listener, handle) = plugin.listen();
    let mut peer = Peer::start("sends", &[("BUSBW_TEST_HANDLE", &hex(&handle))]);
    let receiver = until("a connection", || plugin.accept(listener).unwrap());
    let mut room = vec![0; 1 << 20];
    for _ in 0..3 {
        let request = plugin.irecv(receiver, &mut room, 0).unwrap().unwrap();
        until("a message", || plugin.test(request).unwrap());
    }
    peer.kill();
    let result = until("the end of the connection", || {
        let posted = match plugin.irecv(receiver, &mut room, 0) {
            Ok(posted) => posted?,
            Err(result) => return Some(result),
        };
        until("a message or the end", || plugin.test(posted).map_or_else(|e| Some(Some(e)), |done| done.map(|_| None)))
    });
    assert_eq!(result, NcclResult::REMOTE_ERROR);
    assert!(warnings().pop().unwrap().contains("closed the connection"));
}

#[test]
fn a_peer_that_is_busy_is_not_taken_for_dead() {
    alone!(("BUSBW_NET_TIMEOUT", "1"));
    let plugin = Plugin::start().unwrap();
    let (sender, receiver) = plugin.pair();
    // More than the kernel's buffers take, so that the receiver's kernel says that it has no room.
    let message = content(3, 256 << 20);
    let send = plugin.isend(sender, &message, 0).unwrap().unwrap();
    let busy_until = std::time::Instant::now() + Duration::from_secs(4);
    while std::time::Instant::now() < busy_until {
        assert_eq!(plugin.test(send), Ok(None), "{:?}", warnings());
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut room = vec![0; message.len()];
    let receive = plugin.irecv(receiver, &mut room, 0).unwrap().unwrap();
    let mut sent = false;
    until("the message", || {
        sent = sent || plugin.test(send).unwrap().is_some();
        plugin.test(receive).unwrap()
    });
    until("the send", || (sent || plugin.test(send).unwrap().is_some()).then_some(()));
    assert!(room == message);
    plugin.close((sender, receiver));
}

#[test]
fn few_descriptors_make_few_sockets() {
    alone!();
    let plugin = Plugin::start().unwrap();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    // Enough for connections of few sockets, not for one of sixteen each way.
    let most = open() + 24;
    set_limit(most);
    let pair = plugin.pair();
    assert_eq!(plugin.carry(pair, &content(1, 400_000)).unwrap(), content(1, 400_000));
    plugin.close(pair);
    // And where there are none left, the reason is reported.
    let (_listener, handle) = plugin.listen();
    let taken: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    let refused = plugin.connect(&handle);
    drop(taken);
    assert_eq!(refused, Err(NcclResult::SYSTEM_ERROR));
    let told = warnings().pop().unwrap();
    assert!(told.contains("ulimit -n") && told.contains("Too many open files"), "{told}");
}

fn set_limit(descriptors: u64) {
    let limit = libc::rlimit { rlim_cur: descriptors, rlim_max: descriptors };
    // SAFETY: the limit is of this stack.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

#[test]
fn a_setting_that_is_not_possible_is_told() {
    alone!(("BUSBW_NET_TIMEOUT", "soon"));
    assert_eq!(Plugin::start().err(), Some(NcclResult::INVALID_USAGE));
    assert!(warnings()[0].contains("BUSBW_NET_TIMEOUT=soon"), "{:?}", warnings());
}

fn hex(handle: &Handle) -> String {
    handle.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Handle {
    let mut handle = [0; HANDLE_BYTES];
    for (byte, at) in handle.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    }
    handle
}

/// Another process with the plugin. Killed when dropped.
struct Peer {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Peer {
    fn start(part: &str, variables: &[(&str, &str)]) -> Self {
        let mut child = process(part, variables).stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Peer { child, lines }
    }

    fn next(&mut self, begins: &str) -> String {
        self.lines
            .by_ref()
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix(begins).map(|rest| rest.trim().to_owned()))
            .unwrap_or_else(|| panic!("the peer never said {begins}"))
    }

    fn handle(&mut self) -> Handle {
        from_hex(&self.next("handle"))
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A part: receives until it is killed or the connection fails.
#[test]
fn receives() {
    if std::env::var(PART).as_deref() != Ok("receives") {
        return;
    }
    let plugin = Plugin::start().unwrap();
    let (listener, handle) = plugin.listen();
    println!("\nhandle {}", hex(&handle));
    let receiver = until("a connection", || plugin.accept(listener).unwrap());
    let mut room = vec![0; 1 << 20];
    loop {
        let request = plugin.irecv(receiver, &mut room, 0).unwrap().unwrap();
        if until("a message or the end", || plugin.test(request).map_or(Some(false), |done| done.map(|_| true))) {
            continue;
        }
        println!("\nwarning {}", warnings().pop().unwrap());
        return;
    }
}

/// A part: sends until it is killed.
#[test]
fn sends() {
    if std::env::var(PART).as_deref() != Ok("sends") {
        return;
    }
    let plugin = Plugin::start().unwrap();
    let handle = from_hex(&std::env::var("BUSBW_TEST_HANDLE").unwrap());
    let sender = until("a connection", || plugin.connect(&handle).unwrap());
    let message = content(0, 1 << 20);
    loop {
        let request = plugin.isend(sender, &message, 0).unwrap().unwrap();
        until("a send", || plugin.test(request).unwrap());
    }
}
