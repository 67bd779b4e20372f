//! The profiler, played by a C program as NCCL calls it: every version, and what goes wrong.

use crate::plugin;
use crate::skip::{Skip, needed};
use crate::support::{C, clean};
use busbw_events::{ATTACH, CAPACITY, Function, Kind, Reader, Record, State, VARIABLE, What, kind_of};
use busbw_model::{Collective, Datatype};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const VERSIONS: std::ops::RangeInclusive<u32> = 1..=6;

struct Player {
    program: PathBuf,
    folder: TempDir,
    _c: C,
}

/// What a version of the interface can tell.
fn has_kernels(version: u32) -> bool {
    version >= 3
}

fn has_calls(version: u32) -> bool {
    version >= 5
}

impl Player {
    fn new() -> Result<Self, Skip> {
        let c = C::compiler()?;
        Ok(Player { program: c.compile("profile", &["profile.c"]), folder: tempfile::tempdir().unwrap(), _c: c })
    }

    fn play(&self, version: u32, scene: &str, folder: Option<&Path>) -> Output {
        let mut command = Command::new(&self.program);
        clean(&mut command);
        command.env_remove(VARIABLE).arg(plugin::library()).args([&version.to_string(), scene]);
        command.env("NCCL_SOCKET_IFNAME", "=lo").envs(folder.map(|folder| (VARIABLE, folder)));
        let output = command.output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "version {version}: {}: {log}", output.status);
        output
    }

    /// Plays into a new folder; the rings there.
    fn record(&self, version: u32, scene: &str) -> (Output, Vec<Reader>) {
        let folder = self.folder.path().join(format!("{version}-{scene}"));
        std::fs::create_dir(&folder).unwrap();
        let output = self.play(version, scene, Some(&folder));
        let rings = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        (output, rings.map(|path| Reader::open(&path).unwrap().unwrap()).collect())
    }
}

fn masks(output: &Output) -> Vec<u32> {
    String::from_utf8_lossy(&output.stdout).lines().map(|line| line.parse().unwrap()).collect()
}

fn drained(reader: &mut Reader) -> Vec<Record> {
    let mut records = Vec::new();
    reader.drain(true, |record| records.push(record));
    records
}

#[test]
fn without_a_folder_nothing_is_asked_for() {
    let player = needed!(Player::new());
    for version in VERSIONS {
        let output = player.play(version, "job", None);
        assert_eq!((masks(&output), output.stderr.is_empty()), (vec![0, 0], true), "version {version}");
    }
}

#[test]
fn a_folder_that_cannot_be_used_is_told_and_is_no_error() {
    let player = needed!(Player::new());
    let missing = player.folder.path().join("none");
    for version in VERSIONS {
        let output = player.play(version, "job", Some(&missing));
        assert_eq!(masks(&output), [0, 0], "version {version}");
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        let told = log.contains("WARN PROFILER/busbw : BUSBW_PROFILE=") && log.contains("nothing is recorded");
        // Versions 1 to 3 have no logger.
        assert_eq!(told, version >= 4, "version {version}: {log}");
    }
}

/// The ring is the process's own memory, and full of nothing while nobody reads.
#[test]
fn a_job_that_may_be_looked_on_later_runs_as_others_do() {
    let player = needed!(Player::new());
    for (version, scene) in VERSIONS.map(|version| (version, "job")).chain([(6, "flood")]) {
        let output = player.play(version, scene, Some(Path::new(ATTACH)));
        assert!(masks(&output).iter().all(|mask| *mask != 0), "version {version}");
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!log.contains("WARN"), "version {version}: {log}");
    }
}

/// The mask is one for the process: whichever communicator's `init` is the last, it asks for the same.
#[test]
fn every_init_asks_for_the_same_events() {
    let player = needed!(Player::new());
    for version in VERSIONS {
        let (output, rings) = player.record(version, "job");
        let masks = masks(&output);
        assert_eq!((masks.len(), rings.len()), (3, 1), "version {version}");
        assert!(masks[0] != 0 && masks.iter().all(|mask| *mask == masks[0]), "version {version}: {masks:?}");
    }
}

