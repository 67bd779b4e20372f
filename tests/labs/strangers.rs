//! A stranger on the network who knows every public word of a job, and the source: he is refused, rank 0 does not grow, and the job's
//! result is right. Each job has its token another way.

use crate::support::command::BUSBW;
use crate::support::lab::{NetLab, SlurmLab, torchrun_agent};
use crate::support::process::{Ended, LIMIT, Running};
use crate::support::skip::{Skip, needed, programs};
use crate::support::table::{ranks, rows};
use busbw_transport::Token;
use busbw_transport::handshake::{Connector, Protocol};
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const TORCHRUN: [&str; 5] =
    ["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "WORLD_SIZE"];
const SLURM: [&str; 8] = [
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_JOB_UID",
    "SLURM_JOB_START_TIME",
    "SLURM_STEP_LAUNCHER_PORT",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_NUM_TASKS",
];
const TOKEN: &str = "7f3a09c2b15d4e8896a0d1c4e5f60718";
/// How long the stranger waits for an answer: longer than rank 0 waits for his.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where the stranger is.
const ELSEWHERE: usize = 3;
/// More than what rank 0 needs for the connections that it lets wait.
const GROWTH_KIB: u64 = 32 << 10;

/// A folder by which ranks tell of themselves, and in which rank 1 is held back.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().expect("a new folder"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// A shell's command: rank 0 tells its process and variables, any other rank waits to be let go.
    fn script(&self, rank: &str, before: &str) -> String {
        let [pid, words, go] = ["pid", "words", "go"].map(|name| self.path(name));
        // Not $$, which torchrun takes for an escaped $.
        format!(
            "if [ \"${rank}\" = 0 ]; then env >{words}; sh -c 'echo $PPID' >{pid}; else while [ ! -e {go} ]; do sleep 0.1; done; fi; \
             {before} exec {BUSBW} bench all_reduce -b 4K -e 64K -f 4 --stall-timeout 60"
        )
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok().filter(|text| text.ends_with('\n'))
    }

    /// Lets rank 1 go.
    fn go(&self) {
        std::fs::write(self.path("go"), "").expect("a file");
    }
}

/// Rank 0's process, the port where it listens, and the hash of the job's public words.
struct Target {
    pid: u32,
    address: SocketAddr,
    digest: [u8; 32],
}

impl Target {
    fn find(folder: &Folder, job: &mut Running, words: &[&str]) -> Target {
        let pid: u32 = job.retry(LIMIT, "rank 0", || folder.read("pid")?.trim().parse().ok());
        let port = job.retry(LIMIT, "listener of rank 0", || listening(pid));
        let variables = folder.read("words").expect("rank 0 has told them");
        let look = |name: &str| {
            variables.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
        };
        assert!(words.iter().any(|name| look(name).is_some()), "{variables}");
        let told = words.iter().map(|name| format!("{name}={:?};", look(name))).collect::<String>();
        let address = format!("{}:{port}", NetLab::address(1)).parse().expect("an address");
        Target { pid, address, digest: Sha256::digest(told).into() }
    }

    /// The token of version 2 (the first bytes of the hash), that of today where there is no other way, and none.
    fn guesses(&self) -> [Token; 3] {
        let today =
            Sha256::new().chain_update(self.digest).chain_update("token").chain_update(0u32.to_le_bytes()).finalize();
        [&self.digest[..], &today, &[0; 16]].map(|bytes| Token::from_bytes(*bytes.first_chunk().expect("16 bytes")))
    }

    fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("rank 0 lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect_timeout(&self.address, PATIENCE).expect("rank 0 listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        stream.set_write_timeout(Some(PATIENCE)).expect("a limit");
        stream
    }
}

/// The port at which a process listens.
fn listening(pid: u32) -> Option<u16> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let links = files.filter_map(|file| std::fs::read_link(file.path()).ok()).map(|link| link.display().to_string());
    let sockets: Vec<String> =
        links.filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).ok()?;
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ours = words.get(3) == Some(&"0A") && sockets.iter().any(|socket| words.get(9) == Some(&socket.as_str()));
        u16::from_str_radix(words.get(1)?.split_once(':')?.1, 16).ok().filter(|_| ours)
    })
}

/// What was said on a connection, beside what was read.
struct Recorded<'a> {
    stream: &'a TcpStream,
    said: Vec<u8>,
}

impl Read for Recorded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.stream.read(buffer)
    }
}

