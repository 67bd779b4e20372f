//! Measures the TCP transport between two processes, as an all-reduce of two ranks uses it: each sends one half, adds what
//! it receives to the other, and sends the sum back as soon as a segment of it is there.
//!
//!     tcp_exchange listen 10.77.0.1:7000 [KEY=VALUE...]      on one host
//!     tcp_exchange connect 10.77.0.1:7000 [KEY=VALUE...]     on the other
//!
//! Keys, equal on both: `sizes=8,64K,256M`, `segment=512K`, `window=4` (segments received at once), `split=8`
//! (at least so many segments), `repeat=5`,
//! `sockets=`, `threads=`, `inline=`, `chunk=`, `congestion=`, `shared=1` (yield instead of spinning).

use busbw_transport::tcp::{Config, Handle, Net, RecvComm, SendComm};
use busbw_transport::wait::{Cores, Waiter};
use busbw_transport::{Cancellation, Receiver, Request, Sender, Token, interfaces};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

struct Settings {
    sizes: Vec<usize>,
    segment: usize,
    window: usize,
    split: usize,
    repeat: usize,
    cores: Cores,
    net: Config,
}

fn bytes(text: &str) -> Outcome<usize> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    Ok(digits.parse::<usize>()? << shift)
}

fn settings(arguments: &[String]) -> Outcome<Settings> {
    let mut settings = Settings {
        sizes: vec![8, 64 << 10, 1 << 20, 16 << 20, 256 << 20],
        segment: 512 << 10,
        window: 4,
        split: 8,
        repeat: 5,
        cores: Cores::Own,
        net: Config::default(),
    };
    for argument in arguments {
        let (key, value) = argument.split_once('=').ok_or_else(|| format!("{argument}: KEY=VALUE is possible"))?;
        match key {
            "sizes" => settings.sizes = value.split(',').map(bytes).collect::<Outcome<_>>()?,
            "segment" => settings.segment = bytes(value)?,
            "window" => settings.window = value.parse()?,
            "split" => settings.split = value.parse()?,
            "repeat" => settings.repeat = value.parse()?,
            "sockets" => settings.net.sockets_per_thread = Some(value.parse()?),
            "threads" => settings.net.threads = Some(value.parse()?),
            "inline" => settings.net.inline_up_to = bytes(value)?,
            "chunk" => settings.net.chunk = bytes(value)?,
            "zero_copy" => settings.net.zero_copy_from = bytes(value)?,
            "congestion" => settings.net.congestion = value.into(),
            "shared" => settings.cores = Cores::Shared,
            _ => return Err(format!("{key}: no such key").into()),
        }
    }
    Ok(settings)
}

/// Two connections, one each way, and where their waits end.
struct Peer {
    rank: usize,
    send: SendComm,
    receive: RecvComm,
    sent: Option<Request>,
    cancel: Arc<Cancellation>,
    cores: Cores,
}

