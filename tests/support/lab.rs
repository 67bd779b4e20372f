//! Labs for tests: several hosts, a Slurm cluster, MPI launchers and torchrun on one machine, or the reason why not.

use super::skip::{Skip, find, programs, root_folder};
use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a lab may be taken by another test. Longer than any test of a lab takes.
const TURN: Duration = Duration::from_secs(600);
/// The numbers of the tests' labs: a lab that somebody brought up by hand has another.
const NET_LAB: &str = "11";
const SLURM_LAB: &str = "11";

/// Hosts 1 to N as network namespaces, joined by a switch: names h1, h2 …, addresses 10.77.0.1, 10.77.0.2 …
/// One at a time on the machine; the others wait for their turn. Gone when dropped, and what runs there with it.
pub struct NetLab {
    script: PathBuf,
    hosts: usize,
    _turn: File,
}

impl NetLab {
    /// Brings up a lab. `options` are those of `tests/lab/netlab up`.
    pub fn up(hosts: usize, options: &[&str]) -> Result<Self, Skip> {
        root()?;
        programs(&["ip", "tc", "nft", "unshare"])?;
        if !succeeds(Command::new("unshare").args(["--net", "--mount", "--uts", "true"])) {
            return Err(Skip("this root may not make network namespaces".into()));
        }
        let lab = NetLab { script: script("netlab"), hosts, _turn: take_turn("netlab") };
        lab.control(&[&["up", &hosts.to_string()], options].concat());
        Ok(lab)
    }

    /// A command that runs `program` on a host.
    pub fn exec(&self, host: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.command();
        command.args(["exec", &host.to_string()]).arg(program);
        command
    }

    pub fn wrap(&self, host: usize, inner: &Command) -> Command {
        let mut command = self.exec(host, inner.get_program());
        command.args(inner.get_args());
        let set = inner.get_envs().filter_map(|(name, value)| Some((name, value?)));
        command.envs(set);
        command
    }

    /// Does something in a thread whose sockets are a host's.
    pub fn within<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/run/netns/busbw-lab{NET_LAB}-h{host}")).expect("a host of the lab");
        let enter = || {
            nix::sched::setns(&namespace, nix::sched::CloneFlags::CLONE_NEWNET).expect("root may go there");
            work()
        };
        std::thread::scope(|scope| scope.spawn(enter).join().expect("the work ends well"))
    }

    /// A command that starts Open MPI's mpirun on host 1, with `slots` ranks on every host; the program and its arguments
    /// come behind.
    pub fn mpirun(&self, slots: usize) -> Command {
        let hosts: Vec<String> = (1..=self.hosts).map(|host| format!("{}:{slots}", Self::address(host))).collect();
        let mut command = self.exec(1, "mpirun.openmpi");
        allow_root(&mut command);
        command.args(["--host", &hosts.join(","), "--bind-to", "none", "--mca", "plm_rsh_agent"]);
        command.arg(format!("{} rsh", self.script.display())).args(["--mca", "btl", "tcp,self"]);
        // Open MPI 4.1's daemons of one machine write their picture of it to one file, and at times crash on it.
        command.args(["--mca", "rtc", "^hwloc"]);
        command
    }

    pub fn address(host: usize) -> String {
        format!("10.77.0.{host}")
    }

    /// Cuts a host's cable.
    pub fn link_down(&self, host: usize) {
        self.control(&["link-down", &host.to_string()]);
    }

    /// Restores a host's cable.
    pub fn link_up(&self, host: usize) {
        self.control(&["link-up", &host.to_string()]);
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.script);
        command.env("NETLAB", NET_LAB).stdin(Stdio::null());
        command
    }

    fn control(&self, arguments: &[&str]) {
        control(self.command().args(arguments));
    }
}

impl Drop for NetLab {
    fn drop(&mut self) {
        succeeds(self.command().arg("down"));
    }
}

/// A Slurm cluster of nodes node1, node2 … on this machine. One at a time; gone when dropped, with its jobs.
pub struct SlurmLab {
    script: PathBuf,
    conf: String,
    _turn: File,
}

impl SlurmLab {
    /// Brings up a cluster.
    pub fn up(nodes: usize) -> Result<Self, Skip> {
        Self::started(&[&nodes.to_string()], "")
    }

    /// As `up`, with more lines for slurm.conf.
    pub fn with_more(nodes: usize, lines: &str) -> Result<Self, Skip> {
        Self::started(&[&nodes.to_string()], lines)
    }

    /// Brings up a cluster whose nodes are the hosts of a net lab, as jobs that meet over a network need it. Its commands work
    /// on host 1. To be dropped before the net lab.
    pub fn on(hosts: &NetLab) -> Result<Self, Skip> {
        Self::started(&[&hosts.hosts.to_string(), "--on-net-lab"], "")
    }

