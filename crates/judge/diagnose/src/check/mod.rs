//! Judges what nodes are, before anything runs on them: a file per area, and what differs between nodes.
//!
//! Facts come from `busbw-probe` or from a file of them. What could not be had is skipped, with the reason.

mod area_report;
mod clock;
pub(crate) mod counters;
mod cuda;
mod differences;
mod environment;
mod gpu;
mod limits;
mod mpi;
mod net;
mod pcie;
mod ports;
mod rdma;

pub(crate) use cuda::KNOWN_FAULTS;
pub(crate) use differences::odd_ones;
pub(crate) use ports::QOS;

use crate::Book;
use area_report::AreaReport;
use busbw_model::node::{Hello, Silent};
use busbw_model::{Area, CheckItem, Checked, Code, NodeFacts, Outcome};

/// What an area looks at.
type AreaCheck = fn(&NodeFacts, &mut AreaReport);

/// The areas in the order of the table.
const AREAS: [(Area, AreaCheck); 9] = [
    (Area::Gpu, gpu::check),
    (Area::Cuda, cuda::check),
    (Area::Rdma, rdma::check),
    (Area::Pcie, pcie::check),
    (Area::Net, net::check),
    (Area::Limits, limits::check),
    (Area::Mpi, mpi::check),
    (Area::Environment, environment::check),
    (Area::Clock, clock::check),
];

/// Judges nodes, and how hosts answered, by the known faults that are built in.
pub fn check(nodes: &[NodeFacts], hello: &Hello) -> Checked {
    check_by(nodes, hello, Book::built_in())
}

/// Judges nodes, and how hosts answered, by the known faults of a book.
pub fn check_by(nodes: &[NodeFacts], hello: &Hello, book: &Book) -> Checked {
    let mut items = Vec::new();
    for (area, check) in AREAS {
        for node in nodes {
            let mut report = AreaReport::new(area, &node.host, book);
            check(node, &mut report);
            if area == Area::Mpi && hello.asked > 0 {
                heard(hello, &mut report);
            }
            items.append(&mut report.items);
        }
        if area == Area::Mpi {
            items.extend(hello.silent.iter().map(unheard));
        }
    }
    let silent = hello.silent.iter().map(|silent| &silent.host);
    let hosts = nodes.iter().map(|node| &node.host).chain(silent).cloned().collect();
    Checked { hosts, items, odd_ones: odd_ones(nodes).into_iter().map(|(_, odd)| odd).collect() }
}

/// What to do where hosts answer one by one, but not as one job.
pub(crate) const APART: &str = "Each host answers alone, so ssh works, but the ranks cannot reach each other: open the ports between the hosts, \
                                or name the interface that joins them: `export NCCL_SOCKET_IFNAME=eth0 OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_oob_tcp_if_include=eth0`";

fn heard(hello: &Hello, report: &mut AreaReport) {
    match &hello.apart {
        None => report.ok("hello", "started from another host, and answered"),
        Some(why) => report.fail(
            "hello",
            format!("answers alone, but not together with the others: {why}"),
            Some(Code::MpiLaunch),
            APART,
        ),
    }
}

fn unheard(silent: &Silent) -> CheckItem {
    let host = &silent.host;
    let unknown = format!("Correct the name, or add it to DNS or /etc/hosts: `getent hosts {host}`");
    let unreached = format!(
        "Check passwordless ssh, and that busbw is on the PATH there: `ssh -o BatchMode=yes \
         {host} busbw --version`; if that works, name the interface that leads there: `export OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_oob_tcp_if_include=eth0`"
    );
    let line = CheckItem::ok(Area::Mpi, "hello", host, None, silent.why.clone());
    let remedy = if silent.is_unknown { unknown } else { unreached };
    CheckItem { outcome: Outcome::Fail, remedy: Some(remedy), code: Some(Code::MpiLaunch), ..line }
}

#[cfg(test)]
mod tests;
