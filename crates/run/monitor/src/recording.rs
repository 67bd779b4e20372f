//! Recordings of samples: compact, and read as far as they go.
//!
//! A file begins with a line that names format and version. Frames follow, each with its length in front (`u32`, little
//! endian) and postcard behind it: a whole sample, or what differs from the sample before. A recording that was cut off
//! ends with its last whole frame.

use busbw_probe::counters::{Counters, GpuCounters, HostCounters, Job, QueuePairs, Sample};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};

/// The first line. Another version is another number.
const HEADER: &[u8] = b"busbw monitor recording 3\n";
/// A frame of 16 ports is some 50 KiB; a longer one than this is no frame.
const LONGEST: u32 = 64 << 20;

#[derive(Serialize, Deserialize)]
enum Frame {
    Whole(Sample),
    Change(Change),
}

/// What differs from the sample before, where devices, counters and their states are the same.
#[derive(Serialize, Deserialize)]
struct Change {
    time_us: u64,
    /// One per group of counters, in the order of [`groups`].
    counters: Vec<Steps>,
    /// Without its counters.
    host: HostCounters,
    /// Without what they are.
    gpus: Vec<GpuCounters>,
    queue_pairs: Vec<QueuePairs>,
    jobs: Vec<Job>,
}

/// How a group of counters went on.
#[derive(Serialize, Deserialize)]
struct Steps {
    /// How much later it was read than before.
    time_us: u64,
    /// For each counter that changed: how many to skip to it, and by how much, wrapping.
    steps: Vec<(u32, i64)>,
}

/// A recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    #[error("no recording of busbw monitor; make one with `busbw monitor --record FILE`")]
    NoRecording,
    #[error("a recording of another version ({0}); replay it with the busbw that made it")]
    Version(String),
    /// A frame holds what no frame holds.
    #[error("damaged behind sample {0}")]
    Damaged(u64),
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes a recording.
#[derive(Debug)]
pub struct Recorder<W> {
    out: W,
    before: Option<Sample>,
}

impl<W: Write> Recorder<W> {
    /// Begins a recording.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(HEADER)?;
        Ok(Recorder { out, before: None })
    }

    /// Adds a sample, and hands it to the system, so that a recorder that is killed loses nothing.
    pub fn add(&mut self, sample: &Sample) -> io::Result<()> {
        let change = self.before.as_ref().and_then(|before| change(before, sample));
        let frame = change.map_or_else(|| Frame::Whole(sample.clone()), Frame::Change);
        let bytes = postcard::to_stdvec(&frame).map_err(io::Error::other)?;
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(&bytes)?;
        self.out.flush()?;
        self.before = Some(sample.clone());
        Ok(())
    }
}

/// Reads a recording.
#[derive(Debug)]
pub struct Recording<R> {
    input: R,
    before: Option<Sample>,
    samples: u64,
}

impl<R: BufRead> Recording<R> {
    /// Reads the first line.
    pub fn open(mut input: R) -> Result<Self, RecordingError> {
        let mut line = Vec::new();
        input.by_ref().take(HEADER.len() as u64 + 8).read_until(b'\n', &mut line)?;
        if line != HEADER {
            let (name, _) = HEADER.split_at(HEADER.len() - 2);
            let version = line.strip_prefix(name).map(|version| String::from_utf8_lossy(version.trim_ascii()));
            let version = version.filter(|version| !version.is_empty());
            return Err(version.map_or(RecordingError::NoRecording, |v| RecordingError::Version(v.into_owned())));
        }
        Ok(Recording { input, before: None, samples: 0 })
    }

    /// The next sample; none at the end, also where the file was cut off.
    pub fn next_sample(&mut self) -> Result<Option<Sample>, RecordingError> {
        let Some(bytes) = self.frame()? else { return Ok(None) };
        let damaged = RecordingError::Damaged(self.samples);
        let sample = match postcard::from_bytes(&bytes) {
            Ok(Frame::Whole(sample)) if is_whole(&sample) => Some(sample),
            Ok(Frame::Change(change)) => self.before.take().and_then(|before| changed(before, change)),
            _ => None,
        };
        let sample = sample.ok_or(damaged)?;
        self.samples += 1;
        self.before = Some(sample.clone());
        Ok(Some(sample))
    }

    fn frame(&mut self) -> Result<Option<Vec<u8>>, RecordingError> {
        let mut length = Vec::new();
        self.input.by_ref().take(4).read_to_end(&mut length)?;
        let Ok(length) = length.try_into().map(u32::from_le_bytes) else { return Ok(None) };
        if length > LONGEST {
            return Err(RecordingError::Damaged(self.samples));
        }
        let mut bytes = Vec::new();
        self.input.by_ref().take(u64::from(length)).read_to_end(&mut bytes)?;
        Ok((bytes.len() == length as usize).then_some(bytes))
    }
}