#[test]
fn what_nccl_says_is_written_down_in_every_version() {
    let player = needed!(Player::new());
    for version in VERSIONS {
        let (_, mut rings) = player.record(version, "job");
        let records = drained(&mut rings[0]);
        let begun = |kind: Kind| {
            let stops = |record: &&Record| !matches!(record.what, What::Stop | What::State { .. });
            records.iter().filter(stops).filter(|record| kind_of(record.id) == Some(kind)).collect::<Vec<_>>()
        };
        let of = |id: u64| records.iter().filter(move |record| record.id == id).collect::<Vec<_>>();
        let communicators = begun(Kind::Communicator);
        assert_eq!(communicators.len(), 3, "version {version}");
        if version >= 4 {
            let told = communicators[0].what;
            let What::Communicator { hash: 4711, ranks: 4, nodes: 2, rank: 1, .. } = told else {
                panic!("version {version}: {told:?}")
            };
        }
        let operations = begun(Kind::Operation);
        // One, three replays, a send, and one of the communicator that was made later.
        assert_eq!(operations.len(), 6, "version {version}");
        let What::Operation { function, datatype, algorithm, protocol, channels, count, .. } = operations[0].what
        else {
            panic!("version {version}: {:?}", operations[0]);
        };
        let expected = Function::Collective(Collective::AllReduce);
        assert_eq!((function, datatype, count), (expected, Some(Datatype::Float), 1024), "version {version}");
        assert_eq!((algorithm, protocol, channels), (1, 2, 2), "version {version}");
        // Queued before any of its parts begins.
        let stop = of(operations[0].id)[1];
        let proxies = begun(Kind::ProxyOperation);
        let parts: Vec<_> = proxies.iter().filter(|proxy| proxy.parent == operations[0].id).collect();
        assert_eq!((stop.what, parts.len()), (What::Stop, 2), "version {version}");
        assert!(parts.iter().all(|part| part.time_ns >= stop.time_ns), "version {version}");
        assert_eq!(begun(Kind::Kernel).len(), if has_kernels(version) { 4 } else { 0 }, "version {version}");
        // The wait for the receiver, which NCCL told a thousand times.
        let steps = begun(Kind::ProxyStep);
        let first: Vec<State> = of(steps[0].id)
            .iter()
            .filter_map(|record| if let What::State { state, .. } = record.what { Some(state) } else { None })
            .collect();
        let all = [State::SendGpu, State::SendPeer, State::SendNetwork];
        let told: Vec<_> = all.into_iter().filter(|state| *state != State::SendPeer || version >= 4).collect();
        assert_eq!((steps.len(), first), (36, told), "version {version}");
        assert_eq!(rings[0].lost(), 0, "version {version}");
    }
}

/// A graph's calls are made once; its operations come again each time it is replayed, with the same parent.
#[test]
fn replays_of_a_graph_have_the_call_that_was_captured() {
    let player = needed!(Player::new());
    for version in VERSIONS.filter(|version| has_calls(*version)) {
        let (_, mut rings) = player.record(version, "job");
        let records = drained(&mut rings[0]);
        let captured = records.iter().find(|record| record.what == What::Call { captured: true }).unwrap();
        let replayed = records.iter().filter(|record| record.parent == captured.id);
        assert_eq!(replayed.count(), 3, "version {version}");
    }
}

/// With PXN a proxy sends for a GPU of another process: the parent's number is that process's.
#[test]
fn a_parent_of_another_process_is_kept_with_its_process() {
    let player = needed!(Player::new());
    for version in VERSIONS {
        let (_, mut rings) = player.record(version, "job");
        let own = rings[0].process();
        let foreign: Vec<_> = drained(&mut rings[0])
            .into_iter()
            .filter_map(|record| match record.what {
                What::ProxyOperation { process, .. } if process != own => Some((process, record.parent)),
                _ => None,
            })
            .collect();
        assert_eq!(foreign, [(4711, 0x7f00_0000_1233)], "version {version}");
    }
}

/// NCCL hands the network's own events on to the profiler, with the step that a message belongs to.
#[test]
fn messages_of_the_network_belong_to_their_step() {
    let player = needed!(Player::new());
    for version in VERSIONS.filter(|version| *version >= 4) {
        let (_, mut rings) = player.record(version, "network");
        let records = drained(&mut rings[0]);
        let step = records.iter().find(|record| matches!(record.what, What::ProxyStep { .. })).unwrap().id;
        let of_step: Vec<_> = records.iter().filter(|record| record.parent == step).collect();
        let [message] = &of_step[..] else { panic!("version {version}: {of_step:?}") };
        assert_eq!(message.what, What::Message { plugin: 0xb5 << 16 | 1, bytes: 5000 }, "version {version}");
        let ended = |record: &&Record| record.id == message.id && record.what == What::Stop;
        assert_eq!(records.iter().filter(ended).count(), 1, "version {version}");
    }
    // Without a profiler that reads, the network says nothing.
    player.play(6, "network", None);
}

#[test]
fn a_full_ring_counts_what_it_loses_and_tells_it() {
    let player = needed!(Player::new());
    let (output, mut rings) = player.record(6, "flood");
    let kept = drained(&mut rings[0]).len() as u64;
    let lost = rings[0].lost();
    // The communicator has a place of its own.
    assert_eq!(kept, CAPACITY + 1);
    // Each plan of four threads: an operation, its end, a kernel with two more, two proxies of 2 + 4 × 5 events.
    // Threads that spin at once may say that they wait more than once.
    let all = 1 + 4 * 2000 * (2 + 3 + 2 * (2 + 4 * 5));
    assert!((all..all + all / 100).contains(&(kept + lost)), "{kept} and {lost} of {all}");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(log.contains(&format!("WARN PROFILER/busbw : {lost} events found no room")), "{log}");
}