    fn started(arguments: &[&str], more: &str) -> Result<Self, Skip> {
        root()?;
        programs(&["slurmctld", "slurmd", "srun", "munged"])?;
        let script = script("slurmlab");
        let output =
            Command::new(&script).arg("conf").env("SLURMLAB", SLURM_LAB).output().expect("the lab's script runs");
        let conf = String::from_utf8_lossy(&output.stdout).trim().to_string();
        let lab = SlurmLab { script, conf, _turn: take_turn("slurmlab") };
        control(lab.command().arg("up").args(arguments).env("SLURMLAB_MORE", more));
        Ok(lab)
    }

    /// A command that starts srun with these options; the program and its arguments come behind.
    pub fn srun(&self, options: &[&str]) -> Command {
        let mut command = Command::new("srun");
        command.env("SLURM_CONF", &self.conf).args(options).stdin(Stdio::null());
        command
    }

    /// A command that talks to this cluster.
    pub fn with(&self, mut command: Command) -> Command {
        command.env("SLURM_CONF", &self.conf);
        command
    }

    /// Kills a node's daemon, as a crash does.
    pub fn kill_daemon(&self, node: &str) {
        control(self.command().args(["kill-daemon", node]));
    }

    /// Starts a node's daemon again.
    pub fn start_daemon(&self, node: &str) {
        control(self.command().args(["start-daemon", node]));
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.script);
        command.env("SLURMLAB", SLURM_LAB).env("NETLAB", NET_LAB).stdin(Stdio::null());
        command
    }
}

impl Drop for SlurmLab {
    fn drop(&mut self) {
        succeeds(self.command().arg("down"));
    }
}

/// A command that starts Open MPI's mpirun on this machine with `ranks` ranks.
pub fn mpirun_openmpi(ranks: usize) -> Result<Command, Skip> {
    programs(&["mpirun.openmpi"])?;
    let mut command = Command::new("mpirun.openmpi");
    allow_root(&mut command);
    command.args(["--oversubscribe", "--bind-to", "none", "-np", &ranks.to_string()]).stdin(Stdio::null());
    Ok(command)
}

/// A command that starts MPICH's mpirun on this machine with `ranks` ranks.
pub fn mpirun_mpich(ranks: usize) -> Result<Command, Skip> {
    programs(&["mpirun.mpich"])?;
    let mut command = Command::new("mpirun.mpich");
    command.args(["-n", &ranks.to_string()]).stdin(Stdio::null());
    Ok(command)
}

/// A command that starts torchrun on this machine with `ranks` ranks of a program that is no Python.
pub fn torchrun(ranks: usize) -> Result<Command, Skip> {
    torchrun_agent(ranks, &["--standalone"])
}

/// A command that starts one of torchrun's agents, with `ranks` ranks of a program that is no Python and these options.
pub fn torchrun_agent(ranks: usize, options: &[&str]) -> Result<Command, Skip> {
    let installed = ["python", "torch"].map(|folder| root_folder().join("target").join(folder).join("bin/torchrun"));
    let installed = installed.into_iter().find(|file| file.is_file()).or_else(|| find("torchrun"));
    let torchrun = installed.ok_or(Skip("torchrun is missing; make setup installs it".into()))?;
    let mut command = Command::new(torchrun);
    command.args(options).args(["--no_python", &format!("--nproc_per_node={ranks}")]).stdin(Stdio::null());
    // Debian's PyTorch 1.13 cannot redirect nothing under Python 3.11: redirect a rank that is not there.
    let absent = format!("{ranks}:3");
    command.args(["--redirects", &absent, "--tee", &absent]);
    Ok(command)
}

/// A command that runs the program and arguments behind it with mounts of its own, which nobody else sees.
pub fn own_mounts() -> Result<Command, Skip> {
    root()?;
    programs(&["unshare"])?;
    if !succeeds(Command::new("unshare").args(["--mount", "true"])) {
        return Err(Skip("this root may not make mount namespaces".into()));
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]);
    Ok(command)
}

fn allow_root(command: &mut Command) {
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    // Else it asks munge first, and waits for five seconds where that is installed and does not run.
    command.env("PMIX_MCA_psec", "native");
}

pub fn script(name: &str) -> PathBuf {
    root_folder().join("tests/lab").join(name)
}

fn root() -> Result<(), Skip> {
    let output = Command::new("id").arg("-u").output().expect("id is part of every Linux");
    if output.stdout.trim_ascii() == b"0" { Ok(()) } else { Err(Skip("only root may bring up a lab".into())) }
}

fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn control(command: &mut Command) {
    let output = command.output().expect("the lab's script runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Waits until no other test, of any process, uses the lab. The system gives the turn back when the process ends.
pub fn take_turn(lab: &str) -> File {
    let path = std::env::temp_dir().join(format!("busbw-{lab}.lock"));
    let file = File::options().create(true).append(true).open(&path).expect("the lock file can be written");
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return file,
            Err(TryLockError::WouldBlock) if since.elapsed() < TURN => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
}
