//! Everything that is measured of one pair, both directions.

use crate::peer::Peer;
use crate::perftest::{Measure, Perftest, PerftestFigures};
use crate::plan::Plan;
use crate::tcp::{Moved, Task};
use crate::wire::{Answer, Order};
use busbw_model::{Bytes, LinkFigures, LinkLatency, LinkTransport};
use std::time::Duration;

/// What failed, in one line.
type Outcome<T> = Result<T, String>;

/// What is measured over one transport, a figure each. Half of a ping-pong's round trips go each way, so that latency is the
/// pair's.
trait Wire {
    /// From the first to the second end.
    fn one_way(&mut self, ends: Ends<'_>, size: Bytes, flows: u32, figures: &mut LinkFigures) -> Outcome<f64>;
    /// Each direction while the other is busy.
    fn both_ways(&mut self, ends: Ends<'_>, size: Bytes, flows: u32) -> Outcome<[f64; 2]>;
    fn latency(&mut self, ends: Ends<'_>) -> Outcome<LinkLatency>;
}

/// The two ends of a pair, in the order of a direction.
struct Ends<'a> {
    from: &'a mut Peer,
    to: &'a mut Peer,
}

/// Measures both directions of a pair. Where one fails, the other is not tried.
pub(crate) fn measure(transport: LinkTransport, a: &mut Peer, b: &mut Peer, plan: &Plan) -> [Outcome<LinkFigures>; 2] {
    let measured = match transport {
        LinkTransport::Tcp => whole(&mut Tcp { plan }, a, b, plan),
        LinkTransport::Rdma => whole(&mut Rdma { plan }, a, b, plan),
    };
    match measured {
        Ok([there, back]) => [Ok(there), Ok(back)],
        Err(reason) => [Err(reason.clone()), Err(reason)],
    }
}

fn whole(wire: &mut impl Wire, a: &mut Peer, b: &mut Peer, plan: &Plan) -> Outcome<[LinkFigures; 2]> {
    let latency = wire.latency(Ends { from: a, to: b })?;
    let (mut there, flows) = direction(wire, plan, Ends { from: a, to: b })?;
    let (mut back, _) = direction(wire, plan, Ends { from: b, to: a })?;
    (there.latency, back.latency) = (Some(latency), Some(latency));
    if plan.both_ways {
        let [first, second] = wire.both_ways(Ends { from: a, to: b }, plan.largest(), flows)?;
        (there.gbit_s_both_ways, back.gbit_s_both_ways) = (Some(first), Some(second));
    }
    Ok([there, back])
}

/// One direction: all numbers of flows at the largest size, then all sizes with the best of them.
fn direction(wire: &mut impl Wire, plan: &Plan, ends: Ends<'_>) -> Outcome<(LinkFigures, u32)> {
    let Ends { from, to } = ends;
    let mut figures = LinkFigures::default();
    for &flows in &plan.flows {
        let gbit_s = wire.one_way(Ends { from, to }, plan.largest(), flows, &mut figures)?;
        figures.flows.push((flows, gbit_s));
    }
    // Of the best numbers of flows, take the smallest.
    let best = figures.flows.iter().copied().reduce(|best, next| if next.1 > best.1 { next } else { best });
    let (flows, at_largest) = best.unwrap_or((1, 0.0));
    for &size in plan.sizes.iter().filter(|size| **size != plan.largest()) {
        let gbit_s = wire.one_way(Ends { from, to }, size, flows, &mut figures)?;
        figures.sizes.push((size, gbit_s));
    }
    figures.sizes.push((plan.largest(), at_largest));
    figures.gbit_s = figures.sizes.iter().map(|(_, gbit_s)| *gbit_s).fold(0.0, f64::max);
    Ok((figures, flows))
}

/// TCP, by the ranks themselves.
struct Tcp<'a> {
    plan: &'a Plan,
}

impl Tcp<'_> {
    /// Has both ends do their tasks over connections of `flows` flows: there, and back as well where `answers`.
    fn exchange(&self, ends: Ends<'_>, tasks: [Task; 2], flows: u32, answers: bool) -> Outcome<[Moved; 2]> {
        let limit = tasks[0].duration() + self.plan.timeout;
        let handle = |peer: &mut Peer| match peer.ask(&Order::Listen { flows, limit }, self.plan.timeout)? {
            Answer::Listening(handle) => Ok(handle),
            _ => Err(peer.confused()),
        };
        let (near, far) = (handle(ends.from)?, handle(ends.to)?);
        ends.from.tell(&Order::Move { task: tasks[0], to: Some(far), from: answers })?;
        let told = ends.to.tell(&Order::Move { task: tasks[1], to: answers.then_some(near), from: true });
        let moved = |peer: &mut Peer| match peer.answer(limit)? {
            Answer::Moved(moved) => Ok(moved),
            _ => Err(peer.confused()),
        };
        // Wait for both answers even if one is an error: then both ends are ready for the next pair.
        let first = moved(ends.from);
        let second = told.and_then(|()| moved(ends.to));
        Ok([first?, second?])
    }
}

