//! Who is let in, and what a false end gets: over pairs of sockets, and by connections to a listener.

use super::*;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;

const PROTOCOL: Protocol = Protocol { magic: *b"busbwtst", version: 3, payload: 5 };
const PAYLOAD: &[u8] = b"hello";
const SECRET: [u8; 16] = *b"sixteen secrets!";

fn secret() -> Token {
    Token::from_bytes(SECRET)
}

fn connector(protocol: Protocol, token: Token) -> Connector {
    Connector::new(protocol, PAYLOAD.to_vec(), move |_| Ok(token)).unwrap()
}

fn acceptor(protocol: Protocol, token: Token) -> Acceptor {
    Acceptor::new(protocol, token, b"").unwrap()
}

fn pair() -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    (near, far)
}

/// Counts what goes over a stream, of which each call takes at most so many bytes.
struct Slow<'a>(&'a UnixStream, usize, Vec<u8>);

impl Read for Slow<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let most = self.1.min(room.len());
        self.0.read(&mut room[..most])
    }
}

impl Write for Slow<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.write(&bytes[..self.1.min(bytes.len())])?;
        self.2.extend_from_slice(&bytes[..sent]);
        Ok(sent)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How both ends come out, and what each said.
type Ends = (Step<Option<Token>>, Step<Option<Vec<u8>>>, [Vec<u8>; 2]);

fn shake(mut connector: Connector, mut acceptor: Acceptor, at_once: usize) -> Ends {
    let (near, far) = pair();
    let (mut near_end, mut far_end) = (Slow(&near, at_once, Vec::new()), Slow(&far, at_once, Vec::new()));
    let (mut token, mut payload) = (Ok(None), Ok(None));
    for _ in 0..100 {
        if let Ok(None) = token {
            token = connector.poll(&mut near_end);
        }
        if let Ok(None) = payload {
            payload = acceptor.poll(&mut far_end);
        }
        if payload.is_err() {
            far.shutdown(std::net::Shutdown::Both).unwrap();
        }
    }
    (token, payload, [near_end.2, far_end.2])
}

#[test]
fn who_holds_the_token_is_let_in_and_never_shows_it() {
    for at_once in [1, 7, 4096] {
        let (token, payload, [there, back]) =
            shake(connector(PROTOCOL, secret()), acceptor(PROTOCOL, secret()), at_once);
        assert!(token.unwrap().unwrap().matches(&SECRET));
        assert_eq!(payload.unwrap().unwrap(), PAYLOAD);
        assert_eq!((there.len(), back.len()), (26 + 32 + 5, 28 + 32), "the layout that the module's head tells");
        for said in [there, back] {
            assert!(!said.windows(8).any(|window| SECRET.windows(8).any(|part| part == window)), "{said:?}");
        }
    }
}

#[test]
fn nobody_in_between_is_let_in_for_one_who_holds_the_token() {
    let address = |text: &str| text.parse().unwrap();
    for (wanted, come_to, alike) in [
        ("10.0.0.1:20000", "10.0.0.1:20000", true),
        ("10.0.0.1:20000", "[::ffff:10.0.0.1]:20000", true),
        ("10.0.0.1:20000", "10.0.0.2:20000", false),
        ("10.0.0.1:20000", "10.0.0.1:20001", false),
        ("[fd00::1]:20000", "[fd00::2]:20000", false),
    ] {
        let connector = connector(PROTOCOL, secret()).to(address(wanted));
        let (token, payload, _) = shake(connector, acceptor(PROTOCOL, secret()).at(address(come_to)), 4096);
        assert_eq!(
            (matches!(token, Ok(Some(_))), matches!(payload, Ok(Some(_)))),
            (alike, alike),
            "{wanted} {come_to}"
        );
    }
    let (_, payload, _) =
        shake(connector(PROTOCOL, secret()), acceptor(PROTOCOL, secret()).at(address("10.0.0.1:1")), 9);
    assert!(matches!(payload, Err(Failure::Token)), "who does not say where he wanted to go");
}

