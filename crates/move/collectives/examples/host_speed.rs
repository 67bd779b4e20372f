//! Times collectives among ranks of this host that are processes: `host_speed RANKS [COLLECTIVE] [MIN_BYTES MAX_BYTES FACTOR]`.
//!
//! Prints, for each size, the best and the median over batches of the mean time of an operation in windows out of place,
//! in the manner of MPI benchmarks: one operation right after another. Sizes are those of nccl-tests: the larger of the send and the receive buffer.

use busbw_collectives::host::HostGroup;
use busbw_collectives::{Data, Operation, Room};
use busbw_model::{Collective, Datatype, RedOp, median};
use busbw_transport::shm::Group;
use busbw_transport::wait::Cores;
use busbw_transport::{Cancellation, Error, Exchange, Result, Token};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// Batches of operations per size, after one that does not count.
const BATCHES: usize = 15;

/// The processes exchange over pipes: rank 0 has started the others, and hands on what each gives.
enum Pipes {
    Root(Vec<(Child, ChildStdin, BufReader<ChildStdout>)>),
    Leaf { rank: usize, size: usize },
}

impl Exchange for Pipes {
    fn rank(&self) -> usize {
        match self {
            Pipes::Root(_) => 0,
            Pipes::Leaf { rank, .. } => *rank,
        }
    }

    fn size(&self) -> usize {
        match self {
            Pipes::Root(others) => others.len() + 1,
            Pipes::Leaf { size, .. } => *size,
        }
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let system = |source| Error::system("exchange over a pipe", source);
        let digits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut line = String::new();
        match self {
            Pipes::Root(others) => {
                let mut all = vec![digits(mine)];
                for (_, _, from) in &mut *others {
                    line.clear();
                    from.read_line(&mut line).map_err(system)?;
                    all.push(line.trim().to_owned());
                }
                line = all.join(" ");
                for (_, to, _) in others {
                    writeln!(to, "{line}").map_err(system)?;
                }
            }
            Pipes::Leaf { .. } => {
                println!("{}", digits(mine));
                std::io::stdin().lock().read_line(&mut line).map_err(system)?;
            }
        }
        let byte = |two: &[u8]| std::str::from_utf8(two).ok().and_then(|two| u8::from_str_radix(two, 16).ok());
        Ok(line.split_whitespace().map(|one| one.as_bytes().chunks(2).filter_map(byte).collect()).collect())
    }
}

struct Flags {
    size: usize,
    collective: Collective,
    bytes: (usize, usize, usize),
}

fn flags(arguments: &[String]) -> Option<Flags> {
    let number = |at: usize, default: usize| arguments.get(at).map_or(Some(default), |text| text.parse().ok());
    let collective = arguments.get(1).map_or(Some(Collective::AllReduce), |name| Collective::from_name(name))?;
    Some(Flags { size: number(0, 2)?, collective, bytes: (number(2, 8)?, number(3, 128 << 20)?, number(4, 8)?.max(2)) })
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(flags) = flags(&arguments) else {
        return Err(Error::Config("host_speed RANKS [COLLECTIVE] [MIN_BYTES MAX_BYTES FACTOR]".into()));
    };
    let job = std::env::var("HOST_SPEED_RANK").ok().zip(std::env::var("HOST_SPEED_TOKEN").ok());
    if let Some((rank, token)) = job {
        let rank = rank.parse().map_err(|_| Error::Config("HOST_SPEED_RANK is a number".into()))?;
        return run(&mut Pipes::Leaf { rank, size: flags.size }, token.parse()?, &flags);
    }
    let token = Token::random()?;
    let system = |source| Error::system("start a rank", source);
    let program = std::env::current_exe().map_err(system)?;
    let start = |rank: usize| {
        let mut command = Command::new(&program);
        command.args(&arguments);
        command.env("HOST_SPEED_RANK", rank.to_string()).env("HOST_SPEED_TOKEN", token.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(system)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (to, from) = pipes.ok_or_else(|| Error::Config("a rank was started without pipes".into()))?;
        Ok((child, to, BufReader::new(from)))
    };
    let mut pipes = Pipes::Root((1..flags.size).map(start).collect::<Result<_>>()?);
    run(&mut pipes, token, &flags)?;
    if let Pipes::Root(others) = pipes {
        for (mut child, _, _) in others {
            child.wait().map_err(system)?;
        }
    }
    Ok(())
}

fn run(exchange: &mut Pipes, token: Token, flags: &Flags) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = if flags.size <= cores { Cores::Own } else { Cores::Shared };
    let mut group = HostGroup::new(Group::join(exchange, token, Cancellation::new(), cores)?)?;
    let (least, most, factor) = flags.bytes;
    let (send, receive) = (group.alloc(most)?, group.alloc(most)?);
    let (size, rank) = (group.size(), group.rank());
    if rank == 0 {
        println!(
            "{:>12} {:>12} {:>12} {:>9}   {} on {size} ranks",
            "bytes",
            "best us",
            "median us",
            "GB/s",
            flags.collective.name()
        );
    }
    let mut bytes = least;
    while bytes <= most {
        use Collective::{AllReduce, Broadcast, Reduce, SendRecv};
        let whole = matches!(flags.collective, AllReduce | Broadcast | Reduce | SendRecv);
        let count = bytes / 4 / if whole { 1 } else { size };
        let operation = Operation {
            collective: flags.collective,
            datatype: Datatype::Float,
            redop: RedOp::Sum,
            count,
            root: 0,
            // SAFETY: both buffers outlive the group's use of them, and serve nothing else.
            send: unsafe { Data::new(send.as_ptr(), send.len()) },
            // SAFETY: as above.
            receive: unsafe { Room::new(receive.as_ptr(), receive.len()) },
            counts: &vec![count; size * size],
        };
        let repetitions = match bytes {
            ..65536 => 500,
            65536..1048576 => 100,
            1048576..8388608 => 20,
            _ => 3,
        };
        let times_us = times(&mut group, &operation, repetitions)?;
        if rank == 0 {
            let best = times_us.iter().copied().fold(f64::INFINITY, f64::min);
            let median = median(times_us.into_iter()).unwrap_or_default();
            println!("{bytes:>12} {best:>12.2} {median:>12.2} {:>9.2}", bytes as f64 / median / 1e3);
        }
        bytes *= factor;
    }
    Ok(())
}

/// The mean times of an operation in microseconds in each of several batches.
fn times(group: &mut HostGroup, operation: &Operation<'_>, repetitions: u32) -> Result<Vec<f64>> {
    let barrier = Operation { count: 0, collective: Collective::AllReduce, ..*operation };
    let mut batch = || {
        group.run(&barrier)?;
        let start = Instant::now();
        (0..repetitions).try_for_each(|_| group.run(operation))?;
        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(repetitions))
    };
    batch()?;
    (0..BATCHES).map(|_| batch()).collect()
}
