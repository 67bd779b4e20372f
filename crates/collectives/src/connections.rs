//! Which transport joins two ranks: shared memory on one host, TCP between hosts.

use crate::links::Connector;
use busbw_net::shm::Group;
use busbw_net::tcp::{Connecting, Handle, Listener, Net, RecvComm};
use busbw_net::{Error, Exchange, Receiver, Result, Sender};
use std::collections::HashMap;

/// The ways from one rank to the others.
pub struct Connections {
    rank: usize,
    /// For each rank the name that errors give it: `rank 3 on host h2`.
    names: Vec<String>,
    local: HashMap<(usize, usize), Local>,
    remote: Option<Remote>,
}

/// A pair of ends to a rank of this host, each until it is taken.
struct Local {
    sender: Option<Box<dyn Sender>>,
    receiver: Option<Box<dyn Receiver>>,
}

/// What reaches other hosts.
struct Remote {
    net: Net,
    listeners: Vec<Listener>,
    /// By rank, where its devices listen; none for ranks of this host.
    handles: Vec<Vec<Handle>>,
    connecting: HashMap<(usize, usize), Connecting>,
    accepted: HashMap<(usize, usize), RecvComm>,
}

impl Connections {
    /// No way to anybody yet. `names` has a name for each rank.
    pub fn new(rank: usize, names: Vec<String>) -> Self {
        Connections { rank, names, local: HashMap::new(), remote: None }
    }

    /// Listens on every device of `net` and learns where the others listen. Every rank calls it; those alone on their
    /// host as well as the others.
    pub fn open(&mut self, net: Net, exchange: &mut dyn Exchange) -> Result<()> {
        let listeners = (0..net.devices().len()).map(|device| net.listen(device)).collect::<Result<Vec<_>>>()?;
        let mine: Vec<u8> = listeners.iter().flat_map(|listener| listener.handle().to_bytes()).collect();
        let handles = exchange
            .all_gather(&mine)?
            .iter()
            .map(|theirs| theirs.chunks(Handle::SIZE).map(Handle::from_bytes).collect())
            .collect::<Result<Vec<Vec<_>>>>()?;
        if let Some(rank) = handles.iter().position(Vec::is_empty) {
            return Err(Error::Config(format!(
                "{} listens nowhere: it has no interface to reach it by",
                self.names[rank]
            )));
        }
        let (connecting, accepted) = Default::default();
        self.remote = Some(Remote { net, listeners, handles, connecting, accepted });
        Ok(())
    }

    /// Connects the ranks of this host among each other, with `lanes` connections each way. `group` are the ranks of this
    /// host, `ranks` their numbers in the communicator. Every rank of the host calls it.
    pub fn connect_host(&mut self, group: &mut Group, ranks: &[usize], lanes: usize) -> Result<()> {
        for (local, &peer) in ranks.iter().enumerate() {
            for lane in (0..lanes).filter(|_| peer != self.rank) {
                let (sender, receiver) = group.connect(local)?;
                let ends = Local { sender: Some(Box::new(sender)), receiver: Some(Box::new(receiver)) };
                self.local.insert((peer, lane), ends);
            }
        }
        Ok(())
    }

    /// The interfaces by which other hosts are reached.
    pub fn devices(&self) -> Vec<String> {
        let devices = self.remote.iter().flat_map(|remote| remote.net.devices());
        devices.map(|device| device.name.clone()).collect()
    }

    fn remote(&mut self, peer: usize) -> Result<&mut Remote> {
        let missing =
            || Error::Config(format!("no way to {}: neither on this host nor by an interface", self.names[peer]));
        self.remote.as_mut().ok_or_else(missing)
    }
}

/// What a connection tells about itself when it is made: who it comes from and which lane it is.
fn purpose(rank: usize, lane: usize) -> u64 {
    (rank as u64) << 32 | lane as u64
}

impl Connector for Connections {
    fn connect(&mut self, peer: usize, lane: usize) -> Result<Option<Box<dyn Sender>>> {
        if let Some(local) = self.local.get_mut(&(peer, lane)) {
            return Ok(local.sender.take());
        }
        let (rank, name) = (self.rank, self.names[peer].clone());
        let remote = self.remote(peer)?;
        let connecting = match remote.connecting.entry((peer, lane)) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let device = lane % remote.net.devices().len();
                let theirs = &remote.handles[peer][lane % remote.handles[peer].len()];
                entry.insert(remote.net.connect(device, theirs, purpose(rank, lane))?)
            }
        };
        let Some(mut sender) = connecting.poll()? else { return Ok(None) };
        remote.connecting.remove(&(peer, lane));
        sender.set_peer_name(&name);
        Ok(Some(Box::new(sender)))
    }

    fn accept(&mut self, peer: usize, lane: usize) -> Result<Option<Box<dyn Receiver>>> {
        if let Some(local) = self.local.get_mut(&(peer, lane)) {
            return Ok(local.receiver.take());
        }
        let names = self.names.clone();
        let remote = self.remote(peer)?;
        for listener in &mut remote.listeners {
            while let Some((mut receiver, purpose)) = listener.accept()? {
                let from = ((purpose >> 32) as usize, (purpose & u64::from(u32::MAX)) as usize);
                receiver
                    .set_peer_name(names.get(from.0).map_or("a rank that is not of this communicator", String::as_str));
                remote.accepted.insert(from, receiver);
            }
        }
        let receiver = remote.accepted.remove(&(peer, lane));
        Ok(receiver.map(|receiver| Box::new(receiver) as Box<dyn Receiver>))
    }
}
