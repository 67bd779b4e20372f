//! A trace for ui.perfetto.dev: a counter track per port and direction, slices for alerts and jobs.
//!
//! The form is Chrome's trace events as a JSON array (docs/trace-event-format of Chromium), written as it happens: readers
//! bear an array that was cut off.

use crate::moment::Alert;
use crate::moment::Moment;
use busbw_probe::counters::Job;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The processes of the trace: the host's counters, and what happened.
const COUNTERS: u32 = 1;
const ALERTS: u32 = 2;
const JOBS: u32 = 3;

/// Writes a trace.
#[derive(Debug)]
pub struct Trace<W> {
    out: W,
    events: u64,
    /// Threads of alerts and jobs, one per name; whether a slice is open there.
    threads: BTreeMap<(u32, String), (usize, bool)>,
    last_us: u64,
}

impl<W: Write> Trace<W> {
    /// Begins a trace.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"[\n")?;
        let mut trace = Trace { out, events: 0, threads: BTreeMap::new(), last_us: 0 };
        for (pid, name) in [(COUNTERS, "ports and host"), (ALERTS, "alerts"), (JOBS, "jobs")] {
            trace.event(&json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}))?;
        }
        Ok(trace)
    }

    pub fn add(&mut self, moment: &Moment) -> io::Result<()> {
        self.last_us = moment.time_us;
        if moment.interval_us.is_some() {
            self.counters(moment)?;
        }
        let alert = |alert: &Alert| {
            let args = json!({"code": alert.code.as_str(), "what": alert.what, "meaning": alert.meaning, "remedy": alert.remedy});
            (format!("{} {}", alert.device, alert.counter), args)
        };
        self.slices(ALERTS, moment.alerts.iter().map(alert).collect())?;
        let job = |job: &Job| {
            let args = json!({"command": job.command, "processes": job.processes});
            (job.what.clone(), args)
        };
        self.slices(JOBS, moment.jobs.iter().map(job).collect())?;
        self.out.flush()
    }

    fn counters(&mut self, moment: &Moment) -> io::Result<()> {
        for row in &moment.rows {
            for (direction, rate) in [("tx", row.tx_gbit_s()), ("rx", row.rx_gbit_s())] {
                if let Some(rate) = rate {
                    self.counter(&format!("{} {direction} Gbit/s", row.device), rate)?;
                }
            }
            for (name, rate) in [("lost/s", crate::screen::lost(row)), ("congestion/s", crate::screen::congested(row))]
            {
                if let Some(rate) = rate.filter(|_| row.is_rdma()) {
                    self.counter(&format!("{} {name}", row.device), rate)?;
                }
            }
        }
        for (at, gpu) in moment.gpus.iter().enumerate() {
            if let Some(busy) = gpu.busy_pct {
                self.counter(&format!("GPU {at} %"), f64::from(busy))?;
            }
        }
        self.counter("cpu %", moment.host.cpu_pct.unwrap_or(0.0))
    }

    fn counter(&mut self, name: &str, value: f64) -> io::Result<()> {
        let event = json!({"ph": "C", "name": name, "pid": COUNTERS, "ts": self.last_us, "args": {"value": value}});
        self.event(&event)
    }

    /// Opens slices for what has begun, and closes those of what is over.
    fn slices(&mut self, pid: u32, standing: BTreeMap<String, Value>) -> io::Result<()> {
        let over: Vec<usize> = self
            .threads
            .iter_mut()
            .filter(|((of, name), (_, open))| *of == pid && *open && !standing.contains_key(name))
            .map(|(_, (thread, open))| {
                *open = false;
                *thread
            })
            .collect();
        for thread in over {
            self.event(&json!({"ph": "E", "pid": pid, "tid": thread, "ts": self.last_us}))?;
        }
        for (name, args) in standing {
            let next = self.threads.len() + 1;
            let (thread, open) = self.threads.entry((pid, name.clone())).or_insert((next, false));
            if !std::mem::replace(open, true) {
                let thread = *thread;
                if thread == next {
                    let args = json!({"name": name});
                    self.event(&json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": thread, "args": args}))?;
                }
                self.event(
                    &json!({"ph": "B", "name": name, "pid": pid, "tid": thread, "ts": self.last_us, "args": args}),
                )?;
            }
        }
        Ok(())
    }

    fn event(&mut self, event: &Value) -> io::Result<()> {
        if self.events > 0 {
            self.out.write_all(b",\n")?;
        }
        self.events += 1;
        serde_json::to_writer(&mut self.out, event)?;
        Ok(())
    }

    /// Closes what is open, and the trace.
    pub fn finish(mut self) -> io::Result<()> {
        for pid in [ALERTS, JOBS] {
            self.slices(pid, BTreeMap::new())?;
        }
        self.out.write_all(b"\n]\n")?;
        self.out.flush()
    }
}