impl Write for Recorded<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.stream.write(bytes)?;
        self.said.extend_from_slice(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

/// One that wants to come to `place`.
fn connector(token: Token, place: SocketAddr) -> Connector {
    let protocol = Protocol { magic: *b"busbwjob", version: 3, payload: 0 };
    Connector::new(protocol, Vec::new(), move |_| Ok(token)).expect("random bytes").to(place)
}

/// All that is said until rank 0 closes the connection: a challenge, of 28 bytes and the offer, and nothing that needs a token.
fn closed_after_a_challenge(mut stream: TcpStream, what: &str) {
    let mut answer = Vec::new();
    let ended = stream.read_to_end(&mut answer).err().map(|error| error.kind());
    assert!(matches!(ended, None | Some(std::io::ErrorKind::ConnectionReset)), "{what}: still open: {ended:?}");
    let offer = answer.get(26..28).map_or(0, |length| usize::from(u16::from_le_bytes([length[0], length[1]])));
    assert!(answer.is_empty() || answer.len() == 28 + offer, "{what}: {answer:?}");
}

/// As a rank of version 2 came in, or one of today's whose proof is made up: with a frame behind.
fn break_in(target: &Target, version: u16, token: &Token, frame: &[u8]) -> TcpStream {
    let mut stream = target.connect();
    let opening = [&b"busbwjob"[..], &version.to_le_bytes(), token.as_bytes()].concat();
    let proof = if version == 3 { [7; 32].to_vec() } else { Vec::new() };
    let _ = stream.write_all(&[opening, proof, frame.to_vec()].concat());
    stream
}

/// A hello as rank 1 of a host whose name writes to the operator's terminal (as postcard has it).
fn hello(flags: &str) -> Vec<u8> {
    let host = b"evil\x1b]0;stranger\x07\x1b[2J";
    let hello =
        [&[0, 1, 2, host.len() as u8][..], host, &[123, flags.len() as u8], flags.as_bytes(), &[9, 0, 10, 77, 0, 3]]
            .concat();
    [&(hello.len() as u32).to_le_bytes()[..], &hello].concat()
}

fn attack(target: &Target) {
    let before = target.resident_kib();
    let waiting: Vec<TcpStream> = (0..200).map(|_| target.connect()).collect();
    for token in target.guesses() {
        let let_in = connector(token, target.address).run(&mut target.connect(), PATIENCE);
        assert!(let_in.is_err(), "let in with a token of public words");
        for version in [2, 3] {
            for flags in ["", "all_reduce -b 4K -e 64K -f 4 --stall-timeout 60"] {
                closed_after_a_challenge(break_in(target, version, &token, &hello(flags)), "a hello");
            }
            let endless = break_in(target, version, &token, &(1u32 << 30).to_le_bytes());
            let taken = pour(&endless);
            // What the kernels hold between two hosts.
            assert!(taken < 64 << 20, "rank 0 took {taken} bytes");
            closed_after_a_challenge(endless, "an endless frame");
        }
    }
    let grown = target.resident_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB, "rank 0 grew by {grown} KiB");
    drop(waiting);
}

/// How much of 256 MiB is taken.
fn pour(mut stream: &TcpStream) -> usize {
    let block = vec![0; 1 << 20];
    (0..256).map_while(|_| stream.write(&block).ok()).sum()
}

/// What a rank said is of no use to others: its connection, played again.
fn replay(target: &Target, token: Token) {
    let stream = target.connect();
    let mut recorded = Recorded { stream: &stream, said: Vec::new() };
    let let_in = connector(token, target.address).poll(&mut recorded).expect("the token is right");
    assert!(let_in.is_some());
    let said = recorded.said;
    drop(stream);
    let mut again = target.connect();
    again.write_all(&[said, hello("")].concat()).expect("rank 0 reads");
    closed_after_a_challenge(again, "a replay");
}

/// A rank that was led to a stranger's address, and is passed on to rank 0 by him.
fn relay(target: &Target, token: Token) {
    for place in ["10.77.0.3:4711", "10.77.0.1:4711", "10.77.0.3:20000"] {
        let led_astray = connector(token, place.parse().expect("an address"));
        assert!(led_astray.run(&mut target.connect(), PATIENCE).is_err(), "let in by way of {place}");
    }
}

/// One table of both ranks, with right results, and nothing of the stranger but some lines that count him.
fn assert_unharmed(ended: &Ended, hosts: [&str; 2]) {
    let context = format!("{}\n{}\n{}", ended.status, ended.stdout, ended.stderr);
    assert!(ended.status.success(), "{context}");
    let lines = ranks(&ended.stdout, 2).unwrap_or_default();
    assert_eq!(lines.iter().map(|line| line.host.as_str()).collect::<Vec<_>>(), hosts, "{context}");
    assert_eq!(rows(&ended.stdout).len(), 3, "{context}");
    assert!(ended.stdout.contains("# Out of bounds values : 0 OK"), "{context}");
    let (all, told) = (format!("{}{}", ended.stdout, ended.stderr), ended.stderr.matches("busbw: dropped").count());
    assert!(!all.contains(['\x1b', '\x07']) && !all.contains("evil"), "{context}");
    assert!((1..=12).contains(&told), "{told} lines of the stranger: {context}");
    assert!(!all.contains("anyone who knows"), "{context}");
}

/// Attacks the job from another host while rank 1 is held back, and lets that go.
fn attacked(hosts: &NetLab, folder: &Folder, job: &mut Running, words: &[&str]) {
    let target = Target::find(folder, job, words);
    hosts.within(ELSEWHERE, || attack(&target));
    folder.go();
}

