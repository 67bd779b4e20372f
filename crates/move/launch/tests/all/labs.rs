//! The example `who` under Slurm and torchrun.

use crate::here::launchers::{command, ended, hosts_by_command_line, joined, who};
use crate::here::secrets::free_port;
use crate::lab::{SlurmLab, torchrun, torchrun_agent};
use crate::process::{LIMIT, Running};
use crate::skip::{Skip, needed};
use busbw_launch::command::Tool;

#[test]
fn slurm() {
    let cluster = needed!(SlurmLab::up(2));
    for (kind, way) in [("none", "Derived"), ("pmi2", "Pmi2")] {
        let mut srun = cluster.srun(&["-N2", "-n4", &format!("--mpi={kind}")]);
        joined(&ended(srun.arg(who())), &format!("launcher Srun way {way} size 4 gathered 0,1,2,3 here 4"));
    }
    for hosts in ["node1:2,node2:2", "node1:1,node2:2"] {
        let words = hosts_by_command_line(Tool::Srun, "srun", hosts, &[who().to_str().unwrap()]);
        let mut srun = cluster.with(command(&words[0]));
        joined(&ended(srun.args(&words[1..])), "launcher Srun way Derived size ");
    }
}

/// Two runs in one job, and a rank 0 that is killed before the others have come: nobody takes an old address for a new one.
#[test]
fn the_store_of_a_torchrun_agent_serves_run_after_run() {
    let port = format!("--master_port={}", free_port());
    let mut agent = needed!(torchrun_agent(3, &[&port]));
    let who = who().display().to_string();
    let killed = format!("timeout -s KILL 2 {who}; sleep 3");
    agent.args(["sh", "-c", &format!("{who}; if [ $RANK = 0 ]; then {killed}; else sleep 3; fi; {who}")]);
    let ended = ended(&mut agent);
    let says = "launcher Torchrun way TcpStore size 3 gathered 0,1,2 here 3";
    assert_eq!(ended.printed().matches(says).count(), 2, "{ended:?}");
}

#[test]
fn two_agents_of_torchrun_meet_with_either_rendezvous() {
    let port = free_port();
    let addressed = ["--nnodes=2", "--master_addr=127.0.0.1", &format!("--master_port={port}")].map(str::to_owned);
    let (endpoint, id) = (format!("--rdzv_endpoint=localhost:{}", free_port()), format!("--rdzv_id={port}"));
    let elastic = ["--nnodes=2".to_owned(), "--rdzv_backend=c10d".to_owned(), endpoint + " " + &id];
    for (options, ranked) in [(addressed, true), (elastic, false)] {
        let words: Vec<&str> = options.iter().flat_map(|option| option.split(' ')).collect();
        let start = |node: &str| {
            let options = if ranked { [&words[..], &[node]].concat() } else { words.clone() };
            let mut agent = torchrun_agent(2, &options)?;
            Ok::<_, Skip>(Running::start(agent.arg(who())))
        };
        let (mut zero, mut one) = (needed!(start("--node_rank=0")), needed!(start("--node_rank=1")));
        let lines = zero.ended(LIMIT).printed().to_owned() + one.ended(LIMIT).printed();
        assert_eq!(lines.matches(" size 4 gathered 0,1,2,3 here 4").count(), 1, "{lines}");
        assert!(!ranked || lines.contains("way TcpStore"), "{lines}");
    }
}

#[test]
fn torchrun_of_one_host_shares_a_secret_with_or_without_a_store() {
    let home = tempfile::tempdir().unwrap();
    let ended = ended(needed!(torchrun(3)).arg(who()).env("HOME", home.path()));
    joined(&ended, "launcher Torchrun way ");
    assert!(!ended.stderr.contains("anyone who knows"), "{ended:?}");
}