/// Every group of counters of a sample, in one order.
fn groups(sample: &Sample) -> impl Iterator<Item = &Counters> {
    let interfaces = sample.interfaces.iter().flat_map(|interface| [&interface.counters, &interface.driver]);
    sample.ports.iter().map(|port| &port.counters).chain(interfaces).chain([&sample.host.tcp])
}

fn groups_mut(sample: &mut Sample) -> impl Iterator<Item = &mut Counters> {
    let interfaces =
        sample.interfaces.iter_mut().flat_map(|interface| [&mut interface.counters, &mut interface.driver]);
    sample.ports.iter_mut().map(|port| &mut port.counters).chain(interfaces).chain([&mut sample.host.tcp])
}

/// Whether every name has a value, and names are names: they go to terminals.
fn is_whole(sample: &Sample) -> bool {
    let devices = sample.ports.iter().flat_map(|port| [&port.device, &port.state]);
    let interfaces = sample.interfaces.iter().flat_map(|interface| [&interface.name, &interface.state]);
    let mut names = devices.chain(interfaces).map(String::as_str);
    let is_name = |name: &str| !name.chars().any(char::is_control);
    names.all(is_name)
        && groups(sample).all(|counters| {
            counters.names.len() == counters.values.len() && counters.names.iter().all(|name| is_name(name))
        })
}

/// The change from one sample to the next, where there is nothing but numbers that changed.
fn change(before: &Sample, now: &Sample) -> Option<Change> {
    let same_ports = before.ports.len() == now.ports.len()
        && before.ports.iter().zip(&now.ports).all(|(a, b)| {
            let same_port = a.device == b.device && a.port == b.port && a.state == b.state;
            same_port
                && a.physical_state == b.physical_state
                && a.rate_gbit_s == b.rate_gbit_s
                && a.link_layer == b.link_layer
                && a.interface == b.interface
        });
    let same_interfaces =
        before.interfaces.len() == now.interfaces.len()
            && before.interfaces.iter().zip(&now.interfaces).all(|(a, b)| {
                a.name == b.name && a.state == b.state && a.rate_gbit_s == b.rate_gbit_s && a.bond == b.bond
            });
    let identity = |gpu: &GpuCounters| (gpu.name.clone(), gpu.uuid.clone(), gpu.pci_bus_id.clone());
    let same_gpus = before.gpus.iter().map(identity).eq(now.gpus.iter().map(identity));
    let same_names = || groups(before).zip(groups(now)).all(|(a, b)| a.names == b.names);
    (same_ports && same_interfaces && same_gpus && same_names()).then(|| Change {
        time_us: now.time_us,
        counters: groups(before).zip(groups(now)).map(|(a, b)| steps(a, b)).collect(),
        host: HostCounters { tcp: Counters::default(), ..now.host.clone() },
        gpus: now.gpus.iter().map(nameless).collect(),
        queue_pairs: now.queue_pairs.clone(),
        jobs: now.jobs.clone(),
    })
}

fn nameless(gpu: &GpuCounters) -> GpuCounters {
    GpuCounters { name: String::new(), uuid: None, pci_bus_id: None, ..gpu.clone() }
}

fn named(gpu: GpuCounters, before: GpuCounters) -> GpuCounters {
    GpuCounters { name: before.name, uuid: before.uuid, pci_bus_id: before.pci_bus_id, ..gpu }
}

fn steps(before: &Counters, now: &Counters) -> Steps {
    let mut steps = Vec::new();
    let mut skipped = 0;
    for (old, new) in before.values.iter().zip(&now.values) {
        if old == new {
            skipped += 1;
        } else {
            steps.push((skipped, new.wrapping_sub(*old).cast_signed()));
            skipped = 0;
        }
    }
    Steps { time_us: now.time_us.wrapping_sub(before.time_us), steps }
}

/// The sample that a change leads to; none where it does not fit the one before.
fn changed(mut sample: Sample, change: Change) -> Option<Sample> {
    let mut all = change.counters.into_iter();
    for counters in groups_mut(&mut sample) {
        let Steps { time_us, steps } = all.next()?;
        counters.time_us = counters.time_us.wrapping_add(time_us);
        let mut values = counters.values.iter_mut();
        for (skip, step) in steps {
            let value = values.nth(skip as usize)?;
            *value = value.wrapping_add_signed(step);
        }
    }
    let Change { time_us, host, gpus, queue_pairs, jobs, .. } = change;
    let host = HostCounters { tcp: std::mem::take(&mut sample.host.tcp), ..host };
    let before = std::mem::take(&mut sample.gpus);
    if before.len() != gpus.len() {
        return None;
    }
    let gpus = gpus.into_iter().zip(before).map(|(gpu, before)| named(gpu, before)).collect();
    let sample = Sample { time_us, host, gpus, queue_pairs, jobs, ..sample };
    (all.next().is_none() && is_whole(&sample)).then_some(sample)
}