fn shell(script: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script]);
    shell
}

#[test]
fn a_stranger_at_a_job_with_torchrun_s_store() {
    let hosts = needed!(NetLab::up(3, &[]));
    let folder = Folder::new();
    let start = |node: usize| {
        let rank = format!("--node_rank={}", node - 1);
        let options = ["--nnodes=2", "--master_addr=10.77.0.1", "--master_port=29555", &rank];
        let mut agent = torchrun_agent(1, &options)?;
        agent.args(["sh", "-c", &folder.script("RANK", "")]);
        Ok::<_, Skip>(Running::start(hosts.wrap(node, &agent)))
    };
    let (mut zero, mut one) = (needed!(start(1)), needed!(start(2)));
    attacked(&hosts, &folder, &mut zero, &TORCHRUN);
    assert_unharmed(&zero.ended(LIMIT), ["h1", "h2"]);
    assert!(one.ended(LIMIT).status.success());
}

#[test]
fn a_stranger_at_a_job_of_srun_with_munge() {
    needed!(programs(&["munge", "unmunge"]));
    let hosts = needed!(NetLab::up(3, &[]));
    let cluster = needed!(SlurmLab::on(&hosts));
    let folder = Folder::new();
    let mut job = Running::start(cluster.with(hosts.exec(1, "srun")).args([
        "-N2",
        "-n2",
        "-w",
        "node[1-2]",
        "--mpi=none",
        "sh",
        "-c",
        &folder.script("SLURM_PROCID", ""),
    ]));
    attacked(&hosts, &folder, &mut job, &SLURM);
    assert_unharmed(&job.ended(LIMIT), ["node1", "node2"]);
}

/// Ranks with torchrun's variables that were set by hand: rank 0 on host 1, rank 1 on `second`.
fn by_hand(hosts: &NetLab, folder: &Folder, second: usize, variables: &[(&str, &str)]) -> [Running; 2] {
    [(0, 1), (1, second)].map(|(rank, host)| {
        // Without munge.
        let mut shell = shell(&folder.script("RANK", "PATH=/nowhere"));
        shell.envs([("MASTER_ADDR", "10.77.0.1"), ("MASTER_PORT", "29500"), ("WORLD_SIZE", "2")]);
        shell.env("RANK", rank.to_string()).env("HOME", folder.0.path()).envs(variables.iter().copied());
        Running::start(hosts.wrap(host, &shell))
    })
}

#[test]
fn a_stranger_at_a_job_with_a_file() {
    let hosts = needed!(NetLab::up(3, &[]));
    let folder = Folder::new();
    let [mut zero, mut one] = by_hand(&hosts, &folder, 1, &[("LOCAL_WORLD_SIZE", "2")]);
    attacked(&hosts, &folder, &mut zero, &TORCHRUN);
    assert_unharmed(&zero.ended(LIMIT), ["h1", "h1"]);
    assert!(one.ended(LIMIT).status.success());
}

#[test]
fn a_stranger_who_records_or_passes_on_what_a_rank_with_busbw_token_says() {
    let hosts = needed!(NetLab::up(3, &[]));
    let folder = Folder::new();
    let [mut zero, mut one] = by_hand(&hosts, &folder, 2, &[("BUSBW_TOKEN", TOKEN)]);
    let target = Target::find(&folder, &mut zero, &TORCHRUN);
    let token: Token = TOKEN.parse().expect("a token");
    hosts.within(ELSEWHERE, || replay(&target, token));
    hosts.within(ELSEWHERE, || relay(&target, token));
    attacked(&hosts, &folder, &mut zero, &TORCHRUN);
    assert_unharmed(&zero.ended(LIMIT), ["h1", "h2"]);
    assert!(one.ended(LIMIT).status.success());
}

/// What is left where ranks share no secret: he comes in with what he has guessed, and rank 0 has said so.
#[test]
fn a_stranger_at_a_job_without_a_secret() {
    let hosts = needed!(NetLab::up(3, &[]));
    let folder = Folder::new();
    let [mut zero, mut one] = by_hand(&hosts, &folder, 2, &[]);
    let target = Target::find(&folder, &mut zero, &TORCHRUN);
    let [old, today, _] = target.guesses();
    let tried = |token| {
        hosts.within(ELSEWHERE, || connector(token, target.address).run(&mut target.connect(), PATIENCE).is_ok())
    };
    assert_eq!([tried(old), tried(today)], [false, true]);
    folder.go();
    let (zero, one) = (zero.ended(LIMIT), one.ended(LIMIT));
    assert!(zero.status.success() && one.status.success(), "{zero:?} {one:?}");
    assert_eq!(zero.stderr.matches("anyone who knows this job's id can join it").count(), 1, "{zero:?}");
    assert!(!one.stderr.contains("anyone who knows"), "{one:?}");
}