#[test]
fn a_connector_may_have_the_token_from_the_offer() {
    let mut sealed = SECRET.to_vec();
    sealed.resize(LONGEST_OFFER, 0);
    let from_offer = |offer: &[u8]| Ok(Token::from_bytes(*offer.first_chunk().unwrap()));
    let connector = Connector::new(PROTOCOL, PAYLOAD.to_vec(), from_offer).unwrap();
    let acceptor = Acceptor::new(PROTOCOL, secret(), &sealed).unwrap();
    assert!(shake(connector, acceptor, 4096).0.unwrap().unwrap().matches(&SECRET));
    sealed.push(0);
    assert!(Acceptor::new(PROTOCOL, secret(), &sealed).is_err());
    let unreadable = |_: &[u8]| Err(Error::Config("munge does not run".into()));
    let connector = Connector::new(PROTOCOL, PAYLOAD.to_vec(), unreadable).unwrap();
    let (token, ..) = shake(connector, self::acceptor(PROTOCOL, secret()), 4096);
    assert_eq!(token.unwrap_err().to_string(), "munge does not run");
}

#[test]
fn another_token_another_version_and_another_protocol_are_told_apart() {
    let version = |version| Protocol { version, ..PROTOCOL };
    let others = Token::from_bytes([9; 16]);
    let other_magic = Protocol { magic: *b"busbwtcp", ..PROTOCOL };
    let cases = [
        (PROTOCOL, others, "it closed before it said who it is", "it does not have the token"),
        (version(4), secret(), "it is another version of busbw (3)", "it is another version of busbw (4)"),
        (version(2), secret(), "it is another version of busbw (3)", "it is another version of busbw (2)"),
        // Who does not hold the token cannot end a job by claiming another version.
        (version(4), others, "it is another version of busbw (3)", "it does not have the token"),
        (other_magic, secret(), "it closed before it said who it is", "it speaks another protocol"),
    ];
    for (protocol, token, near, far) in cases {
        let (token, payload, _) = shake(connector(protocol, token), acceptor(PROTOCOL, secret()), 4096);
        assert_eq!((token.unwrap_err().to_string(), payload.unwrap_err().to_string()), (near.into(), far.into()));
    }
}

/// What an acceptor makes of these bytes, and what it answers.
fn told(acceptor: &mut Acceptor, bytes: &[&[u8]]) -> (Step<Option<Vec<u8>>>, Vec<u8>) {
    let (mut near, mut far) = pair();
    let mut outcome = Ok(None);
    let (mut answer, mut block) = (Vec::new(), [0; 8192]);
    for bytes in bytes {
        near.write_all(bytes).unwrap();
        outcome = acceptor.poll(&mut far);
        answer.extend_from_slice(near.read(&mut block).map_or(&[][..], |count| &block[..count]));
    }
    (outcome, answer)
}

#[test]
fn a_rank_of_the_version_that_showed_the_token_is_told_from_strangers() {
    let old = |token: [u8; 16]| [&PROTOCOL.magic[..], &2_u16.to_le_bytes(), &token].concat();
    let (outcome, answer) = told(&mut acceptor(PROTOCOL, secret()), &[&old(SECRET)]);
    assert!(matches!(outcome, Err(Failure::Version(2))) && answer.is_empty());
    assert!(matches!(told(&mut acceptor(PROTOCOL, secret()), &[&old([1; 16])]).0, Ok(None)));
}

#[test]
fn what_was_recorded_lets_nobody_in() {
    let (.., [there, _]) = shake(connector(PROTOCOL, secret()), acceptor(PROTOCOL, secret()), 4096);
    let (opening, rest) = there.split_at(OPENING);
    let (outcome, answer) = told(&mut acceptor(PROTOCOL, secret()), &[opening, rest]);
    assert!(matches!(outcome, Err(Failure::Token)));
    assert_eq!(answer.len(), CHALLENGE, "no proof for one who has given none");
}

