//! The algorithm and protocol that NCCL itself chose, beside what `predict` says of the described cluster and of the log.

use busbw_model::{Bytes, Collective};
use busbw_predict::{Cluster, cluster, predict};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Sizes that NCCL handles alike: each twice the one before.
struct Stretch {
    log: String,
    collective: Collective,
    sizes: Vec<Bytes>,
    choice: String,
}

/// How many choices agree, of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Agreement {
    /// The same algorithm and protocol.
    pub both: usize,
    pub algorithm: usize,
    /// Choices in all.
    pub of: usize,
}

impl Agreement {
    fn add(&mut self, said: &str, chose: &str) {
        let name = |choice: &str| choice.split('/').next().map(str::to_owned);
        self.of += 1;
        self.both += usize::from(said == chose);
        self.algorithm += usize::from(name(said) == name(chose));
    }

    fn join(self, other: Agreement) -> Agreement {
        Agreement { both: self.both + other.both, algorithm: self.algorithm + other.algorithm, of: self.of + other.of }
    }
}

/// Choices of a folder (`choices.csv`, and per cluster a description and a log): how many agree from descriptions, and from
/// logs, and a line for each that does not.
pub fn choices(folder: &Path) -> Result<([Agreement; 2], String), String> {
    let mut text = String::new();
    let mut sums = [Agreement::default(); 2];
    let mut clusters: BTreeMap<String, [Cluster; 2]> = BTreeMap::new();
    for stretch in stretches(folder)? {
        if !clusters.contains_key(&stretch.log) {
            clusters.insert(stretch.log.clone(), both(folder, &stretch.log)?);
        }
        let of_log = clusters.get(&stretch.log).into_iter().flatten();
        for ((cluster, sum), from) in of_log.zip(&mut sums).zip(["description", "log"]) {
            *sum = sum.join(stretch.held_against(cluster, from, &mut text));
        }
    }
    Ok((sums, text))
}

impl Stretch {
    fn held_against(&self, cluster: &Cluster, from: &str, text: &mut String) -> Agreement {
        let mut agreement = Agreement::default();
        // NCCL names what one rank sends or gets; nccl-tests names the whole buffer.
        let whole = if self.collective == Collective::AllReduce { 1 } else { cluster.ranks() as u64 };
        let sizes: Vec<Bytes> = self.sizes.iter().map(|size| Bytes(size.0 * whole)).collect();
        for row in predict(cluster, self.collective, &sizes).rows {
            let said = format!("{}/{}", row.algorithm, row.protocol).to_uppercase().replace("NVLSTREE", "NVLS_TREE");
            agreement.add(&said, &self.choice);
            if said != self.choice {
                let Stretch { log, collective, choice, .. } = self;
                let _ = writeln!(text, "{log}, {collective} of {}: {said} by the {from}, NCCL {choice}", row.size);
            }
        }
        agreement
    }
}

/// The cluster as described, and as the log shows it.
fn both(folder: &Path, name: &str) -> Result<[Cluster; 2], String> {
    let file = |extension: &str| folder.join(format!("{name}.{extension}"));
    let told = |path: &Path, error: &dyn ToString| format!("{}: {}", path.display(), error.to_string());
    let (description, log) = (file("toml"), file("log"));
    let text = fs::read_to_string(&description).map_err(|e| told(&description, &e))?;
    let described = cluster::parse(&text).map_err(|e| told(&description, &e))?;
    let bytes = fs::read(&log).map_err(|e| told(&log, &e))?;
    let run = busbw_ingest::read_bytes(&[(name, &bytes)]).map_err(|e| told(&log, &e))?;
    Ok([described, cluster::derive(&run).map_err(|e| told(&log, &e))?])
}

fn stretches(folder: &Path) -> Result<Vec<Stretch>, String> {
    let path = folder.join("choices.csv");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let read = |line: &str| Stretch::read(line).ok_or_else(|| format!("{}: {line}", path.display()));
    text.lines().skip(1).map(read).collect()
}

impl Stretch {
    fn read(line: &str) -> Option<Stretch> {
        let cells: Vec<&str> = line.split(',').collect();
        let [log, collective, first, last, algorithm, protocol] = cells[..] else { return None };
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        let collective = match collective {
            "AllReduce" => Collective::AllReduce,
            "AllGather" => Collective::AllGather,
            "ReduceScatter" => Collective::ReduceScatter,
            _ => return None,
        };
        let sizes = std::iter::successors(Some(first), |size| Some(size * 2)).take_while(|size| *size <= last);
        Some(Stretch {
            log: log.to_owned(),
            collective,
            sizes: sizes.map(Bytes).collect(),
            choice: format!("{algorithm}/{protocol}"),
        })
    }
}
