//! Published tables of `tests/data/tables`, printed as nccl-tests prints them.

use serde::Deserialize;
use std::fmt::Write;
use std::path::Path;

/// What is known of a table (`tests/data/tables/README.md`).
#[derive(Deserialize)]
pub struct About {
    pub collective: String,
    pub nodes: u32,
    pub gpus_per_node: u32,
    pub gpu: String,
    #[serde(default)]
    pub note: String,
    pub status: String,
}

/// A table and what is known of it.
pub struct Published {
    pub name: String,
    pub about: About,
    csv: String,
}

impl Published {
    /// The table that a `.toml` file describes.
    pub fn read(path: &Path) -> Self {
        let about = std::fs::read_to_string(path).expect("the facts of a table");
        let about: About = toml::from_str(&about).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let csv = std::fs::read_to_string(path.with_extension("csv")).expect("the table");
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Published { name, about, csv }
    }

    /// The table as nccl-tests prints it (`src/common.cu` of nccl-tests 2.13).
    pub fn print(&self, with_devices: bool) -> String {
        let mut text = format!("# Collective test starting: {}_perf\n", self.about.collective);
        if with_devices {
            text += &self.devices();
        }
        text += "#                                                              out-of-place                       in-place          \n";
        text += "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n";
        text += "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       \n";
        for line in self.csv.lines().skip(1).filter(|line| !line.starts_with('#')) {
            let cells: Vec<&str> = line.split(',').collect();
            if let [size, count, datatype, redop, root, times @ ..] = cells.as_slice()
                && times.len() == 8
            {
                let _ = write!(text, "{size:>12}  {count:>12}  {datatype:>8}  {redop:>6}  {root:>6}");
                for half in times.chunks(4) {
                    let _ = write!(text, "  {:>7}  {:>6}  {:>6}  {:>5}", half[0], half[1], half[2], half[3]);
                }
                text.push('\n');
            }
        }
        text + "# Out of bounds values : 0 OK\n#\n"
    }

    fn devices(&self) -> String {
        let about = &self.about;
        let mut text = String::from(
            "# nThread 1 nGpus 1 minBytes 8 maxBytes 17179869184 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n",
        );
        for rank in 0..about.nodes * about.gpus_per_node {
            let (node, device) = (rank / about.gpus_per_node, rank % about.gpus_per_node);
            let gpu = about.gpu.split(" (").next().unwrap_or(&about.gpu);
            let (pid, bus) = (4000 + rank, 0x10 + 0x11 * device);
            let _ = writeln!(
                text,
                "#  Rank {rank:2} Group  0 Pid {pid:6} on node{node:04} device {device:2} [{bus:#04x}] {gpu}"
            );
        }
        text + "#\n"
    }
}
