//! `busbw bench` between hosts when the network breaks.

use crate::here::bench_faults::{ENDLESS, ENDS, assert_blamed, assert_nothing_left, busy, said, turn};
use crate::support::command::BUSBW;
use crate::support::lab::NetLab;
use crate::support::skip::unless_skipped;

#[test]
fn a_cable_is_cut() {
    unless_skipped(|| {
        let _turn = turn();
        let hosts = NetLab::up(2, &[])?;
        let mut command = hosts.mpirun(1);
        command.arg(BUSBW).args(["bench", "all_reduce"]).args(ENDLESS);
        let (mut running, lines) = busy(command, 2);
        hosts.link_down(2);
        // mpirun itself waits for the daemon beyond the cable; the ranks of both sides do not.
        running.gone("busbw", ENDS);
        // A rank's last words come by way of mpirun, after its end.
        running.until_said(ENDS, "line of a survivor", |stderr| (!said(stderr).is_empty()).then_some(()));
        assert_blamed(&running.stderr(), 1, &lines[1]);
        assert_nothing_left(&running);
        Ok(())
    });
}
