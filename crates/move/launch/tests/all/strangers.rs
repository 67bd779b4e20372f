//! Strangers at the rendezvous: who has no token, who has recorded a rank, and who has the token and means harm.

use crate::meeting::Job;
use crate::recorder::Recorder;
use busbw_launch::{Discovery, JobRank, Rendezvous, Settings};
use busbw_transport::handshake::{Connector, Failure, Protocol};
use busbw_transport::{Cancellation, Exchange, Token};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// As a rank does, before it says which it is.
pub fn shake_hands(stream: &mut TcpStream, token: Token) -> Result<Token, Failure> {
    let protocol = Protocol { magic: *b"busbwjob", version: 3, payload: 0 };
    Connector::new(protocol, Vec::new(), move |_| Ok(token)).unwrap().run(stream, Duration::from_secs(30))
}

/// Waits until the other end closes; whether it did.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut block = [0; 4096];
    loop {
        match stream.read(&mut block) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn strangers_are_dropped_and_logged_and_delay_nobody() {
    let job = Job::patient(3);
    // Connected before rank 0 looks: one that says nothing, one that talks HTTP, one with another job's token, one that
    // hangs up.
    let silent = TcpStream::connect(job.address).unwrap();
    let mut talker = TcpStream::connect(job.address).unwrap();
    talker.write_all(b"GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n").unwrap();
    let other = TcpStream::connect(job.address).unwrap();
    let mut guess = other.try_clone().unwrap();
    let guess = std::thread::spawn(move || shake_hands(&mut guess, Token::random().unwrap()).unwrap_err());
    drop(TcpStream::connect(job.address).unwrap());
    let results = job.run(0..3, move |mut world| {
        world.barrier().unwrap();
        // The silent one is dropped after a while, in the middle of the job.
        if world.rank() == 0 {
            for mut stranger in [&silent, &talker, &other] {
                stranger.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                let ended = stranger.read(&mut [0; 8]);
                assert!(
                    matches!(&ended, Ok(0)) || ended.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset)
                );
            }
        }
        world.leave().unwrap();
    });
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert!(matches!(guess.join().unwrap(), Failure::Closed));
    let lines = job.lines.lock().unwrap().join("\n");
    for why in ["it speaks another protocol", "it closed before it said who it is", "it does not have the token"] {
        assert!(lines.contains(why), "{lines}");
    }
    assert!(lines.starts_with("busbw: dropped a connection from 127.0.0.1:"), "{lines}");
    assert!(lines.contains("busbw: dropped 1 more connections: 1 from 127.0.0.1\n"), "{lines}");
    assert!(lines.ends_with("busbw: dropped 4 connections in all that were not let in"), "{lines}");
}

#[test]
fn the_token_never_travels_and_a_rank_that_strangers_recorded_is_refused() {
    let job = Job::patient(2);
    let recorder = Recorder::before(job.address);
    let discovery = Discovery::Fixed { address: recorder.address.to_string(), token: job.token, listener: None };
    let second = JobRank { discovery, ..job.job_rank(1) };
    let second = std::thread::spawn(move || {
        let settings = Settings { flags: "-b 8 -e 1G".into(), ..Settings::default() };
        let rendezvous = Rendezvous::open(&second, &|_| None, settings).unwrap();
        let mut world = rendezvous.join(0, Cancellation::new()).unwrap();
        world.all_gather(b"what ranks tell each other").unwrap();
        world.leave().unwrap();
    });
    let (address, kept) = (job.address, Arc::clone(&job));
    let recorded = Arc::new(recorder);
    let seen = Arc::clone(&recorded);
    let results = job.run([0], move |mut world| {
        world.all_gather(b"").unwrap();
        // Said once more: the opening, the proof and the hello of the rank that was let in.
        let mut again = TcpStream::connect(address).unwrap();
        again.write_all(&seen.recorded()[0][0]).unwrap();
        assert!(is_closed(&again));
        world.leave().unwrap();
    });
    assert_eq!(results, [Ok(())]);
    second.join().unwrap();
    assert!(recorded.has_seen(b"what ranks tell each other"));
    assert!(!recorded.has_seen(kept.token.as_bytes()));
    assert!(kept.lines.lock().unwrap()[0].ends_with(": it does not have the token"));
}

