//! Joins the job that this process was started in; rank 0 prints one line with all members. For trying a launcher:
//! `mpirun -np 4 who`, `srun -n 4 who`, `torchrun --no-python who`, or `who --np 4`.
//!
//! `--threads N` ranks per process, `--timeout SECONDS`, `--die RANK`, `--hang RANK`, `--fail RANK` to try a fault, `--quiet`.

use busbw_launch::local::Local;
use busbw_launch::{Error, JobRank, ProcessGroup, Rendezvous, Settings};
use busbw_transport::{Cancellation, Exchange};
use std::time::Duration;

struct Arguments(Vec<String>);

impl Arguments {
    fn number(&self, name: &str) -> Option<usize> {
        let at = self.0.iter().position(|argument| argument == name)?;
        self.0.get(at + 1)?.parse().ok()
    }
}

fn main() -> std::process::ExitCode {
    let arguments = Arguments(std::env::args().skip(1).collect());
    match run(&arguments) {
        Ok(status) => std::process::ExitCode::from(status as u8),
        Err(error) => {
            eprintln!("who: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<i32, Error> {
    let look = |name: &str| std::env::var(name).ok();
    if let (Some(np), None) = (arguments.number("--np"), look("BUSBW_RANK")) {
        let program = std::env::current_exe().map_err(|source| Error::system("find myself", source))?;
        let passed = std::env::args_os().skip(1).collect();
        return Local { np, program, arguments: passed, environment: Vec::new() }.run(&look);
    }
    let job_rank = JobRank::detect(&look)?;
    let settings = Settings {
        timeout: Duration::from_secs(arguments.number("--timeout").unwrap_or(20) as u64),
        ranks_per_process: arguments.number("--threads").unwrap_or(1),
        flags: arguments.0.iter().filter(|argument| *argument != "--quiet").cloned().collect::<Vec<_>>().join(" "),
        ..Settings::default()
    };
    let threads = settings.ranks_per_process;
    let rendezvous = Rendezvous::open(&job_rank, &look, settings)?;
    std::thread::scope(|scope| {
        let (rendezvous, job_rank) = (&rendezvous, &job_rank);
        let start = |thread| scope.spawn(move || rank(rendezvous, job_rank, thread, arguments));
        let ranks: Vec<_> = (0..threads).map(start).collect();
        ranks.into_iter().try_for_each(|rank| rank.join().expect("a rank's thread does not panic"))
    })?;
    Ok(0)
}

fn rank(rendezvous: &Rendezvous, job_rank: &JobRank, thread: usize, arguments: &Arguments) -> Result<(), Error> {
    let mut world = rendezvous.join(thread, Cancellation::new())?;
    let rank = world.rank();
    let all = world.all_gather(rank.to_string().as_bytes())?;
    let numbers: Vec<String> = all.iter().map(|number| String::from_utf8_lossy(number).into_owned()).collect();
    let host = world.split_by_host()?;
    if rank == 0 {
        let members: Vec<String> = world.ranks().iter().map(|m| format!("{}:{}", m.host, m.pid)).collect();
        println!(
            "launcher {:?} way {} size {} gathered {} here {} members {}",
            job_rank.launcher,
            format!("{:?}", job_rank.discovery).split([' ', '{']).next().unwrap_or_default(),
            world.size(),
            numbers.join(","),
            host.size(),
            members.join(" ")
        );
    }
    fault(world, rank, arguments)
}

fn fault(mut world: ProcessGroup, rank: usize, arguments: &Arguments) -> Result<(), Error> {
    if arguments.number("--die") == Some(rank) {
        std::process::abort();
    }
    if arguments.number("--fail") == Some(rank) {
        return Err(Error::Job(world.fail("a fault on request")));
    }
    if arguments.number("--hang") == Some(rank) {
        // Alive, and never where the others wait.
        while world.cancellation().reason().is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    world.barrier()?;
    Ok(world.leave()?)
}