#[test]
fn a_false_listener_gets_no_proof_that_it_can_use() {
    // It asks what the true listener asks it, in the hope that the answer fits there as well.
    let mut truly = acceptor(PROTOCOL, secret());
    let (mut near, mut far) = pair();
    let mut rank = connector(PROTOCOL, secret());
    assert!(rank.poll(&mut near).unwrap().is_none());
    let mut opening = [0; OPENING];
    far.read_exact(&mut opening).unwrap();
    let own = [&opening[..OPENING - 1], &[opening[OPENING - 1] ^ 1]].concat();
    let (mut attacker, mut truly_far) = pair();
    attacker.write_all(&own).unwrap();
    assert!(truly.poll(&mut truly_far).unwrap().is_none());
    let mut challenge = [0; CHALLENGE];
    attacker.read_exact(&mut challenge).unwrap();
    far.write_all(&challenge).unwrap();
    assert!(rank.poll(&mut near).unwrap().is_none());
    let mut proof = [0; Token::PROOF + PAYLOAD.len()];
    far.read_exact(&mut proof).unwrap();
    // With its own opening it is refused by the listener; sent back, by the rank.
    attacker.write_all(&proof).unwrap();
    assert!(matches!(truly.poll(&mut truly_far), Err(Failure::Token)));
    far.write_all(&proof[..Token::PROOF]).unwrap();
    assert!(matches!(rank.poll(&mut near), Err(Failure::Token)));
}

#[test]
fn what_is_no_challenge_is_refused() {
    let long = [&opening(PROTOCOL).unwrap()[..], &4097_u16.to_le_bytes()].concat();
    for bytes in [&b"SSH-2.0-OpenSSH_9.6\r\n"[..], b"H", &long] {
        let (mut near, mut far) = pair();
        far.write_all(bytes).unwrap();
        assert!(matches!(connector(PROTOCOL, secret()).poll(&mut near), Err(Failure::Protocol)), "{bytes:?}");
    }
}

fn listener(limits: Limits) -> Listener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    Listener::new(listener, PROTOCOL, (secret(), Vec::new()), limits).unwrap()
}

/// The payload of the next that is let in, of those that connect by `join`.
fn let_in(listener: &mut Listener) -> Vec<u8> {
    let began = Instant::now();
    loop {
        if let Some(Arrival::Admitted(admitted)) = listener.accept().unwrap() {
            return admitted.payload;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "nobody was let in");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn join(to: SocketAddr) -> std::thread::JoinHandle<bool> {
    std::thread::spawn(move || {
        let mut stream = TcpStream::connect(to).unwrap();
        connector(PROTOCOL, secret()).run(&mut stream, Duration::from_secs(60)).is_ok()
    })
}

#[test]
fn idle_connections_make_way_for_who_holds_the_token() {
    let undisturbed = Duration::ZERO;
    let mut listener = listener(Limits { most: 10, patience: Duration::from_secs(600), undisturbed });
    let address = listener.local_addr().unwrap();
    let idle: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    let rank = join(address);
    assert_eq!(let_in(&mut listener), PAYLOAD);
    assert!(rank.join().unwrap());
    assert!(listener.fds().count() <= 11 && listener.strangers().count() >= 89);
    let lines = listener.strangers().lines(Instant::now());
    assert!(lines[0].ends_with("too many others wait to be let in") && lines.len() <= 4, "{lines:?}");
    drop(idle);
}

#[test]
fn who_drips_is_dropped_in_time_and_delays_nobody() {
    let patience = Duration::from_millis(300);
    let mut listener = listener(Limits { most: 100, patience, undisturbed: Duration::ZERO });
    let address = listener.local_addr().unwrap();
    let dripping = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let bytes = [&PROTOCOL.magic[..], &[3, 0], &[1; 1000]].concat();
        bytes.iter().all(|byte| {
            std::thread::sleep(Duration::from_millis(50));
            stream.write_all(&[*byte]).is_ok()
        })
    });
    while listener.fds().count() == 1 {
        assert!(listener.accept().unwrap().is_none());
    }
    let rank = join(address);
    assert_eq!(let_in(&mut listener), PAYLOAD);
    assert!(rank.join().unwrap());
    let began = Instant::now();
    while listener.fds().count() > 1 {
        assert!(listener.accept().unwrap().is_none() && began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(listener.strangers().lines(Instant::now())[0].ends_with("it did not say in time who it is"));
    assert!(!dripping.join().unwrap());
}