#[test]
fn who_has_the_token_and_sends_no_hello_is_dropped_before_it_costs_much() {
    let drip = |stream: &mut TcpStream| {
        std::thread::sleep(Duration::from_millis(100));
        stream.write(&[200])
    };
    let pour = |stream: &mut TcpStream| stream.write(&[7; 1 << 20]);
    type Say = fn(&mut TcpStream) -> std::io::Result<usize>;
    let cases: [(&[u8], Say); 4] = [
        // A frame of 1 GiB, one that is a byte too long, one that drips, and another message than a hello.
        (&[0, 0, 0, 0x40], pour),
        (&[1, 0, 1, 0], pour),
        (&[200, 0, 0, 0], drip),
        (&[1, 0, 0, 0, 4], drip),
    ];
    for (begins, say) in cases {
        let job = Job::patient(2);
        let (kept, address, token) = (Arc::clone(&job), job.address, job.token);
        let stranger = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            shake_hands(&mut stream, token).unwrap();
            stream.write_all(begins).unwrap();
            let (mut sent, began) = (0, Instant::now());
            while let Ok(count) = say(&mut stream) {
                sent += count;
                assert!(began.elapsed() < Duration::from_secs(30), "{begins:?} is still heard");
            }
            sent
        });
        // Rank 1 comes when the stranger has been dropped.
        let first = std::thread::spawn(move || job.run([0], |world| world.leave().unwrap()));
        let sent = stranger.join().unwrap();
        assert!(sent < 64 << 20, "{sent} bytes of {begins:?} were taken");
        assert_eq!(kept.run([1], |world| world.leave().unwrap()), [Ok(())]);
        assert_eq!(first.join().unwrap(), [Ok(())]);
        let lines = kept.lines.lock().unwrap();
        assert!(lines.len() == 1 && lines[0].ends_with(": it did not say which rank it is"), "{lines:?}");
    }
}

#[test]
fn text_of_strangers_with_the_token_steers_no_terminal() {
    let job = Job::patient(2);
    let (address, token) = (job.address, job.token);
    let stranger = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        shake_hands(&mut stream, token).unwrap();
        let (host, flags) = ("evil\x1b]0;title\x07\x1b[2J\nbusbw: forged", "-b \u{202e}8");
        let hello = [
            &[0, 1, 2, host.len() as u8][..],
            host.as_bytes(),
            &[123, flags.len() as u8],
            flags.as_bytes(),
            &[9, 0, 0, 0, 0, 0],
        ];
        let hello = hello.concat();
        stream.write_all(&[&(hello.len() as u32).to_le_bytes()[..], &hello].concat()).unwrap();
        is_closed(&stream)
    });
    let line = job.run([0], |_| ()).remove(0).unwrap_err();
    assert!(line.starts_with("rank 1 on host evil busbw: forged (pid 123) was started with"), "{line}");
    assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line:?}");
    assert!(stranger.join().unwrap());
}

#[test]
fn thousands_of_strangers_write_a_handful_of_lines_and_keep_no_rank_out() {
    let job = Job::patient(2);
    let first = std::thread::spawn({
        let job = Arc::clone(&job);
        move || job.run([0], |world| world.leave().unwrap())
    });
    let idle: Vec<TcpStream> = (0..700).map(|_| TcpStream::connect(job.address).unwrap()).collect();
    for _ in 0..2000 {
        let mut talker = TcpStream::connect(job.address).unwrap();
        let _ = talker.write_all(b"GET / HTTP/1.1\r\n\r\n");
    }
    let began = Instant::now();
    assert_eq!(job.run([1], |world| world.leave().unwrap()), [Ok(())]);
    assert_eq!(first.join().unwrap(), [Ok(())]);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    drop(idle);
    let lines = job.lines.lock().unwrap();
    assert!(lines.len() < 12, "{lines:?}");
    let last = lines.last().unwrap();
    let count: usize = last.split(' ').find_map(|word| word.parse().ok()).unwrap();
    assert!(last.starts_with("busbw: dropped ") && (2000..=2700).contains(&count), "{lines:?}");
}
