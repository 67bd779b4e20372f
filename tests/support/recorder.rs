//! A proxy that keeps what goes over it, and may change it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What one connection carried: from who connected, and back.
pub type Recorded = Arc<[Mutex<Vec<u8>>; 2]>;

/// Passes on connections. Its threads end with them.
pub struct Recorder {
    /// Where to connect to instead.
    pub address: SocketAddr,
    connections: Arc<Mutex<Vec<Recorded>>>,
}

impl Recorder {
    /// Passes everything on to `to`.
    pub fn before(to: SocketAddr) -> Self {
        Self::changing(to, usize::MAX)
    }

    /// The same, but flips one bit of the byte at `at` of each connection.
    pub fn changing(to: SocketAddr, at: usize) -> Self {
        let listener = TcpListener::bind(SocketAddr::new(to.ip(), 0)).expect("a port");
        let (address, connections) =
            (listener.local_addr().expect("its address"), Arc::<Mutex<Vec<Recorded>>>::default());
        let kept = Arc::clone(&connections);
        std::thread::spawn(move || {
            for from in listener.incoming().map_while(Result::ok) {
                let Ok(to) = TcpStream::connect(to) else { continue };
                let recorded = Recorded::default();
                kept.lock().expect("no panic").push(Arc::clone(&recorded));
                let (back_from, back_to) = (to.try_clone().expect("a copy"), from.try_clone().expect("a copy"));
                let back = Arc::clone(&recorded);
                std::thread::spawn(move || pass_on(from, to, &recorded[0], at));
                std::thread::spawn(move || pass_on(back_from, back_to, &back[1], usize::MAX));
            }
        });
        Recorder { address, connections }
    }

    /// What each connection has carried so far: there, and back.
    pub fn recorded(&self) -> Vec<[Vec<u8>; 2]> {
        let bytes = |one: &Recorded| [0, 1].map(|way| one[way].lock().expect("no panic").clone());
        self.connections.lock().expect("no panic").iter().map(bytes).collect()
    }

    /// Whether these bytes went over it anywhere, as they are or in hexadecimal digits.
    pub fn has_seen(&self, secret: &[u8]) -> bool {
        let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let forms = [secret.to_vec(), hex.to_uppercase().into_bytes(), hex.into_bytes()];
        let seen = |bytes: &Vec<u8>| forms.iter().any(|form| bytes.windows(form.len()).any(|window| window == form));
        self.recorded().iter().flatten().any(seen)
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, recorded: &Mutex<Vec<u8>>, at: usize) {
    let (mut passed, mut buffer) = (0, vec![0; 65536]);
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if (passed..passed + read).contains(&at) {
            buffer[at - passed] ^= 0x04;
        }
        passed += read;
        recorded.lock().expect("no panic").extend_from_slice(&buffer[..read]);
        if to.write_all(&buffer[..read]).is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