impl Wire for Tcp<'_> {
    fn one_way(&mut self, ends: Ends<'_>, size: Bytes, flows: u32, figures: &mut LinkFigures) -> Outcome<f64> {
        let task = Task::Stream { size, duration: self.plan.duration };
        let [sent, received] = self.exchange(ends, [task; 2], flows, false)?;
        if sent.sent > 0 {
            let share = sent.resent as f64 / sent.sent as f64;
            figures.resent_share = Some(figures.resent_share.unwrap_or(0.0).max(share));
        }
        received.received_gbit_s.ok_or_else(|| "nothing arrived".into())
    }

    fn both_ways(&mut self, ends: Ends<'_>, size: Bytes, flows: u32) -> Outcome<[f64; 2]> {
        let task = Task::Stream { size, duration: self.plan.duration };
        let [first, second] = self.exchange(ends, [task; 2], flows, true)?;
        let arrived = |moved: Moved| moved.received_gbit_s.ok_or_else(|| "nothing arrived".to_string());
        // What the first end received is what the second sent.
        Ok([arrived(second)?, arrived(first)?])
    }

    fn latency(&mut self, ends: Ends<'_>) -> Outcome<LinkLatency> {
        let task = |leads| Task::PingPong { leads, duration: self.plan.duration.min(Duration::from_millis(500)) };
        let [led, _] = self.exchange(ends, [task(true), task(false)], 1, true)?;
        led.latency.ok_or_else(|| "no round trip was measured".into())
    }
}

/// RDMA, by perftest.
struct Rdma<'a> {
    plan: &'a Plan,
}

impl Rdma<'_> {
    /// Runs perftest: its server at the second end, its client at the first.
    fn run(&self, ends: Ends<'_>, measure: Measure, size: Bytes, queue_pairs: u32) -> Outcome<PerftestFigures> {
        let Ends { from: client, to: server } = ends;
        // perftest counts whole seconds.
        let seconds = self.plan.duration.as_secs_f64().ceil().max(1.0) as u32;
        let limit = Duration::from_secs(u64::from(seconds)) + self.plan.timeout;
        let test = |peer: &Peer| {
            let end =
                peer.introduction.rdma.clone().map_err(|reason| format!("{}: {reason}", peer.introduction.host))?;
            Ok::<_, String>(Perftest { measure, end, size, queue_pairs, seconds })
        };
        let served = server.ask(&Order::Serve { test: test(server)?, limit }, limit)?;
        let Answer::Serving(address) = served else { return Err(server.confused()) };
        let driven = client.ask(&Order::Drive { test: test(client)?, server: address, limit }, limit);
        let concluded = server.ask(&Order::Conclude { failed: driven.is_err() }, limit);
        let Answer::Driven(mut figures) = driven? else { return Err(client.confused()) };
        let Answer::Concluded(losses) = concluded? else { return Err(server.confused()) };
        figures.losses = add(figures.losses, losses);
        Ok(figures)
    }
}

fn add(mut losses: Vec<(String, u64)>, more: Vec<(String, u64)>) -> Vec<(String, u64)> {
    for (name, count) in more {
        match losses.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += count,
            None => losses.push((name, count)),
        }
    }
    losses
}

impl Wire for Rdma<'_> {
    fn one_way(&mut self, ends: Ends<'_>, size: Bytes, flows: u32, figures: &mut LinkFigures) -> Outcome<f64> {
        let (measure, ends) = match self.plan.read {
            // Bytes that are read go to the client.
            true => (Measure::Read, Ends { from: ends.to, to: ends.from }),
            false => (Measure::Write, ends),
        };
        let measured = self.run(ends, measure, size, flows)?;
        figures.losses = add(std::mem::take(&mut figures.losses), measured.losses);
        measured.gbit_s.ok_or_else(|| "perftest printed no bandwidth".into())
    }

    fn both_ways(&mut self, ends: Ends<'_>, size: Bytes, flows: u32) -> Outcome<[f64; 2]> {
        let sum = self.run(ends, Measure::WriteBothWays, size, flows)?.gbit_s;
        // perftest adds both directions up.
        sum.map(|sum| [sum / 2.0; 2]).ok_or_else(|| "perftest printed no bandwidth".into())
    }

    fn latency(&mut self, ends: Ends<'_>) -> Outcome<LinkLatency> {
        let measured = self.run(ends, Measure::Latency, Bytes(8), 1)?;
        measured.latency.ok_or_else(|| "perftest printed no latency".into())
    }
}