fn meet(role: &str, address: &str) -> Outcome<(usize, TcpStream)> {
    if role == "listen" {
        return Ok((0, TcpListener::bind(address)?.accept()?.0));
    }
    for _ in 0..100 {
        if let Ok(stream) = TcpStream::connect(address) {
            return Ok((1, stream));
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Err(format!("nobody listens on {address}").into())
}

impl Peer {
    fn join(role: &str, address: &str, settings: &Settings) -> Outcome<Self> {
        let (rank, mut stream) = meet(role, address)?;
        let mut token = *Token::random()?.as_bytes();
        if rank == 0 {
            stream.write_all(&token)?;
        } else {
            stream.read_exact(&mut token)?;
        }
        let variable = |name: &str| std::env::var(name).ok();
        let names = variable("NCCL_SOCKET_IFNAME");
        let chosen = interfaces::choose(&interfaces::list()?, names.as_deref(), Some("AF_INET"))?;
        let cancel = Cancellation::new();
        let token = Token::from_bytes(token);
        let net = Net::new(chosen, settings.net.clone(), token, cancel.clone(), settings.cores)?;
        let mut listener = net.listen(0)?;
        stream.write_all(&listener.handle().to_bytes())?;
        let mut handle = [0; Handle::SIZE];
        stream.read_exact(&mut handle)?;
        let mut connecting = net.connect(0, &Handle::from_bytes(&handle)?, 0)?;
        let mut waiter = Waiter::new(&cancel, Cores::Shared);
        let (mut send, mut receive) = (None, None);
        while send.is_none() || receive.is_none() {
            send = send.map_or_else(|| connecting.poll(), |send| Ok(Some(send)))?;
            receive = receive.map_or_else(|| listener.accept(), |receive| Ok(Some(receive)))?;
            waiter.pause()?;
        }
        let (Some(send), Some((receive, _))) = (send, receive) else { return Err("not connected".into()) };
        Ok(Peer { rank, send, receive, sent: None, cancel, cores: settings.cores })
    }

    fn post_send(&mut self, data: &[f32]) -> Outcome<Request> {
        loop {
            // SAFETY: every sender of this file waits for its requests before it touches or drops the data.
            let posted = unsafe { self.send.isend(data.as_ptr().cast(), size_of_val(data), 0) }?;
            if let Some(request) = posted {
                return Ok(request);
            }
            self.send.test(Request(u64::MAX))?;
        }
    }

    fn post_receive(&mut self, room: &mut [f32]) -> Outcome<Request> {
        // SAFETY: every receiver of this file waits for its requests before it looks at or drops the room.
        let posted = unsafe { self.receive.irecv(room.as_mut_ptr().cast(), size_of_val(room), 0) }?;
        posted.ok_or_else(|| "too many receives".into())
    }

    fn wait(&mut self, sent: Option<Request>, received: Option<Request>) -> Outcome<()> {
        let mut waiter = Waiter::new(&self.cancel, self.cores);
        loop {
            // Both ends move on every look.
            let sent = sent.map_or(Ok(Some(0)), |request| self.send.test(request))?;
            let received = received.map_or(Ok(Some(0)), |request| self.receive.test(request))?;
            if sent.is_some() && received.is_some() {
                return Ok(());
            }
            waiter.pause()?;
        }
    }

    /// One all-reduce of `data` by exchanging it whole.
    fn reduce_small(&mut self, data: &mut [f32], scratch: &mut [f32]) -> Outcome<()> {
        let scratch = &mut scratch[..data.len()];
        let received = self.post_receive(scratch)?;
        let sent = self.post_send(data)?;
        self.wait(Some(sent), Some(received))?;
        data.iter_mut().zip(&*scratch).for_each(|(sum, other)| *sum += other);
        Ok(())
    }

    /// One all-reduce of `data` by halves, in segments of `segment` floats.
    fn reduce_large(&mut self, data: &mut [f32], scratch: &mut [f32], segment: usize, window: usize) -> Outcome<()> {
        let (first, second) = data.split_at_mut(data.len() / 2);
        let (own, other) = if self.rank == 0 { (first, second) } else { (second, first) };
        let segments = own.len().div_ceil(segment);
        let len = own.len();
        let range = |i: usize| i * segment..((i + 1) * segment).min(len);
        let mut outgoing: VecDeque<(*const f32, usize)> =
            other.chunks(segment).map(|s| (s.as_ptr(), s.len())).collect();
        let mut receives = VecDeque::new();
        for i in 0..2 * segments + window {
            if i >= window {
                let received = receives.pop_front().ok_or("no receive is posted")?;
                self.wait_receive(received, &mut outgoing)?;
                if i - window < segments {
                    let sum = &mut own[range(i - window)];
                    let arrived = &scratch[((i - window) % window) * segment..];
                    sum.iter_mut().zip(arrived).for_each(|(sum, other)| *sum += other);
                    outgoing.push_back((sum.as_ptr(), sum.len()));
                }
            }
            if i < segments {
                let room = &mut scratch[(i % window) * segment..][..range(i).len()];
                receives.push_back(self.post_receive(room)?);
            } else if i < 2 * segments {
                // The sums of the other half follow its segments: each comes after the peer has received what was there.
                receives.push_back(self.post_receive(&mut other[range(i - segments)])?);
            }
        }
        let last = loop {
            if let Some(last) = self.post_outgoing(&mut outgoing)?
                && outgoing.is_empty()
            {
                break last;
            }
        };
        self.wait(Some(last), None)
    }

    /// Posts what there is room for and moves it; the last request posted.
    fn post_outgoing(&mut self, outgoing: &mut VecDeque<(*const f32, usize)>) -> Outcome<Option<Request>> {
        while let Some(&(data, len)) = outgoing.front() {
            // SAFETY: the segments belong to the caller of `reduce_large`, which waits for all of them.
            let posted = unsafe { self.send.isend(data.cast(), len * size_of::<f32>(), 0) }?;
            let Some(posted) = posted else { break };
            self.sent = Some(posted);
            outgoing.pop_front();
        }
        self.send.test(Request(u64::MAX))?;
        Ok(self.sent)
    }

    /// Waits for a receive while the sends go on.
    fn wait_receive(&mut self, received: Request, outgoing: &mut VecDeque<(*const f32, usize)>) -> Outcome<()> {
        let cancel = Arc::clone(&self.cancel);
        let mut waiter = Waiter::new(&cancel, self.cores);
        loop {
            self.post_outgoing(outgoing)?;
            if self.receive.test(received)?.is_some() {
                return Ok(());
            }
            waiter.pause()?;
        }
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, address, rest @ ..] = arguments.as_slice() else {
        return Err("usage: tcp_exchange listen|connect ADDRESS:PORT [KEY=VALUE...]".into());
    };
    let settings = settings(rest)?;
    let mut peer = Peer::join(role, address, &settings)?;
    let most = settings.sizes.iter().max().copied().unwrap_or(8) / 4;
    let segment = settings.segment / 4;
    let mut data = vec![0_f32; most];
    let mut scratch = vec![0_f32; (settings.window * segment).max(64 << 10)];
    for &size in &settings.sizes {
        let data = &mut data[..size / 4];
        let rounds = ((64 << 20) / size.max(1)).clamp(1, 2000);
        let mut times = Vec::new();
        for repetition in 0..=settings.repeat {
            data.fill(1.0);
            peer.reduce_small(&mut [0.0], &mut scratch)?;
            let start = Instant::now();
            for _ in 0..rounds {
                if size <= 128 << 10 {
                    peer.reduce_small(data, &mut scratch)?;
                } else {
                    peer.reduce_large(
                        data,
                        &mut scratch,
                        segment.min(data.len().div_ceil(settings.split)),
                        settings.window,
                    )?;
                }
            }
            let time = start.elapsed().as_secs_f64() / rounds as f64;
            let expected = 2_f32.powi(rounds as i32);
            if data.iter().any(|&value| value != expected) {
                return Err(format!("a sum of {size} bytes is wrong").into());
            }
            if repetition > 0 {
                times.push(time);
            }
        }
        times.sort_by(f64::total_cmp);
        let (median, best) = (times[times.len() / 2], times[0]);
        if peer.rank == 1 {
            println!(
                "{size:>10} B  median {:>10.2} us  {:>6.3} GB/s   best {:>10.2} us  {:>6.3} GB/s",
                median * 1e6,
                size as f64 / median / 1e9,
                best * 1e6,
                size as f64 / best / 1e9
            );
        }
    }
    Ok(())
}
