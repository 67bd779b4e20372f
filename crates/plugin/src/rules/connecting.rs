//! How connections begin, and what listeners and contexts are.

use super::{kept, wrong};
use crate::actor::{Acted, End, Scene, Stop};
use crate::api::{Memory, Plugin, Room};
use crate::wire::Side;
use busbw_model::RuleOutcome;
use std::time::{Duration, Instant};

/// How often an end that is not ready is asked in vain.
const TRIES: usize = 200;
/// Between tries, so that a plugin's own threads get to run.
const BETWEEN: Duration = Duration::from_millis(1);

/// The first end accepts while nobody connects, the second connects while nobody accepts; the watchdog sees to it that neither
/// waits. Then both go on.
pub(super) fn without_waiting(scene: &mut Scene) -> Acted<RuleOutcome> {
    if scene.is_first() {
        let (handle, listener) = scene.plugin.listen(scene.device())?;
        for _ in 0..TRIES {
            if scene.plugin.accept(listener)?.is_some() {
                return wrong("accept gave a connection before anybody connected");
            }
        }
        scene.exchange(&handle)?;
        // The other end has tried to connect while this one slept.
        scene.meet()?;
        let receiver = scene.until("a connection", || Ok(scene.plugin.accept(listener)?))?;
        scene.meet()?;
        scene.plugin.close_recv(receiver)?;
        scene.plugin.close_listen(listener)?;
        return Ok(kept(""));
    }
    let mut handle = scene.exchange(&[])?.try_into().map_err(|_| Stop::PeerGone)?;
    let (mut sender, mut longest) = (None, Duration::ZERO);
    for _ in 0..TRIES {
        let began = Instant::now();
        sender = scene.plugin.connect(scene.device(), &mut handle)?;
        longest = longest.max(began.elapsed());
        if sender.is_some() {
            break;
        }
        std::thread::sleep(BETWEEN);
    }
    scene.meet()?;
    let sender = match sender {
        Some(sender) => sender,
        None => scene.until("a connection", || Ok(scene.plugin.connect(scene.device(), &mut handle)?))?,
    };
    scene.meet()?;
    scene.plugin.close_send(sender)?;
    Ok(kept(format!("the longest call took {:.1} ms", longest.as_secs_f64() * 1e3)))
}

/// A listener is closed unused, then one while its connection goes on.
pub(super) fn listeners(scene: &mut Scene) -> Acted<RuleOutcome> {
    let (_, unused) = scene.plugin.listen(scene.device())?;
    scene.plugin.close_listen(unused)?;
    // `one_way` closes its listener as soon as the connection is there.
    let end = scene.one_way()?;
    carry(scene, end, 100_000, 1)?;
    close(scene, end)?;
    Ok(kept(""))
}

/// Two contexts; the one that a connection does not belong to is ended.
pub(super) fn contexts(scene: &mut Scene) -> Acted<RuleOutcome> {
    let Some(other) = scene.plugin.another(0xB0B_0002)? else {
        return Ok(RuleOutcome::NotOffered("contexts came with version 11 of the interface".into()));
    };
    let end = scene.one_way()?;
    carry(scene, end, 4096, 1)?;
    Plugin::finalize(&other)?;
    carry(scene, end, 100_000, 2)?;
    close(scene, end)?;
    scene.plugin.finalize()?;
    // Actors live on: what follows in this process needs the context again.
    scene.plugin.init(0xB0B_0003)?;
    Ok(kept(""))
}

/// Sends a message and looks whether it came whole. The memory that it is received into stays registered.
pub(super) fn carry(scene: &mut Scene, end: End, len: usize, seed: u64) -> Acted<()> {
    match end {
        End::Sender(sender) => {
            let memory = Memory::filled(len, seed);
            let registration = scene.plugin.register_to_send(sender, memory)?;
            let request = scene.send(sender, memory, 0, registration)?;
            scene.finish(request, 1, "the end of a send")?;
            scene.plugin.deregister(sender, registration)?;
        }
        End::Receiver(receiver) => {
            let memory = Memory::new(len);
            let registration = scene.plugin.register_to_receive(receiver, memory)?;
            let request = scene.receive(receiver, &[Room { memory, tag: 0, registration }])?;
            let sizes = scene.finish(request, 1, "a message")?;
            if sizes != [len] || memory.differs(len, seed).is_some() {
                return wrong(format!("a message of {len} bytes arrived as {sizes:?} bytes, or changed"));
            }
        }
    }
    scene.meet()
}

/// Closes an end, once the other end is as far.
pub(super) fn close(scene: &mut Scene, end: End) -> Acted<()> {
    scene.meet()?;
    match end {
        End::Sender(sender) => scene.plugin.close_send(sender)?,
        End::Receiver(receiver) => scene.plugin.close_recv(receiver)?,
    }
    Ok(())
}

/// A connection each way: what this end sends on, and what it receives on.
pub(super) fn pair(scene: &mut Scene) -> Acted<(End, End)> {
    let there = scene.connection(Side::First)?;
    let back = scene.connection(Side::Second)?;
    Ok(if scene.is_first() { (there, back) } else { (back, there) })
}
