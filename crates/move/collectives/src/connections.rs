//! Which transport joins two ranks: shared memory on one host, TCP between hosts.

use crate::links::Connector;
use busbw_transport::shm::Group;
use busbw_transport::tcp::{Connecting, Handle, Listener, Net, RecvComm, WayBack};
use busbw_transport::{Error, Exchange, Receiver, Result, Sender};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

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
    /// By rank, where its devices listen.
    handles: Vec<Vec<Handle>>,
    connecting: HashMap<(usize, usize), Connecting>,
    accepted: HashMap<(usize, usize), RecvComm>,
    /// By rank and lane: small messages go both ways on the connection from the rank with the smaller number.
    ways_back: HashMap<(usize, usize), WayBack>,
}

impl Connections {
    /// No way to anybody yet. `names` has a name for each rank.
    pub fn new(rank: usize, names: Vec<String>) -> Self {
        Connections { rank, names, local: HashMap::new(), remote: None }
    }

    /// Listens on every device of `net` and learns where the others listen. Every rank calls it; those alone on their
    /// host as well as the others.
    ///
    /// Gives how many lanes there are, the same for all ranks, since they divide data by it: as many as the host with the
    /// most devices has. Where a host has fewer, its lanes take these in turn.
    pub fn open(&mut self, net: Net, exchange: &mut dyn Exchange) -> Result<usize> {
        let listeners = (0..net.devices().len()).map(|device| net.listen(device)).collect::<Result<Vec<_>>>()?;
        let mine: Vec<u8> =
            listeners.iter().flat_map(|listener| listener.handle().without_token().to_bytes()).collect();
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
        let lanes = handles.iter().map(Vec::len).max().unwrap_or(1);
        let (connecting, accepted, ways_back) = Default::default();
        self.remote = Some(Remote { net, listeners, handles, connecting, accepted, ways_back });
        Ok(lanes)
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
}

fn no_way(name: &str) -> Error {
    Error::Config(format!("no way to {name}: neither on this host nor by an interface"))
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
        let name = &self.names[peer];
        let remote = self.remote.as_mut().ok_or_else(|| no_way(name))?;
        let connecting = match remote.connecting.entry((peer, lane)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let device = lane % remote.net.devices().len();
                let theirs = &remote.handles[peer][lane % remote.handles[peer].len()];
                entry.insert(remote.net.connect(device, theirs, purpose(self.rank, lane))?)
            }
        };
        let Some(mut sender) = connecting.poll()? else { return Ok(None) };
        remote.connecting.remove(&(peer, lane));
        sender.set_peer_name(name);
        let way = remote.ways_back.entry((peer, lane)).or_default();
        match self.rank < peer {
            true => sender.lend(way),
            false => sender.return_by(way.clone()),
        }
        Ok(Some(Box::new(sender)))
    }

    fn accept(&mut self, peer: usize, lane: usize) -> Result<Option<Box<dyn Receiver>>> {
        if let Some(local) = self.local.get_mut(&(peer, lane)) {
            return Ok(local.receiver.take());
        }
        let names = &self.names;
        let remote = self.remote.as_mut().ok_or_else(|| no_way(&names[peer]))?;
        for listener in &mut remote.listeners {
            while let Some((mut receiver, purpose)) = listener.accept()? {
                let from = ((purpose >> 32) as usize, (purpose & u64::from(u32::MAX)) as usize);
                receiver
                    .set_peer_name(names.get(from.0).map_or("a rank that is not of this communicator", String::as_str));
                remote.accepted.insert(from, receiver);
            }
        }
        let Some(mut receiver) = remote.accepted.remove(&(peer, lane)) else { return Ok(None) };
        let way = remote.ways_back.entry((peer, lane)).or_default();
        match self.rank < peer {
            true => receiver.hear(way.clone()),
            false => receiver.lend(way),
        }
        Ok(Some(Box::new(receiver)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::{self, Algorithm};
    use crate::links::Links;
    use crate::{Operation, Room};
    use busbw_model::{Collective, Datatype, RedOp};
    use busbw_transport::interfaces::Interface;
    use busbw_transport::shm::ThreadExchange;
    use busbw_transport::wait::Cores;
    use busbw_transport::{Cancellation, Token, tcp};
    use std::sync::Arc;
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    /// An address of the loopback, as an interface of its own.
    fn interface(last: u8) -> Interface {
        let address = [127, 0, 0, last].into();
        let (name, loopback, up) = ("lo".to_owned(), true, true);
        Interface { name, index: 1, address, prefix_len: 8, up, loopback, speed_mbps: None }
    }

    /// The sums that rank `rank` of two gets, which has `devices` devices.
    fn sums(
        rank: usize,
        devices: u8,
        token: Token,
        cancel: &Arc<Cancellation>,
        exchange: &mut ThreadExchange,
    ) -> Vec<i32> {
        let devices = (1..=devices).map(interface).collect();
        let net = Net::new(devices, tcp::Config::default(), token, Arc::clone(cancel), Cores::Shared).unwrap();
        let mut connections = Connections::new(rank, vec!["rank 0".into(), "rank 1".into()]);
        let lanes = connections.open(net, exchange).unwrap();
        assert_eq!(lanes, 2, "as many as the rank with the most devices has");
        let mut links = Links::new(rank, 2, lanes, connections, Arc::clone(cancel), Cores::Shared);
        let mut numbers: Vec<i32> = (0..100_000).map(|number| number + rank as i32).collect();
        // SAFETY: the numbers outlive the links.
        let place = unsafe { Room::new(numbers.as_mut_ptr().cast(), 4 * numbers.len()) };
        let operation = Operation {
            collective: Collective::AllReduce,
            datatype: Datatype::Int32,
            redop: RedOp::Sum,
            count: numbers.len(),
            root: 0,
            send: place.data(),
            receive: place,
            counts: &[],
        };
        algorithms::run(&mut links, Algorithm::Ring, &operation).unwrap();
        exchange.all_gather(&[]).unwrap();
        numbers
    }

    #[test]
    fn hosts_with_more_and_fewer_devices_divide_data_alike() {
        let (cancel, token) = (Cancellation::new(), Token::random().unwrap());
        let (done, is_done) = channel::<()>();
        std::thread::scope(|scope| {
            let cancel = &cancel;
            let ranks = ThreadExchange::among(2, cancel).into_iter().enumerate().map(|(rank, mut exchange)| {
                scope.spawn(move || sums(rank, rank as u8 + 1, token, cancel, &mut exchange))
            });
            let ranks: Vec<_> = ranks.collect();
            scope.spawn(move || {
                if is_done.recv_timeout(Duration::from_secs(30)) == Err(RecvTimeoutError::Timeout) {
                    cancel.trigger("the ranks wait for messages that never come");
                }
            });
            for rank in ranks {
                assert!(rank.join().unwrap().into_iter().eq((0..100_000).map(|number| 2 * number + 1)));
            }
            drop(done);
        });
    }
}
